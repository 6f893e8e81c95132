"""Selections from a ragged tensor: one row, a slice, rows by mask or by number, elements by a ragged mask."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from .. import _arrays
from .._core import Tensor, in_kind_of
from ..errors import InvalidArgumentError
from .arrays import host_splits, numpy_of

Parts = tuple[list[np.ndarray], Any]


def place_of(index: Any, size: int, what: str, ways: str = "integers") -> int:
    """The place of an index in a dimension; negative ones count from the end. `ways` names valid kinds in the error."""
    try:
        place = operator.index(index)
    except TypeError:
        raise TypeError(f"a {what} is indexed by {ways}, got {type(index).__name__}") from None
    if not -size <= place < size:
        raise IndexError(f"index {place} is out of range for a dimension of size {size}")
    return place % size


def row(nested_splits: list[Any], values: Any, place: int) -> Parts:
    """Splits and values of a row, as views where possible. Reads and checks no other row."""
    if not nested_splits:
        return [], _cut(values, place)
    splits, inner = _between(nested_splits, values, place, place + 1)
    return splits[1:], inner


def rows(nested_splits: list[Any], values: Any, chosen: slice | np.ndarray) -> Parts:
    """Splits and values of some rows: a slice, or row numbers. A slice of step 1 is a view."""
    size = len(nested_splits[0]) - 1 if nested_splits else _num_rows(values)
    if isinstance(chosen, slice):
        begin, end, step = chosen.indices(size)
        if not nested_splits:
            return [], _cut(values, chosen)
        if step == 1:
            return _between(nested_splits, values, begin, max(begin, end))
        chosen = np.arange(begin, end, step)
    splits = host_splits(nested_splits, values, "Ragged")
    taken = []
    for level in splits:
        starts, lengths = level[:-1][chosen], np.diff(level)[chosen]
        ends = np.concatenate([[0], np.cumsum(lengths)]).astype(level.dtype)
        taken.append(ends)
        # Row i of the result holds places starts[i], starts[i] + 1, ... of the next level.
        chosen = np.arange(ends[-1]) + np.repeat(starts - ends[:-1], lengths)
    return taken, _cut(values, chosen)


def elements(nested_splits: list[Any], values: Any, mask: Any) -> Parts:
    """Splits and values of the elements for which a mask with the same splits is true.

    In device memory the mask is counted there, and the counts at the ends of rows are copied to host memory.
    """
    _arrays.check_one_device("Ragged", "values", values, **{"the mask": mask.values})
    with _arrays.of(mask.values) as xp:
        kept_splits = host_splits(mask.nested_splits, mask.values, "Ragged: the mask")
        kept = _arrays.values("Ragged: the mask", "values", mask.values, xp)
        splits = host_splits(nested_splits, values, "Ragged")
        if xp.dtype(kept) != "bool" or kept.ndim != 1:
            raise InvalidArgumentError(
                f"Ragged: a mask must have booleans, got {xp.dtype(kept)} of shape {tuple(kept.shape)}"
            )
        if len(splits) != len(kept_splits) or not all(map(np.array_equal, splits, kept_splits)):
            raise InvalidArgumentError("Ragged: a mask needs the same splits as the array, got others")
        if not splits:
            return [], _cut(values, kept)
        before = xp.concatenate([xp.arange(1), xp.cumsum(kept)])
        counts = xp.host(before[xp.asarray(splits[-1])]).astype(splits[-1].dtype)
        return [*splits[:-1], counts], _cut(values, kept)


def numbers_of(index: Any, size: int) -> np.ndarray | None:
    """The row numbers that a mask or an array of integers stands for; None if the index is neither."""
    if not isinstance(index, list) and len(getattr(index, "shape", ())) != 1:
        return None
    numbers = numpy_of(index, "Ragged", "index", None if len(index) else "int64")
    if numbers.dtype == bool:
        if len(numbers) != size:
            raise IndexError(f"a mask of {len(numbers)} rows for a Ragged of {size} rows")
        return np.flatnonzero(numbers)
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
        return None
    wrong = np.flatnonzero((numbers < -size) | (numbers >= size))
    if len(wrong):
        raise IndexError(f"index {numbers[wrong[0]]} is out of range for a dimension of size {size}")
    numbers = numbers.astype(np.int64)
    return np.where(numbers < 0, numbers + size, numbers)


def _between(nested_splits: list[Any], values: Any, begin: int, end: int) -> Parts:
    """Splits, from 0 on, and values of the rows [begin, end)."""
    levels = [numpy_of(s, "Ragged", f"nested_splits[{level}]") for level, s in enumerate(nested_splits)]
    sizes = [s.size - 1 for s in levels[1:]] + [_num_rows(values)]
    cut = []
    for level, (splits, size) in enumerate(zip(levels, sizes, strict=True)):
        part = splits[begin : end + 1]
        in_order = splits.ndim == 1 and part[0] >= 0 and part[-1] <= size and not (part[1:] < part[:-1]).any()
        if not in_order or splits.dtype not in (np.int32, np.int64):
            raise InvalidArgumentError(
                f"Ragged: nested_splits[{level}]: expected int32 or int64 that never fall, up to {size}, got "
                f"{splits.dtype} {np.array2string(part, threshold=8)} from [{begin}] on"
            )
        cut.append(part - part[0])
        begin, end = int(part[0]), int(part[-1])
    return cut, _cut(values, slice(begin, end))


def _num_rows(values: Any) -> int:
    if isinstance(values, (list, tuple)):
        return len(values)
    shape = np.shape(values)
    return shape[0] if shape else 0


def _cut(values: Any, where: Any) -> Any:
    if isinstance(where, (int, slice)) or isinstance(values, (np.ndarray, Tensor)):
        return values[where]
    if _arrays.is_on_device(values):
        with _arrays.of(values) as xp:
            chosen = xp.asarray(where) if isinstance(where, np.ndarray) else where
            return _arrays.in_kind_of(_arrays.values("Ragged", "values", values, xp)[chosen], values)
    picked = numpy_of(values, "Ragged", "values")[where]  # some frameworks cannot be indexed by an array
    return picked if isinstance(values, (list, tuple)) or picked.dtype == object else in_kind_of(picked, values)
