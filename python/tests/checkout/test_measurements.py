"""Measurements: what a benchmark program writes is what a page shows, and pages show no other figures."""

from __future__ import annotations

import datetime
import json
import re
import sys
from pathlib import Path

import pytest
from pages import ROOT
from raggrad.bench import measurement
from raggrad.bench.measurement import Measurement

sys.path.insert(0, str(ROOT / "tools"))

from pictures import tables

MEASUREMENTS = sorted((ROOT / "docs" / "measurements").iterdir())
PAGES = tables.pages(ROOT)

# A cell with a time, a rate or a ratio; a column of them; a cell that is nothing but a fraction.
MEASURED_CELL = re.compile(
    r"\b[\d.,]*\d ?(?:ns|us|ms|s|[KMG]B/s|/s|x(?! ?\d))(?![\w-])|[|,] (?:ns|us|ms) \||\| *[\d,]*\.\d+ *\|"
)
MEASURED_WORDS = re.compile(r"(\d[\d.,]*) (ns|us|ms|microseconds|milliseconds|[MG]B/s)\b")
# Figures that the code asks for or assumes, and that nobody measured.
SETTINGS = {
    "docs/performance.md": {"1 us", "1 ms", "20 us"},  # targets of tiny calls, and the shortest call timed alone
    "docs/scale.md": {"50 us", "1.25 GB/s"},  # defaults of rd.explain
}


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


def test_the_machine_is_described_with_its_load_and_without_its_kernels_build(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measurement.platform, "system", lambda: "Linux")
    monkeypatch.setattr(measurement.platform, "release", lambda: "6.1.0-13-somewhere")
    for load, words in ((0.1, " processors, "), (2.34, " processors with a load of 2.3 at the start, ")):
        monkeypatch.setattr(measurement.os, "getloadavg", lambda load=load: (load, 0.0, 0.0))
        described = measurement.describe_machine()
        assert words in described and described.endswith(" GiB, Linux 6.1.0")
    assert measurement.describe_machine("a GPU").startswith("a GPU; ")


@pytest.mark.parametrize("file", MEASUREMENTS, ids=lambda file: file.stem)
def test_a_measurement_says_what_where_when_and_how(file: Path) -> None:
    measured = Measurement.read(file)
    assert measured.title and measured.machine and measured.command and measured.tables
    datetime.date.fromisoformat(measured.date)
    for table in measured.tables.values():
        assert {len(row) for row in table.rows} <= {len(table.columns)}


def test_every_measurement_is_on_a_page() -> None:
    shown = {found[2] for page in PAGES for found in tables.BLOCK.finditer(page.read_text())}
    assert shown == {file.stem for file in MEASUREMENTS}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_table_with_measured_figures_is_one_of_a_measurement(page: Path) -> None:
    written_by_hand = tables.BLOCK.sub("", page.read_text())
    assert not [line for line in written_by_hand.splitlines() if line.startswith("|") and MEASURED_CELL.search(line)]


@pytest.mark.parametrize("page", [ROOT / "README.md", *(ROOT / "docs").glob("*.md")], ids=lambda page: page.stem)
def test_a_time_in_the_text_is_in_a_measurement(page: Path) -> None:
    contents = [Measurement.read(file) for file in MEASUREMENTS]
    measured = " ".join(json.dumps([m.conditions, m.markdown()]) for m in contents)
    numbers = {number.replace(",", "") for number in re.findall(r"[\d.,]*\d", measured)}
    words = tables.BLOCK.sub("", re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL))
    prose = "\n".join(line for line in words.splitlines() if not line.startswith(("    ", "|")))
    unknown = {
        f"{number} {unit}" for number, unit in MEASURED_WORDS.findall(prose) if number.replace(",", "") not in numbers
    }
    assert unknown <= SETTINGS.get(str(page.relative_to(ROOT)), set())


@pytest.mark.parametrize(
    "line", ["| a | 1.5 ms |", "| a | 3x |", "| a, ms | b |", "| a | 0.5 |", "| a | 12 GB/s |", "| 17,577/s |"]
)
def test_measured_figures_are_recognized(line: str) -> None:
    assert MEASURED_CELL.search(line)


@pytest.mark.parametrize(
    "line", ["| 1,000 x 64 rows |", "| PyTorch 2.10 or newer |", "| float32 | 64 |", "| 3 ids by user1s |"]
)
def test_other_numbers_are_left_alone(line: str) -> None:
    assert not MEASURED_CELL.search(line)
