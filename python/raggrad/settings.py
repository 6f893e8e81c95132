"""How calls behave that TensorFlow's signatures leave no room to say."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal

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
