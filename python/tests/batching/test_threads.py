"""Calls of the batching operators from many threads: batches that meet, faults, the GIL."""

from __future__ import annotations

import concurrent.futures
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from conftest import lets_others_run, no_switching
from raggrad import errors
from raggrad.batching import Cancellation, Runtime

from .calls import GRAD, batch_arguments, bring, index_of, own, owner_arguments


@pytest.mark.parametrize("threads", [2, 8, 32])
def test_threads(threads: int, runtime: Runtime) -> None:
    """Batches of one piece per thread. Each batch has another owner, which often has to wait."""
    batches = 60

    def work(me: int) -> int:
        joined = 0
        for batch in range(batches):
            keys = [batch * threads + other for other in range(threads)]
            grad = np.full((1 + me % 3, 2), me, np.float32)
            if batch % threads != me:
                assert bring(runtime, keys[me], grad).shape == (0, 2)
                continue
            got = own(runtime, keys[me], grad, *keys)
            expected = [other for other in range(threads) for _ in range(1 + other % 3)]
            assert got[:, 0].tolist() == expected
            joined += 1
        return joined

    with ThreadPoolExecutor(threads) as executor:
        assert sum(executor.map(work, range(threads))) == batches
    statistics = runtime.resource("UnbatchGrad").statistics()
    assert statistics.calls == statistics.succeeded == batches * threads
    assert statistics[-3:] == (0, 0, 0)


@pytest.mark.parametrize("threads", [2, 8, 32])
def test_batches_of_threads(threads: int, runtime: Runtime) -> None:
    def work(me: int) -> None:
        for step in range(20):
            arguments = batch_arguments(np.full((1, 1), me), [step], size=threads // 2, batch_timeout_micros=2000)
            out = runtime.batch(**arguments)
            mine = runtime.unbatch(
                batched_tensor=out.batched_tensors[0], batch_index=out.batch_index, id=out.id, shared_name="rows"
            )
            assert mine.tolist() == [[me]]

    with ThreadPoolExecutor(threads) as executor:
        list(executor.map(work, range(threads)))
    for kind, name in (("Batch", ""), ("Unbatch", "rows")):
        statistics = runtime.resource(kind, name).statistics()
        assert statistics.calls == statistics.succeeded == 20 * threads


def test_the_gil_is_released_while_a_call_waits(runtime: Runtime) -> None:
    with no_switching():
        thread = threading.Thread(target=lambda: bring(runtime, 2, GRAD))
        thread.start()
        assert runtime.unbatch_grad(**owner_arguments(timeout_micros=60_000_000)).shape == (2, 2)
        thread.join()


def test_the_gil_is_released_while_much_is_copied(runtime: Runtime) -> None:
    large = np.ones((1 << 22, 1), np.float32)
    keys = iter(range(200))

    def copy() -> None:
        key = next(keys)
        own(runtime, key, large, key)

    assert lets_others_run(copy, 200)


def test_many_threads_with_faults(runtime: Runtime) -> None:
    """Every call ends, however the others end, and the statistics add up."""
    token = [Cancellation()]

    def work(me: int) -> int:
        rng = np.random.default_rng(me)
        calls = 0
        for _ in range(150):
            key, kind = int(rng.integers(12)), int(rng.integers(20))
            grad = np.ones((1, 3 if kind == 0 else 2), np.float32)
            more = {"timeout_micros": int(rng.integers(2000)), "cancellation": token[0]}
            try:
                calls += 1
                if kind < 12:
                    bring(runtime, key, grad, **more)
                elif kind < 17:
                    own(runtime, key, grad, *{key, int(rng.integers(12)), int(rng.integers(12))}, **more)
                elif kind == 17:
                    arguments = owner_arguments(id=key, batch_index=index_of(key, 13), **more)
                    future = runtime.unbatch_grad_future(**arguments)
                    future.cancel()
                    concurrent.futures.wait([future], timeout=30)
                elif kind == 18:
                    calls -= 1
                    token[0].cancel()
                    token[0] = Cancellation()
                else:
                    own(runtime, key, grad, key, **more)
            except errors.OpError:
                pass
        return calls

    with ThreadPoolExecutor(16) as executor:
        calls = sum(executor.map(work, range(16)))
    statistics = runtime.resource("UnbatchGrad").statistics()
    assert statistics.calls == statistics.succeeded + statistics.failed == calls
    assert statistics.waiters == 0
