"""Calls of several threads that meet: the state behind raw_ops.Batch, Unbatch and UnbatchGrad.

A Runtime owns named resources, in which calls meet. raw_ops uses the default one of the process; programs that want
limits of their own, or several that do not disturb each other, make more. Every operator comes in three forms:

    runtime.unbatch_grad(...)                waits
    runtime.unbatch_grad_future(...)         gives a concurrent.futures.Future; its cancel() ends the wait
    await runtime.unbatch_grad_async(...)    asyncio; cancelling the task ends the wait

>>> import raggrad
>>> with raggrad.batching.Runtime() as runtime:
...     owner = runtime.unbatch_grad_future(
...         original_input=[[0.0], [0.0]], batch_index=[[1, 0, 1], [2, 1, 2]], grad=[[10.0]], id=1)
...     nothing = runtime.unbatch_grad(original_input=[], batch_index=[], grad=[[20.0]], id=2)
...     print(owner.result().tolist(), nothing.shape, runtime.resource("UnbatchGrad").statistics().succeeded)
[[10.0], [20.0]] (0, 1) 2

Every wait ends: by its result, by a deadline (10 minutes unless the call or the resource says otherwise), by a
Cancellation, by closing its resource or the runtime, by Ctrl-C in the main thread, and when the interpreter ends
and only waiting threads are left.

Arrays are not copied when they come in. A gradient that waits for its batch is the caller's own array, kept alive: do
not write to it before the batch has been joined.

After os.fork() the child cannot use a runtime of its parent, and gets UnavailableError; set_default_runtime(Runtime())
gives raw_ops a new one there.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from concurrent.futures import thread as _pools  # noqa: F401 (what is registered last is called first)
from typing import Any, Literal, NamedTuple

from . import _core
from ._core import Cancellation
from .errors import CancelledError, OpError
from .typing import ArrayLike, DTypeLike

__all__ = [
    "BatchOutput",
    "Cancellation",
    "Limits",
    "Resource",
    "Runtime",
    "Statistics",
    "default_runtime",
    "set_default_runtime",
]

Kind = Literal["Batch", "Unbatch", "UnbatchGrad"]
Done = Callable[[Any, BaseException | None], None]

_tuple = tuple.__new__  # makes a named tuple without the detour over its constructor


class BatchOutput(NamedTuple):
    """batched_tensors and batch_index have rows for the owner of the batch only; everybody has an id."""

    batched_tensors: list[Any]
    batch_index: Any
    id: Any


class Limits(NamedTuple):
    """What one resource may hold. None: no limit.

    A call that would pass one of the first three raises ResourceExhaustedError; one that completes a batch makes room
    and is never refused. Older unclaimed pieces are dropped. An Unbatch resource has its timeout_micros for both times
    unless it is given limits later.
    """

    max_pieces: int | None = 1 << 20
    max_bytes: int | None = None
    max_waiters: int | None = 1 << 16
    max_piece_age_micros: int | None = 600_000_000
    default_timeout_micros: int | None = 600_000_000


class Statistics(NamedTuple):
    """Counters since a resource was made and, in the last three, what it holds now.

    When no call is under way or waits, calls == succeeded + failed. `refused` counts limits and lack of memory.
    """

    calls: int
    succeeded: int
    failed: int
    cancelled: int
    deadline_exceeded: int
    refused: int
    pieces_expired: int
    pieces_dropped: int
    pieces: int
    bytes: int
    waiters: int


class Resource:
    """A named resource of a runtime. It begins with the first call that names it; until then, and after close(), its
    functions raise NotFoundError. As a context manager it is closed at the end, if it is there.
    """

    def __init__(self, runtime: Runtime, kind: Kind, name: str = "", container: str = "") -> None:
        self._runtime = runtime
        self._key = (kind, container, name)

    def __repr__(self) -> str:
        kind, container, name = self._key
        return f"<{kind} resource {name!r} in container {container!r}>"

    @property
    def limits(self) -> Limits:
        """May be set: holds at once, also for what is there."""
        return Limits(*self._runtime.get_limits(*self._key))

    @limits.setter
    def limits(self, limits: Limits) -> None:
        self._runtime.set_limits(*self._key, limits)

    def statistics(self) -> Statistics:
        return Statistics(*self._runtime.statistics(*self._key))

    def close(self) -> None:
        """Waiting calls raise CancelledError, pieces are dropped, the name is free again."""
        self._runtime.close_resource(*self._key)

    def __enter__(self) -> Resource:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.close()
        except OpError as error:
            if error.code != "NOT_FOUND":
                raise


class _Call(Future[Any]):
    """The future of one call."""

    def __init__(self, method: Callable[..., Any], arguments: dict[str, Any]) -> None:
        super().__init__()
        self._method = method  # with its runtime, which must not go while the call waits
        self._token = Cancellation(arguments.get("cancellation"))
        self._cancel_wanted = False
        try:
            method(**{**arguments, "cancellation": self._token, "done": self._complete})
        except OpError as error:
            self.set_exception(error)

    def cancel(self) -> bool:
        """Ends the wait. False if the call is over, or its result on the way."""
        self._cancel_wanted = True
        self._token.cancel()  # calls _complete, if the call waits
        return self.cancelled()

    def _complete(self, value: Any, error: BaseException | None) -> None:
        if error is None:
            self.set_result(value)
        elif self._cancel_wanted and isinstance(error, CancelledError):
            super().cancel()
            self.set_running_or_notify_cancel()
        else:
            self.set_exception(error)


async def _awaited(call: Future[Any]) -> Any:
    import asyncio  # takes as long as all of raggrad

    return call.result() if call.done() else await asyncio.wrap_future(call)


class Runtime(_core.BatchingRuntime):
    """Owns resources. Closing it, or the end of a `with` block, closes them all; it can be used again.

    Args:
      limits: of every resource that begins in it; see Resource.limits to change those of one.
    """

    def __init__(self, limits: Limits = Limits()) -> None:  # noqa: B008 (immutable)
        super().__init__(limits)

    def unbatch_grad(
        self,
        *,
        original_input: ArrayLike,
        batch_index: ArrayLike,
        grad: ArrayLike,
        id: ArrayLike,
        container: str = "",
        shared_name: str = "",
        T: DTypeLike | None = None,
        timeout_micros: float | None = None,
        cancellation: Cancellation | None = None,
        strict: bool = False,
        done: Done | None = None,
    ) -> Any:
        """raw_ops.UnbatchGrad in this runtime.

        Args:
          timeout_micros: how long this call may wait; None: as long as the resource says; math.inf: for ever.
          cancellation: ends the wait with CancelledError.
          strict: refuses what TensorFlow accepts although it is most likely a mistake: an owner that is not in its own
            index, ranges that are not contiguous or do not agree with the pieces, an index that is not [calls, 3] (of
            others than owners: [0, 3]), an original_input that has rows but no elements.
          done: called with (value, None) or (None, error) when the call is over, from this call or from whatever thread
            ends it. The call then returns None at once.
        """
        return super().unbatch_grad(
            original_input, batch_index, grad, id, container, shared_name, T, timeout_micros, cancellation, strict, done
        )

    def unbatch(
        self,
        *,
        batched_tensor: ArrayLike,
        batch_index: ArrayLike,
        id: ArrayLike,
        timeout_micros: int | None = None,
        container: str = "",
        shared_name: str = "",
        T: DTypeLike | None = None,
        wait_micros: float | None = None,
        cancellation: Cancellation | None = None,
        done: Done | None = None,
    ) -> Any:
        """raw_ops.Unbatch in this runtime.

        Args:
          timeout_micros: TensorFlow's attribute: how long calls wait and pieces are kept in the resource, if this call
            makes it, and otherwise without effect. None: as the runtime's limits say.
          wait_micros: how long this call may wait; None: as long as the resource says; math.inf: for ever.
          cancellation, done: as in unbatch_grad.
        """
        return super().unbatch(
            batched_tensor, batch_index, id, timeout_micros, container, shared_name, T, wait_micros, cancellation, done
        )

    def batch(
        self,
        *,
        in_tensors: Sequence[ArrayLike],
        num_batch_threads: int,
        max_batch_size: int,
        batch_timeout_micros: int,
        grad_timeout_micros: int = 0,
        max_enqueued_batches: int = 10,
        allowed_batch_sizes: Sequence[int] = (),
        container: str = "",
        shared_name: str = "",
        batching_queue: str = "",
        T: Sequence[DTypeLike] | None = None,
        timeout_micros: float | None = None,
        cancellation: Cancellation | None = None,
        done: Done | None = None,
    ) -> BatchOutput:
        """raw_ops.Batch in this runtime.

        Args:
          grad_timeout_micros: without effect, as in TensorFlow.
          timeout_micros: how long this call may wait; None: until its batch is processed.
          cancellation, done: as in unbatch_grad. A cancelled call leaves its batch, which goes on without it.
        """
        output = super().batch(
            in_tensors, num_batch_threads, max_batch_size, batch_timeout_micros, max_enqueued_batches,
            allowed_batch_sizes, container, shared_name, batching_queue, T, timeout_micros, cancellation,
            None if done is None else lambda value, error: done(value and _tuple(BatchOutput, value), error),
        )  # fmt: skip
        return output and _tuple(BatchOutput, output)

    def unbatch_grad_future(self, **arguments: Any) -> Future[Any]:
        """unbatch_grad(**arguments) as a future."""
        return _Call(self.unbatch_grad, arguments)

    def unbatch_future(self, **arguments: Any) -> Future[Any]:
        """unbatch(**arguments) as a future."""
        return _Call(self.unbatch, arguments)

    def batch_future(self, **arguments: Any) -> Future[Any]:
        """batch(**arguments) as a future."""
        return _Call(self.batch, arguments)

    async def unbatch_grad_async(self, **arguments: Any) -> Any:
        """unbatch_grad(**arguments) for asyncio."""
        return await _awaited(self.unbatch_grad_future(**arguments))

    async def unbatch_async(self, **arguments: Any) -> Any:
        """unbatch(**arguments) for asyncio."""
        return await _awaited(self.unbatch_future(**arguments))

    async def batch_async(self, **arguments: Any) -> BatchOutput:
        """batch(**arguments) for asyncio."""
        return await _awaited(self.batch_future(**arguments))

    def resource(self, kind: Kind, name: str = "", container: str = "") -> Resource:
        """The resource of calls of `kind` with this shared_name and container."""
        return Resource(self, kind, name, container)

    def close(self) -> None:
        """Closes all resources: waiting calls raise CancelledError, pieces are dropped."""
        self.close_all()

    def __enter__(self) -> Runtime:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_default: Runtime | None = None


def default_runtime() -> Runtime:
    """The runtime of raw_ops."""
    return _default or set_default_runtime(Runtime())


def set_default_runtime(runtime: Runtime) -> Runtime:
    """Makes raw_ops use another runtime from now on."""
    global _default
    _default = runtime
    return runtime


def _let_threads_end() -> bool:
    """Python waits for its threads when the main one has ended. When all that are left wait for calls of others, there
    are no others, and their calls are cancelled. Whether there are threads left to look at.
    """
    threads = [t for t in threading.enumerate() if not t.daemon and t is not threading.main_thread()]
    if threads and {t.ident for t in threads} <= set(_core.sleeping_threads()):
        _core.close_all_runtimes()
    return bool(threads)


def _main_thread_ends() -> None:
    if _core.sleeping_threads():
        _core.repeat_in_background(_let_threads_end)  # no thread of Python: 3.12.0 and 3.12.1 start none that late


# What still waits when the interpreter ends is told in time: futures, tasks and daemon threads.
atexit.register(_core.end_batching)
os.register_at_fork(after_in_child=_core.forget_calls)
if hasattr(threading, "_register_atexit"):
    threading._register_atexit(_main_thread_ends)  # before concurrent.futures waits for its threads, too
