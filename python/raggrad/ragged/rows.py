"""One row of a ragged tensor."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from .._core import Tensor
from ..errors import InvalidArgumentError
from .arrays import numpy_of


def place_of(index: Any, size: int, what: str) -> int:
    """Where an index, from the end if it is negative, lies in a dimension."""
    try:
        place = operator.index(index)
    except TypeError:
        raise TypeError(f"a {what} is indexed by integers, got {type(index).__name__}") from None
    if not -size <= place < size:
        raise IndexError(f"index {place} is out of range for a dimension of size {size}")
    return place % size


def row(nested_splits: list[Any], values: Any, place: int) -> tuple[list[np.ndarray], Any]:
    """Splits and values of a row, which share memory with the whole where they can. Reads and checks no other row."""
    if not nested_splits:
        return [], _cut(values, place)
    levels = [numpy_of(s, "Ragged", f"nested_splits[{level}]") for level, s in enumerate(nested_splits)]
    sizes = [s.size - 1 for s in levels[1:]] + [_num_rows(values)]
    inner = []
    begin, end = place, place + 1
    for level, (splits, size) in enumerate(zip(levels, sizes, strict=True)):
        part = splits[begin : end + 1]
        in_order = splits.ndim == 1 and part[0] >= 0 and part[-1] <= size and not (part[1:] < part[:-1]).any()
        if not in_order or splits.dtype not in (np.int32, np.int64):
            raise InvalidArgumentError(
                f"Ragged: nested_splits[{level}]: expected int32 or int64 that never fall, up to {size}, got "
                f"{splits.dtype} {np.array2string(part, threshold=8)} from [{begin}] on"
            )
        inner.append(part - part[0])
        begin, end = int(part[0]), int(part[-1])
    return inner[1:], _cut(values, slice(begin, end))


def _num_rows(values: Any) -> int:
    if isinstance(values, (list, tuple)):
        return len(values)
    shape = np.shape(values)
    return shape[0] if shape else 0


def _cut(values: Any, where: int | slice) -> Any:
    return Tensor(values.numpy()[where], values.dtype) if isinstance(values, Tensor) else values[where]
