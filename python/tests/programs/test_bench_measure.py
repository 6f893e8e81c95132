"""Measurements of `python -m raggrad bench`: rounds, workers, and the comparison of two builds. No time is judged."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest
from raggrad.bench import gate, measure, participants, timing
from raggrad.bench.participants import Failed, Sample
from raggrad.bench.workloads import BY_NAME

from .fake_participants import WORKLOAD, Fake, run_fakes


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
    assert outcome.notes == {"b": "made different inputs than the others"}
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
    monkeypatch.setattr(timing, "SAMPLE_SECONDS", 1e-3)
    chosen = [BY_NAME["segment-D-f32"], BY_NAME["tiny-SparseSliceGrad"]]
    results = gate.compare(chosen, participants.HERE, participants.HERE, threads=1, rounds=2, divisor=8)
    assert [len(result.before) for result in results] == [2 * 2 * gate._PASSES] * 2
    assert all(result.ratio and not result.note for result in results)


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


def test_calls_in_turns() -> None:
    happened: list[str] = []
    calls = {"one": lambda: happened.append("one"), "other": lambda: time.sleep(0.02)}
    medians = timing.medians_in_turns(calls, rounds=3, warm_ups=2, wait=lambda: happened.append("wait"))
    assert happened == ["wait", "one", "wait", "wait", "wait"] * 5
    assert set(medians) == set(calls)
    assert medians["other"] >= 20
