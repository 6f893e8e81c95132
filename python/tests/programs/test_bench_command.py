"""The command `python -m raggrad bench`, the environments of its peers, and the tools in benchmarks/."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from conftest import ROOT
from raggrad.bench import environments
from raggrad.bench.measurement import Measurement
from raggrad.bench.workloads import WORKLOADS


def test_requirements_agree_with_those_of_the_repository() -> None:
    lines = (ROOT / "tools" / "setup" / "requirements-tensorflow.txt").read_text().splitlines()
    assert environments.REQUIREMENTS["tensorflow"][0] in lines


def test_an_environment_is_complete_only_with_its_stamp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[tuple[str, ...]] = []

    def pretend(*command: str) -> None:
        commands.append(command)
        (tmp_path / "venv-torch").mkdir(exist_ok=True)

    monkeypatch.setattr(environments, "_run", pretend)
    assert not environments.is_installed("torch", tmp_path)
    environments.install("torch", tmp_path)
    assert environments.is_installed("torch", tmp_path)
    assert "torch==2.10.0" in commands[-1]
    monkeypatch.setitem(environments.REQUIREMENTS, "torch", ("torch==3",))
    assert not environments.is_installed("torch", tmp_path)


def test_what_cannot_be_installed_leaves_a_reason_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = "import sys; sys.stderr.write('WARNING: connection broken\\nERROR: no torch'); sys.exit(1)"
    monkeypatch.setattr(environments, "python_of", lambda peer, folder: sys.executable)
    run = environments._run

    def fail_in_pip(*command: str) -> None:
        run(*((sys.executable, "-c", failing) if "pip" in command else ("mkdir", command[-1])))

    monkeypatch.setattr(environments, "_run", fail_in_pip)
    with pytest.raises(environments.CannotInstall, match=r"^no torch \(the package index could not be reached\)$"):
        environments.install("torch", tmp_path)
    assert not list(tmp_path.iterdir())
    with pytest.raises(environments.CannotInstall, match="Not a directory"):
        environments.install("torch", Path(__file__) / "below")


def bench(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "raggrad", "bench", *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "Traceback" not in result.stderr
    return result


def test_help_and_list() -> None:
    assert "--quick" in bench("--help").stdout
    listed = bench("--list", "--quick").stdout.splitlines()
    assert [line.split()[0] for line in listed] == [w.name for w in WORKLOADS if w.quick]


@pytest.mark.parametrize(
    "arguments", [["--only", "nonsense"], ["--peers", "matlab"], ["--rounds", "0"], ["--python", "torch"]]
)
def test_bad_usage(arguments: list[str]) -> None:
    result = bench(*arguments)
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1


def test_a_run_without_peers_and_one_that_is_missing(tmp_path: Path) -> None:
    result = bench(
        "--only", "tiny-SparseSliceGrad", "--rounds", "1", "--threads", "1", "--peers", "torch", "--no-install",
        "--envs", tmp_path, "--json", tmp_path / "x" / "run.json", "--markdown", tmp_path / "run.md",
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert "without torch: not installed" in result.stdout
    written = json.loads((tmp_path / "x" / "run.json").read_text())
    assert [workload["name"] for workload in written["workloads"]] == ["tiny-SparseSliceGrad"]
    assert written["workloads"][0]["timings"]["raggrad"][0]["seconds"] > 0
    assert "| tiny-SparseSliceGrad |" in (tmp_path / "run.md").read_text()


def tool(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "benchmarks" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_sweep_has_a_line_for_each_kind_and_a_column_for_each_size() -> None:
    sweep = tool("sweep")
    what, size = sweep._split(Path("sparse_segment_bench"), "sweep/one-row/width:7/ids:1000/real_time")
    assert (what, size) == ("sparse_segment, one-row, width 7, per id", 1000)
    table = sweep._fill(Measurement("growth"), {what: {1000: 1.234, 10_000: 12.34}, "other": {10_000: 5.0}})
    assert table.columns == ["ns", "1,000", "10,000"]
    assert table.rows == [[what, 1.23, 12.3], ["other", "", 5.0]]


def test_samples_are_grouped_into_steps_and_the_making_of_data_is_left_out() -> None:
    report = "  40.00%  [.] SumRowsScaled<x>\n 10.00%  [k] clear_page\n  50.00%  [.] raggrad::bench::ZipfRows<long>\n"
    assert tool("where_time_goes")._steps(report, "other") == "sum rows 80%, kernel 20%"


def test_what_gpu_bench_prints_is_read() -> None:
    printed = tool("gpu_bench").read(
        "NVIDIA H200, copy 4240 GB/s; median of 20\n"
        "workload                                 ms   target     peer              GB/s  of copy\n"
        "segment-A-uniform-f32-int32           0.161    0.200    0.272 cuEmbed      1335      31%\n"
        "sums-D-f32-int32-reproducible         0.063        -        -                 7       0%\n"
    )
    assert printed[:3] == ("NVIDIA H200", 4240, 20)
    assert printed.lines == [
        ("segment-A-uniform-f32-int32", 0.161, "0.200", "cuEmbed 0.272", 1335),
        ("sums-D-f32-int32-reproducible", 0.063, "-", "", 7),
    ]
    measured = Measurement("sums")
    tool("gpu_bench").add_sums(measured, {"sums-D-fast": 0.05, "sums-D-reproducible": 0.07, "sums-E-fast": 0.1})
    assert measured.tables["sums"].rows == [["D", 0.05, "1.40x", "-"], ["E", 0.1, "-", "-"]]
