"""Reports of `python -m raggrad bench`: text, JSON, Markdown, charts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from raggrad.bench import report
from raggrad.bench.participants import Sample

from .fake_participants import Fake, run_fakes


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
    for part in ("10 ms", "35 ms  3.5x of 3x ok", "10%", "b 1.2", "without d: no wheel", "c         out of memory  w"):
        assert part in text


def test_a_target_that_is_missed_is_named(example: report.Run) -> None:
    example.outcomes[0].timings["b"][0].samples = [Sample(0.02)]
    assert "2.0x of 3x BEHIND" in report.as_text(example)


@pytest.mark.parametrize(("wanted", "text"), [(0.1, "10% of 10% ok"), (0.85, "10% of 85% BEHIND")])
def test_a_share_of_the_copy_bandwidth_is_judged(example: report.Run, wanted: float, text: str) -> None:
    example.outcomes[0].workload = replace(example.outcomes[0].workload, copy_shares={"python": wanted})
    assert text in report.as_text(example)


def test_json(example: report.Run, tmp_path: Path) -> None:
    written = json.loads(json.dumps(report.as_json(example)))
    assert written["tables"]["workloads"]["rows"] == [["w", "10 ms ±0%", "10%", "35 ms  3.5x of 3x ok"]]
    assert written["missing"] == {"d": "no wheel"}
    assert written["workloads"][0]["timings"]["raggrad"][0]["rounds"] == [0.010, 0.010]
    assert written["workloads"][0]["targets"][0]["reached"] is True


def test_markdown(example: report.Run) -> None:
    text = report.measurement(example).markdown("workloads")
    assert text.startswith("| workload | raggrad | of copy | b |\n") and "| w | 10 ms" in text
    assert text.endswith(f"{example.when[:10]}.") and "b 1.2" in text


def test_picture(example: report.Run, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from raggrad.bench import chart

    example.peers, example.outcomes[0].timings["torch"] = ["torch"], example.outcomes[0].timings["b"]
    chart.draw(example, tmp_path / "run.png")
    assert (tmp_path / "run.png").read_bytes().startswith(b"\x89PNG")


def test_headline(example: report.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "_HEADLINE", {"w": "A workload", "other": "Not in this run"})
    example.outcomes[0].timings["torch"] = example.outcomes[0].timings["b"]
    assert report.measurement(example).tables["headline"].rows == [["A workload", "10 ms", "-", "35 ms (3.5x)", "-"]]


def test_times_read_well() -> None:
    texts = [report.time_text(seconds) for seconds in (2.5, 0.0123, 4.2e-6, 3e-7)]
    assert texts == ["2.5 s", "12.3 ms", "4.2 us", "300 ns"]
