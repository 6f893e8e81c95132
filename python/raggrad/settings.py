"""Settings that hold for many calls: accumulation, threads, memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Literal, get_args

from . import _core
from .errors import InvalidArgumentError

Accumulation = Literal["sequential", "fast", "reproducible"]
ACCUMULATIONS: tuple[str, ...] = get_args(Accumulation)

# The mode inside accumulation(). Threads and asyncio tasks have their own value; a new thread starts with None, which
# leaves the mode to the device.
current_accumulation: ContextVar[str | None] = ContextVar("raggrad.accumulation", default=None)


def accumulation_or_current(mode: str | None, function: str = "accumulation") -> str | None:
    """The `accumulation` argument of a function, or if that is None the mode of the `with` block around the call."""
    return current_accumulation.get() if mode is None else _checked(mode, function)


def _checked(mode: str, function: str = "accumulation") -> str:
    if mode not in ACCUMULATIONS:
        raise InvalidArgumentError(
            f"{function}: no such accumulation "
            f"[accumulation: expected 'sequential', 'fast' or 'reproducible', got {mode!r}]"
        )
    return mode


@contextmanager
def accumulation(mode: Accumulation) -> Iterator[None]:
    """Sets how floating-point sums are made by the calls of this thread inside the `with` block.

    "sequential" is TensorFlow's order and gives its bits, on a GPU too. "fast" sums by a fixed tree: other bits, a
    smaller error bound, more parallelism. "reproducible" gives the same bits for every order of the ids and for every
    cut of the work, on CPU and GPU, with an error of about one last place. It takes 1 to 3 times as long on a CPU and
    1.1 to 1.4 times as long on a GPU. All give the same bits on every run and for every number of threads. The default
    is "sequential" on the CPU and "fast" on a GPU. docs/determinism.md compares them.

    Functions that sum also take the mode as `accumulation`, which goes before that of the block.

    >>> import raggrad
    >>> with raggrad.accumulation("fast"):
    ...     _, d_default = raggrad.raw_ops.SparseFillEmptyRowsGrad(reverse_index_map=[], grad_values=[0.5, 0.25])
    >>> float(d_default)
    0.75
    """
    token = current_accumulation.set(_checked(mode))
    try:
        yield
    finally:
        current_accumulation.reset(token)


def using(mode: Accumulation | None) -> AbstractContextManager[None]:
    """accumulation(mode), or nothing if the mode is None."""
    return nullcontext() if mode is None else accumulation(mode)


def set_num_threads(threads: int) -> None:
    """Sets how many threads operators use, the calling one included. Running calls are not affected.

    Results have the same bits with any number. RAGGRAD_NUM_THREADS in the environment sets it from outside.

    >>> import raggrad
    >>> before = raggrad.get_num_threads()
    >>> raggrad.set_num_threads(2)
    >>> raggrad.get_num_threads()
    2
    >>> raggrad.set_num_threads(before)
    """
    _core.set_num_threads(threads)


def get_num_threads() -> int:
    """How many threads operators use: the number set, else RAGGRAD_NUM_THREADS, else one per usable processor."""
    return _core.get_num_threads()


def set_memory_limit(bytes: int | None) -> None:
    """Limits the largest single piece of memory an operator may ask for. None: as much as the machine has.

    A call that needs a larger piece raises ResourceExhaustedError before it changes anything.

    >>> import raggrad
    >>> raggrad.set_memory_limit(1_000_000)
    >>> try:
    ...     raggrad.ops.segment_sum([[1.0]], [0], num_segments=1_000_000)
    ... except raggrad.errors.ResourceExhaustedError:
    ...     print("refused")
    refused
    >>> raggrad.set_memory_limit(None)
    """
    _core.set_memory_limit(bytes)


def get_memory_limit() -> int | None:
    """The limit in bytes that set_memory_limit set, or None."""
    return _core.get_memory_limit()


def set_memory_pool(bytes: int) -> None:
    """Sets how many bytes of dropped large arrays are kept for new ones; 0 frees all of them. The default is 256 MiB.

    Fresh memory costs page faults, which often take longer than the operator. A program that needs the memory for other
    work gives it back:

    >>> import raggrad
    >>> before = raggrad.get_memory_pool()
    >>> raggrad.set_memory_pool(0)
    >>> raggrad.set_memory_pool(before)
    """
    _core.set_memory_pool(bytes)


def get_memory_pool() -> int:
    """The most bytes of dropped arrays that are kept."""
    return _core.get_memory_pool()
