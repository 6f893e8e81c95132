"""Settings that TensorFlow's signatures have no arguments for: order of sums, threads, memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal

from . import _core
from .errors import InvalidArgumentError

# The order inside accumulation(). Threads and asyncio tasks have their own value; a new thread starts with None, which
# leaves the order to the device.
sum_order: ContextVar[str | None] = ContextVar("raggrad.sum_order", default=None)


@contextmanager
def accumulation(order: Literal["sequential", "fast"]) -> Iterator[None]:
    """Sets the order of floating-point sums for the calls of this thread inside the `with` block.

    "sequential" is TensorFlow's order and gives its bits, on a GPU too. "fast" sums by a fixed tree: other bits, a
    smaller error bound, more parallelism. Both give the same bits on every run and for every number of threads. The
    default is "sequential" on the CPU and "fast" on a GPU.

    >>> import raggrad
    >>> with raggrad.accumulation("fast"):
    ...     _, d_default = raggrad.raw_ops.SparseFillEmptyRowsGrad(reverse_index_map=[], grad_values=[0.5, 0.25])
    >>> float(d_default)
    0.75
    """
    if order not in ("sequential", "fast"):
        raise InvalidArgumentError(f"accumulation: expected 'sequential' or 'fast', got {order!r}")
    token = sum_order.set(order)
    try:
        yield
    finally:
        sum_order.reset(token)


def set_num_threads(threads: int) -> None:
    """Sets how many threads operators use, the calling one included. Running calls are not affected."""
    _core.set_num_threads(threads)


def get_num_threads() -> int:
    """How many threads operators use: the number set, else RAGGRAD_NUM_THREADS, else one per usable processor."""
    return _core.get_num_threads()


def set_memory_limit(bytes: int | None) -> None:
    """Limits the largest single piece of memory an operator may ask for. None: as much as the machine has.

    A call that needs a larger piece raises ResourceExhaustedError.
    """
    _core.set_memory_limit(bytes)


def get_memory_limit() -> int | None:
    """The limit that set_memory_limit set."""
    return _core.get_memory_limit()


def set_memory_pool(bytes: int) -> None:
    """Sets how many bytes of dropped large arrays are kept for new ones; 0 frees all of them. The default is 256 MiB.

    Fresh memory costs page faults, which often take longer than the operator.
    """
    _core.set_memory_pool(bytes)


def get_memory_pool() -> int:
    """The most bytes of dropped arrays that are kept."""
    return _core.get_memory_pool()
