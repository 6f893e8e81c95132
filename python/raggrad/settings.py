"""What TensorFlow's signatures leave no room to say: the order of sums, threads and memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal

from . import _core
from .errors import InvalidArgumentError

# Whether sums may use the fixed tree. Threads and tasks have their own: a new thread starts with the default.
fast_accumulation: ContextVar[bool] = ContextVar("raggrad.fast_accumulation", default=False)


@contextmanager
def accumulation(order: Literal["sequential", "fast"]) -> Iterator[None]:
    """The order in which floating-point sums are taken, for the calls of this thread inside the `with` block.

    "sequential", the default, is TensorFlow's order and gives its bits. "fast" sums by a fixed tree: other bits, a
    smaller error bound, more parallelism. Both give the same bits on every run and for every number of threads.

    >>> import raggrad
    >>> with raggrad.accumulation("fast"):
    ...     _, d_default = raggrad.raw_ops.SparseFillEmptyRowsGrad(reverse_index_map=[], grad_values=[0.5, 0.25])
    >>> float(d_default)
    0.75
    """
    if order not in ("sequential", "fast"):
        raise InvalidArgumentError(f"accumulation: expected 'sequential' or 'fast', got {order!r}")
    token = fast_accumulation.set(order == "fast")
    try:
        yield
    finally:
        fast_accumulation.reset(token)


def set_num_threads(threads: int) -> None:
    """How many threads operators use, the calling one included. Calls that are running are not disturbed."""
    _core.set_num_threads(threads)


def get_num_threads() -> int:
    """How many threads operators use: what was set, or RAGGRAD_NUM_THREADS, or as many as the machine has."""
    return _core.get_num_threads()


def set_memory_limit(bytes: int | None) -> None:
    """The largest single piece of memory an operator may ask for. None: as much as the machine has.

    A call that needs a larger one raises ResourceExhaustedError.
    """
    _core.set_memory_limit(bytes)


def get_memory_limit() -> int | None:
    """The limit that set_memory_limit has set."""
    return _core.get_memory_limit()


def set_memory_pool(bytes: int) -> None:
    """How much memory of large arrays that were dropped is kept for new ones; 0 gives everything back.

    Fresh memory costs page faults, often more time than the operator. 256 MiB unless set.
    """
    _core.set_memory_pool(bytes)


def get_memory_pool() -> int:
    """How many bytes of dropped arrays are kept at most."""
    return _core.get_memory_pool()
