"""How calls of the batching operators wait: threads, futures, asyncio, cancellation, deadlines, closing, signals, the
GIL, memory. What becomes of them when the interpreter ends is in test_batching_endings.py."""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import math
import os
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from conftest import lets_others_run, no_switching
from raggrad import _core, errors
from raggrad.batching import Cancellation, Limits, Runtime
from test_batching import NO_INDEX, batch_arguments, bring, index_of, own

GRAD = np.float32([[1, 2]])


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    with Runtime() as runtime:
        yield runtime


def owner_arguments(**more: Any) -> dict[str, Any]:
    """An owner that waits for key 2."""
    return {"original_input": GRAD, "batch_index": index_of(1, 2), "grad": GRAD, "id": 1, **more}


def in_thread(call: Callable[[], Any]) -> concurrent.futures.Future:
    """Starts the call in a thread and returns when it waits."""
    result: concurrent.futures.Future = concurrent.futures.Future()

    def run() -> None:
        try:
            result.set_result(call())
        except BaseException as error:
            result.set_exception(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    while thread.is_alive() and thread.ident not in _core.sleeping_threads():
        time.sleep(0.0002)
    return result


@pytest.mark.parametrize("threads", [2, 8, 32])
def test_threads(threads: int, runtime: Runtime) -> None:
    """Batches of one piece per thread; the owner is another thread each time and often has to wait."""
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


def test_cancellation(runtime: Runtime) -> None:
    parent = Cancellation()
    child = Cancellation(parent)
    waits = [
        in_thread(lambda token=token, i=i: own(runtime, 10 * i, GRAD, 10 * i, 10 * i + 1, cancellation=token))
        for i, token in enumerate([parent, child, None])
    ]
    child.cancel()
    with pytest.raises(errors.CancelledError, match="the call was cancelled"):
        waits[1].result(timeout=10)
    assert not parent.cancelled
    parent.cancel()
    with pytest.raises(errors.CancelledError):
        waits[0].result(timeout=10)
    assert not waits[2].done()
    bring(runtime, 21, GRAD)
    assert waits[2].result(timeout=10).shape == (2, 2)
    assert Cancellation(parent).cancelled
    with pytest.raises(errors.CancelledError):
        runtime.unbatch_grad(**owner_arguments(cancellation=parent))
    bring(runtime, 1, GRAD, cancellation=parent)  # does not wait


def test_deadlines() -> None:
    with Runtime(Limits(default_timeout_micros=1000)) as runtime:
        with pytest.raises(TimeoutError, match="did not arrive within timeout window"):
            runtime.unbatch_grad(**owner_arguments())
        endless = in_thread(lambda: runtime.unbatch_grad(**owner_arguments(timeout_micros=math.inf)))
        with pytest.raises(errors.DeadlineExceededError):
            runtime.unbatch(batched_tensor=GRAD[:0], batch_index=NO_INDEX, id=3)
        with pytest.raises(errors.DeadlineExceededError):
            runtime.unbatch(batched_tensor=GRAD[:0], batch_index=NO_INDEX, id=3, timeout_micros=1)
        with pytest.raises(errors.DeadlineExceededError):
            runtime.batch(**batch_arguments(GRAD, timeout_micros=500))
        assert not endless.done()
        bring(runtime, 2, GRAD)
        assert endless.result(timeout=10).shape == (2, 2)
    with Runtime() as runtime:
        slow = in_thread(lambda: runtime.unbatch(batched_tensor=GRAD[:0], batch_index=NO_INDEX, id=3))
        with pytest.raises(errors.DeadlineExceededError):  # of this call, not of the resource
            runtime.unbatch(batched_tensor=GRAD[:0], batch_index=NO_INDEX, id=4, wait_micros=10)
        assert not slow.done()


def test_callbacks_that_block_delay_no_deadline(runtime: Runtime) -> None:
    """Neither one that sleeps, nor one that makes a call which waits."""
    release, seen = threading.Event(), []

    def sleep(value: Any, error: BaseException | None) -> None:
        release.wait(60)

    def call_back(value: Any, error: BaseException | None) -> None:
        with pytest.raises(errors.DeadlineExceededError):
            runtime.unbatch_grad(**owner_arguments(timeout_micros=20_000, shared_name="within"))
        seen.append(type(error))
        release.set()

    for i in range(4):
        runtime.unbatch_grad(**owner_arguments(timeout_micros=1000, shared_name=str(i), done=sleep))
    with pytest.raises(errors.DeadlineExceededError):
        runtime.unbatch_grad(**owner_arguments(timeout_micros=20_000, shared_name="another"))
    runtime.unbatch_grad(**owner_arguments(timeout_micros=1000, shared_name="last", done=call_back))
    assert release.wait(60) and seen == [errors.DeadlineExceededError]


@pytest.mark.parametrize("end", ["deadline", "cancellation"])
def test_a_callback_destroys_the_runtime(end: str) -> None:
    """By dropping the last reference. The other calls have been answered when that is done."""
    holder, token, answers, at_end = [Runtime()], Cancellation(), [], []
    ended = threading.Event()

    def done(value: Any, error: BaseException | None) -> None:
        answers.append(type(error))
        if holder:
            holder.clear()
            at_end.append(len(answers))
            ended.set()

    for i in range(4):
        timeout = 200_000 if end == "deadline" else math.inf
        holder[0].unbatch_grad(
            **owner_arguments(timeout_micros=timeout, shared_name=str(i), cancellation=token, done=done)
        )
    if end == "cancellation":
        token.cancel()
    assert ended.wait(60)
    assert at_end == [4] and len(answers) == 4


def test_closing(runtime: Runtime) -> None:
    waits = [
        in_thread(lambda: runtime.unbatch_grad(**owner_arguments())),
        in_thread(lambda: runtime.unbatch(batched_tensor=GRAD[:0], batch_index=NO_INDEX, id=3)),
        in_thread(lambda: runtime.batch(**batch_arguments(GRAD))),
    ]
    runtime.resource("UnbatchGrad").close()
    with pytest.raises(errors.CancelledError, match="the resource was closed"):
        waits[0].result(timeout=10)
    assert not waits[1].done()
    runtime.close()
    for wait in waits[1:]:
        with pytest.raises(errors.CancelledError):
            wait.result(timeout=10)
    assert own(runtime, 1, GRAD, 1).shape == (1, 2), "a closed runtime can be used again"


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


class Array(np.ndarray):
    """One that can be watched."""


def watched(rows: int = 4) -> tuple[np.ndarray, weakref.ref]:
    array = np.ones((rows, 2), np.float32).view(Array)
    return array, weakref.ref(array)


@pytest.mark.parametrize("end", ["joined", "cancelled", "expired", "closed", "dropped"])
def test_a_piece_keeps_its_array_until_it_goes(end: str) -> None:
    runtime = Runtime()
    array, alive = watched()
    address = array.__array_interface__["data"][0]
    bring(runtime, 2, array)
    del array
    gc.collect()
    assert alive() is not None
    assert alive().__array_interface__["data"][0] == address
    if end == "joined":
        assert own(runtime, 1, GRAD, 1, 2).shape == (5, 2)
    elif end == "cancelled":
        runtime.unbatch_grad_future(**owner_arguments()).cancel()
        future = runtime.unbatch_grad_future(**owner_arguments(batch_index=index_of(1, 2, 3)))
        future.cancel()
    elif end == "expired":
        runtime.resource("UnbatchGrad").limits = Limits(max_piece_age_micros=1000)
        while alive() is not None:  # the timer's thread gives it back
            time.sleep(0.001)
    elif end == "closed":
        runtime.close()
    else:
        del runtime
    gc.collect()
    assert alive() is None


def test_no_references_are_left(runtime: Runtime) -> None:
    array = np.ones((3, 2), np.float32)
    words = np.array([b"a" * 50, b"b"], object)
    token = Cancellation()
    objects = (array, words, token, words[0])
    before = [sys.getrefcount(item) for item in objects]
    for key in range(20):
        bring(runtime, key, array, cancellation=token)
        bring(runtime, key, words, shared_name="words")
        own(runtime, -1 - key, array, -1 - key, key)
        own(runtime, -1 - key, words, -1 - key, key, shared_name="words")
        runtime.batch(**batch_arguments(array, size=3))
        runtime.unbatch(batched_tensor=array, batch_index=[[key, 0, 3]], id=key)
        with pytest.raises(errors.DeadlineExceededError):
            own(runtime, -1 - key, array, 1000, timeout_micros=0, cancellation=token)
        runtime.unbatch_grad_future(**owner_arguments(grad=array, cancellation=token)).cancel()
        runtime.close()
    assert [sys.getrefcount(item) for item in objects] == before


def test_operands_may_be_gone_when_the_call_waits(runtime: Runtime) -> None:
    array, alive = watched(1)
    future = runtime.unbatch_grad_future(original_input=GRAD, batch_index=index_of(1, 2), grad=array, id=1)
    del array
    bring(runtime, 2, np.float32([[7, 7]]))
    assert future.result().tolist() == [[1, 1], [7, 7]]
    del future
    gc.collect()
    assert alive() is None


@pytest.mark.skipif(threading.current_thread() is not threading.main_thread(), reason="signals go to the main thread")
def test_ctrl_c_ends_a_wait(runtime: Runtime) -> None:
    # A process that a script has started in the background ignores Ctrl-C.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(0.05, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            runtime.unbatch_grad(**owner_arguments())
    finally:
        timer.join()
        signal.signal(signal.SIGINT, before)
    statistics = runtime.resource("UnbatchGrad").statistics()
    assert (statistics.cancelled, statistics.waiters) == (1, 0)


@pytest.mark.skipif(threading.current_thread() is not threading.main_thread(), reason="signals go to the main thread")
def test_a_handler_that_returns_does_not_end_a_wait(runtime: Runtime) -> None:
    handled = []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: handled.append(number))
    try:
        for delay in (0.02, 0.04):
            threading.Timer(delay, lambda: os.kill(os.getpid(), signal.SIGUSR1)).start()
        threading.Timer(0.08, lambda: bring(runtime, 2, GRAD)).start()
        assert runtime.unbatch_grad(**owner_arguments()).shape == (2, 2)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert len(handled) == 2


def test_many_threads_with_faults(runtime: Runtime) -> None:
    """Every call ends, whatever the others do, and the statistics add up."""
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
