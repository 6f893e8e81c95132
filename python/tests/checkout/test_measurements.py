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
from raggrad.bench.measurement import Measurement, Table
from raggrad.bench.workloads import WORKLOADS

sys.path.insert(0, str(ROOT / "tools"))

from pictures import compared, tables

MEASUREMENTS = sorted((ROOT / "docs" / "measurements").iterdir())
PAGES = tables.pages(ROOT)

# A cell with a time, a rate or a ratio; a column of them; a cell that is nothing but a fraction.
MEASURED_CELL = re.compile(
    r"\b[\d.,]*\d ?(?:ns|us|ms|s|[KMG]B/s|/s|x(?! ?\d))(?![\w-])|[|,] (?:ns|us|ms) \||\| *[\d,]*\.\d+ *\|"
)
MEASURED_WORDS = re.compile(r"(\d[\d.,]*) (ns|us|ms|microseconds|milliseconds|[MG]B/s)\b")
# Figures that the code asks for or assumes, and that nobody measured.
SETTINGS = {
    "docs/performance/calls.md": {"1 us"},  # the target of a tiny call
    "docs/performance/method.md": {"20 us"},  # the shortest call that is timed alone
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
    assert {page for page in (ROOT / "docs").rglob("*.md") if tables.BLOCK.search(page.read_text())} <= set(PAGES)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_table_with_measured_figures_is_one_of_a_measurement(page: Path) -> None:
    written_by_hand = tables.BLOCK.sub("", page.read_text())
    assert not [line for line in written_by_hand.splitlines() if line.startswith("|") and MEASURED_CELL.search(line)]


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")], ids=lambda page: str(page.relative_to(ROOT))
)
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


def test_a_page_shows_chosen_rows_without_targets_and_empty_columns() -> None:
    mark = "<!-- measurement: bench_x86_64_16 workloads of segment-D* slice-* -->\n"
    page = tables.filled(f"{mark}old\n<!-- end of measurement -->\n", ROOT)
    assert re.findall(r"^\| (segment|slice|fill|ragged)", page, re.MULTILINE) == ["segment", "slice"]
    assert "old" not in page
    with pytest.raises(ValueError, match=r"no row of workloads is like nothing-\*"):
        tables.filled(f"{mark.replace('slice-*', 'nothing-*')}<!-- end of measurement -->\n", ROOT)


def test_targets_stand_in_a_table_of_their_own() -> None:
    columns = ["workload", "raggrad", "of copy", "tensorflow", "plain"]
    measured = Measurement("a title", [], "a machine", "2026-01-02", "a command")
    measured.tables = {
        "workloads": Table(
            columns,
            [
                ["fill-A", "1 ms ±3%", "61% of 85% BEHIND", "3 ms  3.0x of 2x ok", "-"],
                ["tiny-UnbatchGrad from C++", "2 us ±1% BEHIND", "", "-", "4 us  2.0x"],
            ],
        ),
        "batches": Table(
            ["batches", "raggrad", "raggrad-c++", "tensorflow"],
            [["unbatch-A-32-threads", "9/s, 1 us / 2 us ok", "9/s, 1 us / 9 us BEHIND", "1/s, 5 us / 7 us"]],
        ),
        "ways": Table(["peer", "its best way", "workloads"], [["torch", "mask", "fill-A"]]),
        "left out": Table(["left out", "because", "workloads"]),
    }
    shown = compared.for_pages(measured).tables
    assert shown["workloads"].columns == [
        "workload", "raggrad", "share of a copy", "TensorFlow", "raggrad without plan or fusion",
    ]  # fmt: skip
    assert shown["workloads"].rows == [
        ["fill-A", "1 ms ±3%", "61%", "3 ms (3.0x)", "-"],
        ["tiny-UnbatchGrad from C++", "2 us ±1%", "", "-", "4 us (2.0x)"],
    ]
    times = ["9/s, 1 us / 2 us", "9/s, 1 us / 9 us", "1/s, 5 us / 7 us"]
    assert shown["batches"].rows == [["unbatch-A-32-threads", *times]]
    assert shown["ways"].rows == [["PyTorch", "mask", "fill-A"]]
    tail = "99th percentile below TensorFlow's median, 5 us"
    assert shown["targets"].rows == [
        ["fill-A", "at least 85% of the speed of a copy", "61%", "no"],
        ["fill-A", "at least 2x as fast as TensorFlow", "3.0x", "yes"],
        ["tiny-UnbatchGrad from C++", "at most 1 us", "2 us ±1%", "no"],
        ["unbatch-A-32-threads", tail, "2 us", "yes"],
        ["unbatch-A-32-threads from C++", tail, "9 us", "no"],
    ]
    assert [row[0] for row in shown["missed"].rows] == [row[0] for row in shown["targets"].rows if row[-1] == "no"]

    measured.tables["workloads"].rows[0][3] = "3 ms, three times as long"
    with pytest.raises(ValueError, match="the benchmark program does not write '3 ms, three times as long'"):
        compared.for_pages(measured)


def test_times_above_their_target_are_missed() -> None:
    measured = Measurement("a title", [], "a machine", "2026-01-02", "a command")
    rows = [["fast", 1.0, "1.100"], ["slow", 1.2, "1.100"], ["free", 9.0, "-"]]
    measured.tables = {"workloads": Table(["workload", "ms", "target, ms"], rows)}
    assert compared.for_pages(measured).tables["missed"].rows == [rows[1]]


def test_pages_explain_every_workload_with_its_sizes() -> None:
    """Their tables name the start of a workload's name, and have every number of its sizes."""

    def numbers(text: str) -> set[str]:
        return set(re.findall(r"\b\d+\b", re.sub(r"\b(f|bf|int)\d+", "", text.replace(",", ""))))

    pages = "".join(page.read_text() for page in (ROOT / "docs" / "performance").glob("*.md"))
    explained = {found[1]: numbers(found[0]) for found in re.finditer(r"^\| `([\w-]+)` \|.*$", pages, re.MULTILINE)}
    for workload in WORKLOADS:
        if workload.name.startswith("tiny-"):  # the first sentence of their page has all of their sizes
            continue
        name = max((name for name in explained if workload.name.startswith(name)), key=len)
        assert numbers(workload.sizes) - {str(workload.threads)} <= explained[name], workload.name


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
