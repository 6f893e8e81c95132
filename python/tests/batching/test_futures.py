"""Calls of the batching operators as futures, callbacks and asyncio tasks."""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from raggrad import errors
from raggrad.batching import Cancellation, Runtime

from .calls import GRAD, NO_INDEX, batch_arguments, bring, index_of, owner_arguments


def test_futures(runtime: Runtime) -> None:
    future = runtime.unbatch_grad_future(**owner_arguments())
    assert not future.done()
    assert runtime.resource("UnbatchGrad").statistics().waiters == 1
    called = []
    future.add_done_callback(called.append)
    bring(runtime, 2, GRAD * 10)
    assert future.result(timeout=10).tolist() == [[1, 2], [10, 20]]
    assert called == [future]
    assert not future.cancel()
    rows = runtime.unbatch_future(batched_tensor=GRAD[:0], batch_index=NO_INDEX, id=9)
    runtime.unbatch(batched_tensor=GRAD[[0, 0]], batch_index=index_of(8, 9), id=8)
    assert rows.result(timeout=10).tolist() == [[1, 2]]
    tasks = [runtime.batch_future(**batch_arguments(GRAD)) for _ in range(2)]
    done, waiting = concurrent.futures.wait(tasks, timeout=10)
    assert (len(done), len(waiting)) == (2, 0)
    assert tasks[1].result().batched_tensors[0].shape == (2, 2)
    assert tasks[0].result().batch_index.shape == (0, 3)


def test_cancelling_a_future_ends_its_wait(runtime: Runtime) -> None:
    future = runtime.unbatch_grad_future(**owner_arguments())
    assert future.cancel()
    assert future.cancelled()
    with pytest.raises(concurrent.futures.CancelledError):
        future.result()
    assert concurrent.futures.wait([future]).done == {future}
    statistics = runtime.resource("UnbatchGrad").statistics()
    assert (statistics.cancelled, statistics.waiters, statistics.pieces) == (1, 0, 0)
    task = runtime.batch_future(**batch_arguments(GRAD))
    assert task.cancel()
    assert runtime.resource("Batch").statistics()[-3:] == (0, 0, 0)


def test_a_future_that_others_end(runtime: Runtime) -> None:
    token = Cancellation()
    cancelled = runtime.unbatch_grad_future(**owner_arguments(cancellation=token))
    token.cancel()
    assert isinstance(cancelled.exception(), errors.CancelledError)
    assert not cancelled.cancelled()
    late = runtime.unbatch_grad_future(**owner_arguments(timeout_micros=1000))
    assert isinstance(late.exception(timeout=10), errors.DeadlineExceededError)
    closed = runtime.unbatch_grad_future(**owner_arguments())
    runtime.resource("UnbatchGrad").close()
    assert "the resource was closed" in closed.exception().message
    gone = Runtime().unbatch_grad_future(**owner_arguments())
    gc.collect()
    assert not gone.done(), "a future keeps its runtime"


def test_callbacks(runtime: Runtime) -> None:
    told: list[tuple[Any, Any, int]] = []

    def done(value: Any, error: Any) -> None:
        told.append((value, error, threading.get_ident()))
        if value is not None and len(value):  # callbacks may call again
            runtime.unbatch_grad(**owner_arguments(id=5, batch_index=index_of(5)))

    assert runtime.unbatch_grad(**owner_arguments(done=done)) is None
    assert told == []
    bring(runtime, 2, GRAD, done=done)
    assert [error for _, error, _ in told] == [None, None]
    assert sorted(len(value) for value, _, _ in told) == [0, 2]
    runtime.unbatch_grad(**owner_arguments(done=done, timeout_micros=0))
    while len(told) < 3:
        time.sleep(0.001)
    assert isinstance(told[2][1], errors.DeadlineExceededError)
    assert told[2][2] != threading.get_ident(), "the timer's thread"
    outputs: list[Any] = []
    runtime.batch(**batch_arguments(GRAD, size=1), done=lambda value, error: outputs.append(value))
    assert outputs[0].batched_tensors[0].tolist() == [[1, 2]]


def test_a_callback_that_raises(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    unraisable = []
    monkeypatch.setattr(sys, "unraisablehook", lambda args: unraisable.append(args.exc_value))
    runtime.unbatch_grad(**owner_arguments(batch_index=index_of(1), done=lambda value, error: 1 / 0))
    assert isinstance(unraisable[0], ZeroDivisionError)


def test_asyncio(runtime: Runtime) -> None:
    async def step() -> None:
        owner = asyncio.create_task(runtime.unbatch_grad_async(**owner_arguments()))
        await asyncio.sleep(0)
        nothing = await runtime.unbatch_grad_async(original_input=[], batch_index=[], grad=GRAD * 3, id=2)
        assert nothing.shape == (0, 2)
        assert (await owner).tolist() == [[1, 2], [3, 6]]
        outs = await asyncio.gather(*(runtime.batch_async(**batch_arguments(GRAD * i, size=3)) for i in range(3)))
        rows = await asyncio.gather(
            *(
                runtime.unbatch_async(batched_tensor=o.batched_tensors[0], batch_index=o.batch_index, id=o.id)
                for o in outs
            )
        )
        assert [row.tolist() for row in rows] == [[[0, 0]], [[1, 2]], [[2, 4]]]
        with pytest.raises(errors.DeadlineExceededError):
            await runtime.unbatch_grad_async(**owner_arguments(timeout_micros=1000))
        with pytest.raises(errors.InvalidArgumentError):
            await runtime.unbatch_grad_async(**owner_arguments(id=[1]))

    asyncio.run(step())


def test_cancelling_a_task_ends_its_wait(runtime: Runtime) -> None:
    async def step() -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(runtime.unbatch_grad_async(**owner_arguments()), 0.02)
        statistics = runtime.resource("UnbatchGrad").statistics()
        assert (statistics.cancelled, statistics.waiters) == (1, 0)
        task = asyncio.create_task(runtime.unbatch_grad_async(**owner_arguments()))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(step())
    assert runtime.resource("UnbatchGrad").statistics().waiters == 0


def test_results_from_other_threads_reach_the_loop(runtime: Runtime) -> None:
    async def step() -> list[Any]:
        owners = [
            runtime.unbatch_grad_async(**owner_arguments(id=2 * i, batch_index=index_of(2 * i, 2 * i + 1)))
            for i in range(50)
        ]
        return await asyncio.gather(*owners)

    def pieces() -> None:
        for i in range(50):
            bring(runtime, 2 * i + 1, GRAD * i)

    with ThreadPoolExecutor(1) as executor:
        future = executor.submit(pieces)
        results = asyncio.run(step())
        future.result()
    assert [result[1, 0] for result in results] == list(range(50))
