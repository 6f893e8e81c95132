"""Cancellation, deadlines, closing and signals end the wait of a batching call. test_exit.py has the rest."""

from __future__ import annotations

import math
import os
import signal
import threading
from typing import Any

import pytest
from raggrad import errors
from raggrad.batching import Cancellation, Limits, Runtime

from .calls import GRAD, NO_INDEX, batch_arguments, bring, in_thread, own, owner_arguments


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
    """Neither a callback that sleeps nor one that makes a waiting call delays the deadlines of others."""
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
    """The callback drops the last reference. The other calls have been answered when that returns."""
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


@pytest.mark.skipif(threading.current_thread() is not threading.main_thread(), reason="signals go to the main thread")
def test_ctrl_c_ends_a_wait(runtime: Runtime) -> None:
    # A process that a script started in the background ignores Ctrl-C unless a handler is set.
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
