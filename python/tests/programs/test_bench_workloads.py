"""The workloads of `python -m raggrad bench`: their inputs, and that every peer computes our results."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT
from raggrad.bench import cli, measure, participants, timing
from raggrad.bench.participants import Failed
from raggrad.bench.workload import ZIPF_EXPONENT, Workload, digest, zipf
from raggrad.bench.workloads import BY_NAME, WORKLOADS

SMALL = 400  # divisor of all sizes
PYTHON_WORKLOADS = [workload for workload in WORKLOADS if "python" in workload.languages]


def test_names_are_unique_and_targets_name_peers() -> None:
    assert len(BY_NAME) == len(WORKLOADS)
    for workload in WORKLOADS:
        assert {target.peer for target in workload.targets} <= set(cli.PEERS)
        languages = {*workload.limits, *workload.copy_shares, *(target.language for target in workload.targets)}
        assert languages <= set(workload.languages)
        assert workload.traffic or not workload.copy_shares
        assert set(workload.languages) <= set(measure.OURS)


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)
def test_inputs_are_the_same_every_time(workload: Workload) -> None:
    first = workload.inputs(SMALL)
    assert digest(first) == digest(workload.inputs(SMALL))
    changed = next(name for name in first if np.size(first[name]))
    changed_inputs = {**first, changed: np.add(first[changed], 1).astype(np.asarray(first[changed]).dtype)}
    assert digest(first) != digest(changed_inputs)


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
    ids = zipf(np.random.default_rng(5), count, rows)
    counts = np.bincount(ids, minlength=rows)
    assert len(counts) == rows
    weights = np.arange(1, rows + 1) ** -ZIPF_EXPONENT
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
        if "c++" in workload.languages:
            assert f'"{workload.name.removesuffix(f"-{workload.threads}-threads")}"' in sources


def start(peer: str) -> participants.Process:
    """Starts the peer in the first environment that has it."""
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
def test_a_peer_gives_our_results(peer: str, ours: participants.Process, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "SAMPLE_SECONDS", 1e-3)  # nothing is measured
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
            # Some peers sum bfloat16 in bfloat16: rows with many contributions are far off.
            tolerance = 1e-4 if ours.dtype == np.float32 else 5e-2
            difference = theirs.astype(np.float64) - ours.astype(np.float64)
            assert np.linalg.norm(difference) <= tolerance * np.linalg.norm(ours.astype(np.float64)), what
