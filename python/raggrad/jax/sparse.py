"""Entries of sparse arrays, with a number of entries that is known when a function is traced."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ._calls import (
    FLOATS,
    INTEGERS,
    OTHERS,
    array_of,
    exportable,
    fail,
    integers_of,
    mode_of,
    number_of,
    scalar_of,
    size_of,
)
from ._entries import Box, filled, sliced
from ._varying import alike

_MOST_DIMENSIONS = 254


@exportable
@partial(
    jax.tree_util.register_dataclass, data_fields=("indices", "values", "count"), meta_fields=("shape",)
)
@dataclass(frozen=True)
class Entries:
    """Entries of a sparse array: the first `count` ones; all behind them are padding.

    indices: [size, dimensions]; padding is (shape[0], 0, 0, ...), which is out of range.
    values: [size]; padding is zero.
    count: [], int32.
    shape: of the dense array, a tuple.
    """

    indices: jax.Array
    values: jax.Array
    count: jax.Array
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """How many entries there is room for."""
        return self.values.shape[-1]

    def to_dense(self) -> jax.Array:
        """The dense array. Entries at one place are added up; of booleans one that is true is enough."""
        places = tuple(self.indices[:, column] for column in range(len(self.shape)))
        dense = jnp.zeros(self.shape, self.values.dtype).at[places]
        join = dense.max if self.values.dtype == np.bool_ else dense.add
        return join(self.values, mode="drop")


def fill_empty_rows(
    indices: Any,
    values: Any,
    shape: Sequence[int],
    default_value: Any,
    *,
    count: Any = None,
    max_entries: int | None = None,
    accumulation: str | None = None,
) -> tuple[Entries, jax.Array]:
    """Gives every row without entries one with the default value, in its first column.

    Returns the entries, ordered by row, and a vector that says which rows were empty. `indices` has a row for every
    entry, int32 or int64, in any order. `count` is how many entries there are if padding follows them, as in Entries:
    `fill_empty_rows(cut.indices, cut.values, cut.shape, 0.5, count=cut.count)`. `max_entries` is the room for entries,
    by default one for every entry and row, which is always enough. Too little room, or a row out of range, is an error
    on a CPU; on a GPU all values are NaN (of integers: garbage), and with too little room the count of the result is
    larger than its size.

    Differentiable in `values` and `default_value`. `accumulation` is how the gradient of the latter is summed. Takes up
    to 32 bytes per entry besides the result, on a GPU also 9 per row; without jax_enable_x64, indices are widened, 16
    more for each number. With `count`, a GPU writes the result twice.

    >>> import jax.numpy as jnp, raggrad.jax as rj
    >>> entries, empty = rj.fill_empty_rows(jnp.array([[1, 1]]), jnp.array([3.0]), (2, 2), 9.0)
    >>> entries.to_dense().tolist(), empty.tolist()
    ([[9.0, 0.0], [0.0, 3.0]], [True, False])
    """
    name = "fill_empty_rows"
    dims = _dims(name, "shape", shape)
    places, entries = _operands(name, indices, values, dims)
    room = entries.shape[0] + dims[0] if max_entries is None else size_of(name, "max_entries", max_entries)
    default = scalar_of(name, "default_value", default_value, entries)
    if count is not None:
        count = number_of(name, "count", count)
    box = Box(name, dims, (), (), room, mode_of(name, accumulation))
    new_indices, new_values, empty_rows, _, found = filled(*alike(places, entries, default, count), box)
    return Entries(new_indices, new_values, found, dims), empty_rows


def sparse_slice(
    indices: Any,
    values: Any,
    shape: Sequence[int],
    start: Sequence[int],
    size: Sequence[int],
    *,
    max_entries: int | None = None,
) -> Entries:
    """The box [start, start + size) of a sparse array, cut off where the array ends. Entries keep their order.

    `indices` has a row for every entry, int32 or int64, in any order. `max_entries` is the room for entries, by default
    one for every entry that there is. Too little room is an error on a CPU; on a GPU all values are NaN (of integers:
    garbage) and `count` is larger than the size.

    Differentiable in `values`. Takes two bits per entry besides the result; without jax_enable_x64, indices are
    widened, 16 bytes for each number.

    >>> import jax.numpy as jnp, raggrad.jax as rj
    >>> rj.sparse_slice(jnp.array([[0, 1], [1, 0]]), jnp.array([3.0, 5.0]), (2, 2), (0, 1), (2, 1)).to_dense().tolist()
    [[3.0], [0.0]]
    """
    name = "sparse_slice"
    dims, first, extent = _dims(name, "shape", shape), _dims(name, "start", start), _dims(name, "size", size)
    for argument, numbers in (("start", first), ("size", extent)):
        if len(numbers) != len(dims):
            fail(name, f"{argument}: expected {len(dims)} numbers, one for every dimension, got {len(numbers)}")
    places, entries = _operands(name, indices, values, dims)
    room = entries.shape[0] if max_entries is None else size_of(name, "max_entries", max_entries)
    # Padding of other entries lies behind the array, so a box that ends there must not reach further.
    cut = tuple(max(min(n, whole - begin), 0) for n, whole, begin in zip(extent, dims, first, strict=True))
    new_indices, new_values, count = sliced(*alike(places, entries), Box(name, dims, first, cut, room))
    return Entries(new_indices, new_values, count, cut)


def _dims(function: str, argument: str, numbers: Sequence[int]) -> tuple[int, ...]:
    try:
        len(numbers)
    except TypeError:
        fail(function, f"{argument}: expected a number for every dimension, got {numbers!r}", TypeError)
    return tuple(size_of(function, f"{argument}[{place}]", number) for place, number in enumerate(numbers))


def _operands(function: str, indices: Any, values: Any, shape: tuple[int, ...]) -> tuple[jax.Array, jax.Array]:
    places = integers_of(function, "indices", indices)
    entries = array_of(function, "values", values, FLOATS + INTEGERS + OTHERS)
    if entries.ndim != 1:
        fail(function, f"values: expected 1 dimension, got shape {entries.shape}")
    if not 1 <= len(shape) <= _MOST_DIMENSIONS:
        fail(function, f"shape: expected 1 to {_MOST_DIMENSIONS} dimensions, got {len(shape)}")
    if places.shape != (entries.shape[0], len(shape)):
        fail(function, f"indices: expected shape {(entries.shape[0], len(shape))}, got {places.shape}")
    if places.dtype.name not in ("int32", "int64"):
        fail(function, f"indices: expected int32 or int64, got {places.dtype.name}", TypeError)
    return places, entries
