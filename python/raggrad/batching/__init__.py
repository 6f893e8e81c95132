"""Batching across threads: the state behind raw_ops.Batch, Unbatch and UnbatchGrad.

A Runtime owns named resources; calls that name the same resource meet there. raw_ops uses the default runtime of the
process. A program can make more, to set limits or to keep groups of calls apart. Every operator comes in three forms:

    runtime.unbatch_grad(...)                waits
    runtime.unbatch_grad_future(...)         returns a concurrent.futures.Future; its cancel() ends the wait
    await runtime.unbatch_grad_async(...)    asyncio; cancelling the task ends the wait

>>> import raggrad
>>> with raggrad.batching.Runtime() as runtime:
...     owner = runtime.unbatch_grad_future(
...         original_input=[[0.0], [0.0]], batch_index=[[1, 0, 1], [2, 1, 2]], grad=[[10.0]], id=1)
...     nothing = runtime.unbatch_grad(original_input=[], batch_index=[], grad=[[20.0]], id=2)
...     print(owner.result().tolist(), nothing.shape, runtime.resource("UnbatchGrad").statistics().succeeded)
[[10.0], [20.0]] (0, 1) 2

Every wait ends: with its result, at a deadline (10 minutes unless the call or the resource sets another), by a
Cancellation, when its resource or the runtime is closed, by Ctrl-C in the main thread, or when the interpreter ends
and only waiting threads are left.

Inputs are not copied. A gradient that waits for its batch is the caller's own array, kept alive: do not write to it
before the batch has been joined.

A child of os.fork() cannot use its parent's runtimes: calls raise UnavailableError. set_default_runtime(Runtime())
gives raw_ops a new one there.
"""

from .._core import Cancellation
from . import at_exit as at_exit
from .resources import Limits, Resource, Statistics
from .runtime import BatchOutput, Runtime

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

_default: Runtime | None = None


def default_runtime() -> Runtime:
    """The runtime of raw_ops, made by the first call that needs it.

    >>> import raggrad
    >>> raggrad.batching.default_runtime() is raggrad.batching.default_runtime()
    True
    """
    return _default or set_default_runtime(Runtime())


def set_default_runtime(runtime: Runtime) -> Runtime:
    """Makes raw_ops use another runtime from now on, and returns it. A child of os.fork() needs that.

    >>> from raggrad.batching import Limits, Runtime, default_runtime, set_default_runtime
    >>> before = default_runtime()
    >>> set_default_runtime(Runtime(limits=Limits(max_pieces=1_000))) is default_runtime()
    True
    >>> default = set_default_runtime(before)
    """
    global _default
    _default = runtime
    return runtime
