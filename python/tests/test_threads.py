"""Threads: the pool, the GIL, and calls at the same time."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import raggrad
from conftest import lets_others_run, same_bits
from raggrad import raw_ops


def large_call(ids: int = 20_000) -> dict[str, object]:
    rng = np.random.default_rng(0)
    return {
        "grad": rng.standard_normal((500, 32)).astype(np.float32),
        "indices": rng.integers(0, 5000, ids),
        "segment_ids": np.sort(rng.integers(0, 500, ids)),
        "dense_output_dim0": 5000,
    }


def test_number_of_threads(restore_threads: None) -> None:
    for threads in (1, 2, 7):
        raggrad.set_num_threads(threads)
        assert raggrad.get_num_threads() == threads
    for bad in (0, -1, 10**6):
        with pytest.raises(raggrad.errors.InvalidArgumentError, match="set_num_threads"):
            raggrad.set_num_threads(bad)
    with pytest.raises(TypeError):
        raggrad.set_num_threads("two")
    assert raggrad.get_num_threads() == 7


def threads_of_a_new_process(text: str | None) -> int:
    environment = {name: value for name, value in os.environ.items() if name != "RAGGRAD_NUM_THREADS"}
    run = subprocess.run(
        [sys.executable, "-c", "import raggrad; print(raggrad.get_num_threads())"],
        env=environment if text is None else {**environment, "RAGGRAD_NUM_THREADS": text},
        capture_output=True,
        text=True,
        check=True,
    )
    return int(run.stdout)


@pytest.mark.parametrize(("text", "expected"), [("3", 3), ("1", 1), ("zero", None), ("0", None)])
def test_environment(text: str, expected: int | None) -> None:
    assert threads_of_a_new_process(text) == (expected or threads_of_a_new_process(None))


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs affinity")
def test_threads_follow_the_processors_of_the_process() -> None:
    all_of_them = os.sched_getaffinity(0)
    assert threads_of_a_new_process(None) <= len(all_of_them)
    os.sched_setaffinity(0, {min(all_of_them)})
    try:
        assert threads_of_a_new_process(None) == 1
    finally:
        os.sched_setaffinity(0, all_of_them)


def test_results_do_not_depend_on_the_number_of_threads(restore_threads: None) -> None:
    call = large_call()
    results = []
    for threads in (1, 2, 7):
        raggrad.set_num_threads(threads)
        results.append(raw_ops.SparseSegmentMeanGradV2(**call))
    for other in results[1:]:
        assert same_bits(results[0].output, other.output)
        assert same_bits(results[0].sorted_unique_indices, other.sorted_unique_indices)


def test_the_gil_is_released(restore_threads: None) -> None:
    call = large_call(1_000_000)
    raggrad.set_num_threads(1)
    assert lets_others_run(lambda: raw_ops.SparseSegmentMeanGradV2(**call), 100)


def test_calls_at_the_same_time_while_the_pool_changes(restore_threads: None) -> None:
    call = large_call()
    expected = raw_ops.SparseSegmentMeanGradV2(**call)
    stop = threading.Event()

    def compute(_: int) -> int:
        calls = 0
        while not stop.is_set() or calls == 0:
            got = raw_ops.SparseSegmentMeanGradV2(**call)
            assert same_bits(got.output, expected.output)
            calls += 1
        return calls

    with ThreadPoolExecutor(3) as executor:
        futures = [executor.submit(compute, i) for i in range(3)]
        for threads in [1, 4, 2, 7] * 10:
            raggrad.set_num_threads(threads)
        stop.set()
        assert all(future.result() >= 1 for future in futures)


def test_accumulation_belongs_to_a_thread() -> None:
    values = np.full(100_000, 0.1, np.float32)

    def total() -> float:
        return float(raw_ops.SparseFillEmptyRowsGrad(reverse_index_map=[], grad_values=values).d_default_value)

    exact = total()
    with raggrad.accumulation("fast"), ThreadPoolExecutor(1) as executor:
        assert total() != exact
        assert executor.submit(total).result() == exact


def test_strings_survive_while_another_thread_writes_to_their_array() -> None:
    words = np.empty(2000, object)
    words[:] = [b"word %d" % i for i in range(len(words))]
    expected = words.tolist()
    stop = threading.Event()

    def disturb() -> None:
        while not stop.is_set():
            words[:] = [b"word %d" % i for i in range(len(words))]

    thread = threading.Thread(target=disturb)
    thread.start()
    try:
        for _ in range(50):
            got = raw_ops.RaggedTensorToVariantGradient(
                encoded_ragged_grad=[raggrad.Ragged([], words), raggrad.Ragged([], np.array([b"end"], object))],
                row_splits=[0],
                dense_values_shape=[2001],
                Tvalues="string",
            )
            assert got.tolist() == [*expected, b"end"]
    finally:
        stop.set()
        thread.join()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_after_fork_computes_too() -> None:
    code = (
        "import os, numpy as np, raggrad\n"
        "call = lambda: raggrad.raw_ops.SparseFillEmptyRowsGrad(reverse_index_map=[], grad_values=np.ones(10**6))\n"
        "raggrad.set_num_threads(4); call()\n"
        "child = os.fork()\n"
        "if child == 0: os._exit(int(float(call().d_default_value) != 10**6))\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert run.stdout == "0\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("threads", [2, 4, 6, 8])
def test_a_child_after_fork_can_have_threads(threads: int) -> None:
    code = (
        "import os, threading, numpy as np, raggrad\n"
        "call = lambda: raggrad.raw_ops.SparseFillEmptyRowsGrad(reverse_index_map=[], grad_values=np.ones(10**6))\n"
        f"raggrad.set_num_threads({threads}); call()\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    own = threading.Thread(target=call); own.start(); own.join()\n"
        f"    raggrad.set_num_threads({threads})\n"
        f"    same = raggrad.get_num_threads() == {threads} and float(call().d_default_value) == 10**6\n"
        "    os._exit(int(not same))\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )
    run = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=60)
    assert run.stdout == "0\n", run.stderr
