"""python -m raggrad bench: that everybody does the same work and the figures are computed right. No time is judged."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from conftest import ROOT
from raggrad.bench import cli, environments, gate, measure, participants, report, timing, workloads
from raggrad.bench.participants import Failed, Gone, Loaded, Sample
from raggrad.bench.workloads import BY_NAME, WORKLOADS, Target, Workload

SMALL = 400  # divisor of all sizes
PYTHON_WORKLOADS = [workload for workload in WORKLOADS if "python" in workload.doors]


# Workloads


def test_names_are_unique_and_targets_name_peers() -> None:
    assert len(BY_NAME) == len(WORKLOADS)
    for workload in WORKLOADS:
        assert {target.peer for target in workload.targets} <= set(cli.PEERS)
        assert {*workload.limits, *(target.door for target in workload.targets)} <= set(workload.doors)
        assert set(workload.doors) <= set(measure.DOORS)


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)
def test_inputs_are_the_same_every_time(workload: Workload) -> None:
    first = workload.inputs(SMALL)
    assert workloads.digest(first) == workloads.digest(workload.inputs(SMALL))
    changed = next(name for name in first if np.size(first[name]))
    changed_inputs = {**first, changed: np.add(first[changed], 1).astype(np.asarray(first[changed]).dtype)}
    assert workloads.digest(first) != workloads.digest(changed_inputs)


@pytest.mark.parametrize(
    "workload", [w for w in WORKLOADS if w.task == "SparseSegmentMeanGradV2"], ids=lambda workload: workload.name
)
def test_segments(workload: Workload) -> None:
    inputs = workload.inputs(SMALL)
    assert len(inputs["indices"]) == len(inputs["segment_ids"])
    assert 0 <= inputs["indices"].min() <= inputs["indices"].max() < inputs["dense_output_dim0"]
    assert 0 <= inputs["segment_ids"].min() <= inputs["segment_ids"].max() < len(inputs["grad"])
    assert (np.diff(inputs["segment_ids"]) >= 0).all()


@pytest.mark.parametrize(
    ("name", "megabytes"), [("segment-A-uniform-f32-int64", 231), ("fill-A", 136), ("slice-A", 100), ("ragged-A", 164)]
)
def test_full_sizes(name: str, megabytes: int) -> None:
    workload = BY_NAME[name]
    assert workload.traffic is not None
    assert workload.traffic(workload.inputs()) / 1e6 == pytest.approx(megabytes, rel=0.01)


def test_zipf() -> None:
    rows, count = 1000, 200_000
    ids = workloads.zipf(np.random.default_rng(5), count, rows)
    counts = np.bincount(ids, minlength=rows)
    assert len(counts) == rows
    weights = np.arange(1, rows + 1) ** -workloads.ZIPF_EXPONENT
    expected = count * weights / weights.sum()
    ranked = np.sort(counts)[::-1]
    assert ranked[:20] == pytest.approx(expected[:20], rel=0.1)
    assert ranked[:300].sum() == pytest.approx(expected[:300].sum(), rel=0.02)
    assert np.corrcoef(np.argsort(-counts)[:50], np.arange(50))[0, 1] < 0.5, "ranks are shuffled"


def test_slice_keeps_a_quarter_and_fill_keeps_most() -> None:
    for name in ("slice-A", "slice-B"):
        inputs = BY_NAME[name].inputs(SMALL)
        entries, kept = inputs["input_indices"], inputs["output_indices"]
        assert len(kept) / len(entries) == pytest.approx(0.25, abs=0.02)
        ranks = np.ravel_multi_index(entries.T, entries.max(0) + 1)
        assert (np.diff(ranks) > 0).all()
    for name, is_sorted in (("fill-A", True), ("fill-B", False)):
        positions = BY_NAME[name].inputs(SMALL)["reverse_index_map"]
        assert len(np.unique(positions)) == len(positions) == 10_000_000 // SMALL * 4 // 5
        assert (np.diff(positions) > 0).all() == is_sorted


def test_cpp_benchmarks_have_the_names_of_workloads() -> None:
    sources = "".join(path.read_text() for path in (ROOT / "raggrad" / "ops").rglob("*_bench.cc"))
    for workload in WORKLOADS:
        if "c++" in workload.doors:
            assert f'"{workload.name.removesuffix(f"-{workload.threads}-threads")}"' in sources


# Everybody does the same work


def start(peer: str) -> participants.Process:
    """In the first environment that has the peer."""
    if peer == cli.PLAIN:
        return participants.raggrad_in(participants.HERE, 2, peer, peer)
    folders = (f"build/bench/venv-{peer}", "build/venv-tf", "build/venv-frameworks")
    for python in (sys.executable, *(str(ROOT / folder / "bin" / "python") for folder in folders)):
        if Path(python).exists():
            try:
                return participants.Process(peer, peer, python, threads=2)
            except Failed:
                continue
    pytest.skip(f"{peer} is not installed")


@pytest.fixture(scope="module")
def ours() -> participants.Process:
    process = participants.raggrad_in(participants.HERE, threads=2)
    yield process
    process.close()


@pytest.mark.parametrize("peer", cli.PEERS)
def test_a_peer_gives_our_results(peer: str, ours: participants.Process) -> None:
    theirs = start(peer)
    compared = []
    try:
        for workload in PYTHON_WORKLOADS:
            loaded, wanted = theirs.load(workload, SMALL), ours.load(workload, SMALL)
            assert loaded.digest in (None, wanted.digest)
            assert not wanted.errors
            assert not loaded.errors or (peer, "bf16" in workload.name) == ("fbgemm", True)
            if not loaded.ways or not wanted.ways:
                continue
            expected = ours.outputs(0)
            for number, way in enumerate(loaded.ways):
                assert_close(theirs.outputs(number), expected, f"{workload.name}: {way}")
            compared.append(workload.name)
    finally:
        theirs.close()
    assert {w.name for w in PYTHON_WORKLOADS if any(target.peer == peer for target in w.targets)} <= set(compared)


def assert_close(got: list[np.ndarray], expected: list[np.ndarray], what: str) -> None:
    assert len(got) == len(expected), what
    for theirs, ours in zip(got, expected, strict=True):
        assert theirs.shape == ours.shape, what
        if ours.dtype.kind == "i":
            assert (theirs == ours).all(), what
        else:
            assert theirs.dtype == ours.dtype, what
            # Some sum bfloat16 in bfloat16, so that the rows in heavy use are far off.
            tolerance = 1e-4 if ours.dtype == np.float32 else 5e-2
            difference = theirs.astype(np.float64) - ours.astype(np.float64)
            assert np.linalg.norm(difference) <= tolerance * np.linalg.norm(ours.astype(np.float64)), what


# The harness


class Fake:
    """Answers with given seconds; keeps a diary that all of them share."""

    about: dict[str, str] = {"fake": "1"}  # noqa: RUF012

    def __init__(self, name: str, ways: dict[str, list[float]], diary: list[str], digest: int = 7) -> None:
        self.name, self._ways, self._diary, self._digest = name, ways, diary, digest
        self.closed = False

    def load(self, workload: Workload, divisor: int = 1) -> Loaded:
        return Loaded(list(self._ways), [], self._digest, 1000)

    def sample(self, way: int) -> Sample:
        self._diary.append(self.name)
        seconds = list(self._ways.values())[way].pop(0)
        if seconds < 0:
            raise Gone("crashed") if seconds == -1 else Failed("refused")
        return Sample(seconds, p50=seconds / 2, p99=2 * seconds)

    def close(self) -> None:
        self.closed = True


WORKLOAD = Workload("w", "task", "sizes", lambda random, divisor: {}, targets=(Target("b", 3), Target("c", 100)))


def run_fakes(*fakes: Fake, rounds: int, times: int = 1) -> list[measure.Outcome]:
    return measure.run([WORKLOAD] * times, fakes, rounds)


def test_rounds_are_interleaved_and_ratios_are_of_medians() -> None:
    diary: list[str] = []
    outcome = run_fakes(
        Fake("raggrad", {"x": [1.0, 9.0, 2.0]}, diary),
        Fake("b", {"slow": [50.0, 50.0, 50.0], "fast": [8.0, 6.0, 7.0]}, diary),
        rounds=3,
    )[0]
    assert diary == ["raggrad", "b", "b", "b", "raggrad", "raggrad", "b"], "the slow way is timed once"
    best = outcome.best("b")
    assert best is not None and (best.way, best.seconds, best.p99) == ("fast", 7.0, 14.0)
    assert outcome.ratio("b") == 3.5
    assert outcome.bandwidth() == 500
    assert [outcome.verdict(target) for target in WORKLOAD.targets] == [True, None]
    assert best.spread == pytest.approx(1 / 7)


def test_who_is_gone_is_missed_and_who_fails_is_not_timed() -> None:
    dead = Fake("b", {"x": [1.0, -1]}, [])
    sick = Fake("c", {"x": [-2, 1.0, 1.0]}, [])
    first, second = run_fakes(Fake("raggrad", {"x": [1.0] * 4}, []), dead, sick, rounds=2, times=2)
    assert dead.closed and not sick.closed
    assert first.notes == {"b": "gone since w: crashed", "c": "refused"}
    assert second.notes == {"b": "gone since w: crashed"}
    assert first.best("b") is None and second.best("c") is not None


def test_after_the_deadline_no_workload_and_no_second_round_begins() -> None:
    fake = Fake("raggrad", {"x": [1.0] * 9}, [])
    outcomes = measure.run([WORKLOAD] * 3, [fake], rounds=3, deadline=0)
    assert [outcome.rounds for outcome in outcomes] == [1]


def test_other_inputs_are_found_out() -> None:
    outcome = run_fakes(Fake("raggrad", {"x": [1.0]}, []), Fake("b", {"x": [1.0]}, [], digest=8), rounds=1)[0]
    assert outcome.notes == {"b": "made other inputs than the others"}
    assert outcome.ratio("b") is None


def test_a_worker_that_cannot_start_says_why() -> None:
    with pytest.raises(Failed, match="No module named"):
        participants.Process("x", "no_such_peer", sys.executable, 1)


def test_an_interpreter_that_is_not_there() -> None:
    with pytest.raises(Failed, match="No such file"):
        participants.Process("x", "torch", "/nonexistent", 1)


def test_a_closed_worker_is_gone_even_if_it_is_busy() -> None:
    process = participants.raggrad_in(participants.HERE, threads=1)
    print('{"do": "copy"}', file=process._process.stdin, flush=True)
    process.close()
    assert process._process.returncode is not None


def test_batches_are_brought_once_each_and_owners_come_last() -> None:
    brought: list[int] = []
    seconds, latencies = timing.time_batches(brought.append, pieces=4, batches=5, threads=3)
    assert sorted(brought) == list(range(20))
    assert seconds > 0 and len(latencies) == 5
    with pytest.raises(ZeroDivisionError):
        timing.time_batches(lambda number: 1 // 0, pieces=1, batches=1, threads=2)


def test_calls_are_counted() -> None:
    calls: list[int] = []
    for count in (1, 3, 15_000):
        calls.clear()
        assert timing.time_calls(lambda: calls.append(1), count) >= 0
        assert len(calls) == count
    assert timing.calls_per_sample(10.0) == 1
    assert timing.calls_per_sample(1e-3) == 150


def test_copy_bandwidth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "_COPY_BYTES", 1 << 20)
    bandwidth = timing.copy_bandwidth(2)
    assert set(bandwidth) == {"copy", "fresh"} and min(bandwidth.values()) > 0


# Reports


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


def test_the_machine_is_described_without_its_kernels_build(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report.platform, "system", lambda: "Linux")
    monkeypatch.setattr(report.platform, "release", lambda: "6.1.0-13-somewhere")
    assert report.describe_machine().endswith(" GiB, Linux 6.1.0")


def test_times_read_well() -> None:
    texts = [report.time_text(seconds) for seconds in (2.5, 0.0123, 4.2e-6, 3e-7)]
    assert texts == ["2.5 s", "12.3 ms", "4.2 us", "300 ns"]


# The gate


def test_the_gate_judges_by_the_median_of_paired_ratios() -> None:
    comparison = gate.Comparison(WORKLOAD, before=[1.0, 2.0, 4.0], after=[1.2, 2.0, 4.6])
    assert comparison.ratio == pytest.approx(1.15)
    assert comparison.lost
    comparison.after = [5.0, 2.0, 4.2]  # one disturbed round does not decide
    assert not comparison.lost
    assert "SLOWER" not in gate.as_text([comparison])
    comparison = gate.Comparison(WORKLOAD, before=[1.0] * 5, after=[1.0, 1.0, 1.5, 1.5, 1.5])
    assert not comparison.lost, "nor do many, if the fast ones are as fast as before"


def test_the_gate_compares_two_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "_DOUBT", 0.0)  # so that all passes run
    chosen = [BY_NAME["segment-D-f32"], BY_NAME["tiny-SparseSliceGrad"]]
    results = gate.compare(chosen, participants.HERE, participants.HERE, threads=1, rounds=2, divisor=8)
    assert [len(result.before) for result in results] == [2 * 2 * gate._PASSES] * 2
    assert all(result.ratio and not result.note for result in results)


# Environments and the command line


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
    assert "missing: torch: not installed" in result.stdout
    written = json.loads((tmp_path / "x" / "run.json").read_text())
    assert [workload["name"] for workload in written["workloads"]] == ["tiny-SparseSliceGrad"]
    assert written["workloads"][0]["timings"]["raggrad"][0]["seconds"] > 0
    assert "| tiny-SparseSliceGrad |" in (tmp_path / "run.md").read_text()


def test_cpp_benchmarks_are_read(tmp_path: Path) -> None:
    program = tmp_path / "x_bench"
    answer = {"benchmarks": [{"real_time": 3.0, "time_unit": "ms", "batches": 2.0, "p50": 0.1, "p99": 0.2}]}
    script = f"import sys\nprint('w/real_time' if 'list' in sys.argv[1] else {json.dumps(answer)!r})\n"
    program.write_text(f"#!{sys.executable}\n{script}")
    program.chmod(0o755)
    cpp = participants.CppBenchmarks(tmp_path, threads=1)
    assert cpp.load(WORKLOAD).ways == ["C++"]
    assert cpp.sample(0) == Sample(0.0015, 0.1, 0.2)
    with pytest.raises(Failed, match="no benchmark programs"):
        participants.CppBenchmarks(tmp_path / "elsewhere", threads=1)


# Tools for work on a kernel


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
    table = sweep._table({what: {1000: 1.234, 10_000: 12.34}, "other": {10_000: 5.0}})
    assert table[0] == "| ns | 1,000 | 10,000 |"
    assert table[2:] == [f"| {what} | 1.23 | 12.3 |", "| other |  | 5 |"]


def test_samples_are_grouped_into_steps_and_the_making_of_data_is_left_out() -> None:
    report = "  40.00%  [.] SumRowsScaled<x>\n 10.00%  [k] clear_page\n  50.00%  [.] raggrad::bench::ZipfRows<long>\n"
    assert tool("where_time_goes")._steps(report, "other") == "sum rows 80%, kernel 20%"
