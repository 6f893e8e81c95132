"""Measurements: what a benchmark program writes is what a page shows."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from raggrad.bench import measurement
from raggrad.bench.measurement import Measurement


def test_a_file_has_what_was_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    measured = Measurement("A title", ["2 threads"], "a machine", "2026-01-02", "a command")
    table = measured.table("times", "call", "ms", "faster")
    table.add("one", 1.23456, "4x")
    table.add("two [2]", 1234, "-")
    assert capsys.readouterr().out.split() == ["call", "ms", "faster", "one", "1.23", "4x", "two", "[2]", "1,234", "-"]

    measured.write(tmp_path / "new" / "file.json")
    assert '[ "one", 1.23, "4x" ]' in (tmp_path / "new" / "file.json").read_text()
    assert Measurement.read(tmp_path / "new" / "file.json") == measured
    assert measured.markdown().splitlines() == [
        "| call | ms | faster |",
        "| --- | ---: | ---: |",
        "| one | 1.23 | 4x |",
        "| two [2] | 1,234 | - |",
        "",
        "a machine; 2 threads; `a command`, 2026-01-02.",
    ]
    measured.write(None)


@pytest.mark.parametrize(
    "arguments, command",
    [
        (["/a/folder/benchmarks/x.py"], "benchmarks/x.py"),
        (["benchmarks/x.py", "--json", "f", "--only", "a b", "--png=p"], "benchmarks/x.py --only 'a b'"),
        (["/site-packages/raggrad/__main__.py", "bench", "--quick"], "python -m raggrad bench --quick"),
    ],
)
def test_the_command_has_no_folders_and_no_outputs(
    arguments: list[str], command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", arguments)
    assert measurement.command_line() == command


def test_the_machine_is_described_without_its_kernels_build(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measurement.platform, "system", lambda: "Linux")
    monkeypatch.setattr(measurement.platform, "release", lambda: "6.1.0-13-somewhere")
    assert measurement.describe_machine().endswith(" GiB, Linux 6.1.0")
    assert measurement.describe_machine("a GPU").startswith("a GPU; ")
