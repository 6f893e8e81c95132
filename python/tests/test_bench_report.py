"""Reports of `python -m raggrad bench`: text, JSON, Markdown, chart."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import ROOT
from fake_participants import Fake, run_fakes
from raggrad.bench import report
from raggrad.bench.participants import Sample


@pytest.fixture
def example() -> report.Run:
    outcome = run_fakes(
        Fake("raggrad", {"x": [0.010, 0.010]}, []), Fake("b", {"one": [0.035, 0.035]}, []), rounds=2
    )[0]
    outcome.notes["c"] = "out of memory"
    return report.Run(
        [outcome],
        ["b", "c", "d"],
        threads=2,
        rounds=2,
        versions={"b": {"b": "1.2"}},
        missing={"d": "no wheel"},
        bandwidths=[{"copy": 1e6, "fresh": 5e5}],
    )


def test_text(example: report.Run) -> None:
    text = report.as_text(example)
    for part in ("10 ms", "35 ms  3.5x of 3x ok", "10%", "b: b 1.2", "missing: d: no wheel", "c, w: out of memory"):
        assert part in text


def test_a_target_that_is_missed_is_named(example: report.Run) -> None:
    example.outcomes[0].timings["b"][0].samples = [Sample(0.02)]
    assert "2.0x of 3x BEHIND" in report.as_text(example)


def test_json(example: report.Run, tmp_path: Path) -> None:
    written = json.loads(json.dumps(report.as_json(example)))
    assert written["missing"] == {"d": "no wheel"}
    assert written["workloads"][0]["timings"]["raggrad"][0]["rounds"] == [0.010, 0.010]
    assert written["workloads"][0]["targets"][0]["reached"] is True


def test_markdown_replaces_only_its_block(example: report.Run, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- bench: begin -->\nold\n<!-- bench: end -->\nafter\n")
    report.write_markdown(page, example)
    text = page.read_text()
    assert text.startswith("before\n<!-- bench: begin -->\n") and text.endswith("<!-- bench: end -->\nafter\n")
    assert "old" not in text and "| w | 10 ms" in text
    report.write_markdown(tmp_path / "new.md", example)
    assert (tmp_path / "new.md").read_text() in text


def test_the_documentation_has_a_block_to_fill() -> None:
    text = (ROOT / "docs" / "performance.md").read_text()
    assert text.count("<!-- bench: begin -->") == text.count("<!-- bench: end -->") == 1


def test_picture(example: report.Run, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from raggrad.bench import chart

    example.peers, example.outcomes[0].timings["torch"] = ["torch"], example.outcomes[0].timings["b"]
    chart.draw(example, tmp_path / "run.png")
    assert (tmp_path / "run.png").read_bytes().startswith(b"\x89PNG")


def test_headline(example: report.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    from raggrad.bench import headline

    monkeypatch.setattr(headline, "_WORKLOADS", {"w": "A workload", "other": "Not in this run"})
    example.peers, example.outcomes[0].timings["torch"] = ["torch"], example.outcomes[0].timings["b"]
    page, picture = tmp_path / "page.md", tmp_path / "speed.svg"
    page.write_text("before\n<!-- headline: begin -->\nold\n<!-- headline: end -->\nafter\n")
    headline.write(example, page, picture)
    text = page.read_text()
    assert "old" not in text and "| A workload | 10 ms | - | 35 ms (3.5x) | - |" in text
    assert text.startswith("before\n") and text.endswith("\nafter\n")
    assert b"<svg" in picture.read_bytes()


def test_the_machine_is_described_without_its_kernels_build(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report.platform, "system", lambda: "Linux")
    monkeypatch.setattr(report.platform, "release", lambda: "6.1.0-13-somewhere")
    assert report.describe_machine().endswith(" GiB, Linux 6.1.0")


def test_times_read_well() -> None:
    texts = [report.time_text(seconds) for seconds in (2.5, 0.0123, 4.2e-6, 3e-7)]
    assert texts == ["2.5 s", "12.3 ms", "4.2 us", "300 ns"]
