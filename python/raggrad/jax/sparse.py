"""Entries of sparse arrays, with a number of entries that is known when a function is traced."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ._calls import (
    FLOATS,
    INTEGERS,
    OTHERS,
    REPORT,
    Settings,
    Shaped,
    array_of,
    call,
    count_of,
    differentiable,
    exportable,
    fail,
    mode_of,
    number_of,
    on_platform,
    poisoned,
    size_of,
)
from ._varying import alike
from .bags import operands

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
        return self.values.shape[0]

    def to_dense(self) -> jax.Array:
        """The dense array. Entries at one place are added up."""
        places = tuple(self.indices[:, column] for column in range(len(self.shape)))
        return jnp.zeros(self.shape, self.values.dtype).at[places].add(self.values, mode="drop")


class _Box(NamedTuple):
    """The operands of a call that are no arrays."""

    function: str
    shape: tuple[int, ...]
    start: tuple[int, ...]
    size: tuple[int, ...]
    room: int
    accumulation: str | None = None


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
    to 32 bytes per entry besides the result; without jax_enable_x64, indices are widened, 16 more for each number. With
    `count`, a GPU writes the result twice.

    >>> import jax.numpy as jnp, raggrad.jax as rj
    >>> entries, empty = rj.fill_empty_rows(jnp.array([[1, 1]]), jnp.array([3.0]), (2, 2), 9.0)
    >>> entries.to_dense().tolist(), empty.tolist()
    ([[9.0, 0.0], [0.0, 3.0]], [True, False])
    """
    name = "fill_empty_rows"
    dims = _dims(name, "shape", shape)
    places, entries = _operands(name, indices, values, dims)
    room = entries.shape[0] + dims[0] if max_entries is None else size_of(name, "max_entries", max_entries)
    default = jnp.asarray(default_value, entries.dtype)
    if default.ndim:
        fail(name, f"default_value: expected a scalar, got shape {default.shape}")
    if count is not None:
        count = number_of(name, "count", count)
    box = _Box(name, dims, (), (), room, mode_of(name, accumulation))
    new_indices, new_values, empty_rows, _, found = _filled(*alike(places, entries, default, count), box)
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

    Differentiable in `values`. Takes one bit per entry besides the result; without jax_enable_x64, indices are widened,
    16 bytes for each number.

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
    new_indices, new_values, count = _sliced(*alike(places, entries), _Box(name, dims, first, cut, room))
    return Entries(new_indices, new_values, count, cut)


def _dims(function: str, argument: str, numbers: Sequence[int]) -> tuple[int, ...]:
    if not hasattr(numbers, "__len__"):
        fail(function, f"{argument}: expected a number for every dimension, got {numbers!r}", TypeError)
    return tuple(size_of(function, f"{argument}[{place}]", number) for place, number in enumerate(numbers))


def _operands(function: str, indices: Any, values: Any, shape: tuple[int, ...]) -> tuple[jax.Array, jax.Array]:
    places = array_of(function, "indices", indices)
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


def _wide(numbers: jax.Array) -> jax.Array:
    """Whole numbers as pairs of int32, which are the halves of int64. JAX may have no int64."""
    if numbers.dtype.name == "int64":
        return jax.lax.bitcast_convert_type(numbers, np.int32)
    return jnp.stack([numbers, numbers >> 31], axis=-1)


def _narrow(pairs: jax.Array, dtype: Any) -> jax.Array:
    return jax.lax.bitcast_convert_type(pairs, dtype) if dtype == np.int64 else pairs[..., 0]


def _pairs(shape: tuple[int, ...]) -> Shaped:
    return Shaped((*shape, 2), np.int32)


def _vector(numbers: tuple[int, ...]) -> np.ndarray:
    return np.array(numbers, np.int64)


def _call_fill(box: _Box, indices: jax.Array, values: jax.Array, *others: jax.Array) -> Any:
    """The others are the default and, on a CPU, how many entries there are."""
    return call(
        "raggrad_fill_empty_rows",
        (
            _pairs((box.room, indices.shape[1])),
            Shaped((box.room,), values.dtype),
            Shaped((box.shape[0],), np.bool_),
            _pairs(values.shape),
            REPORT,
        ),
        _wide(indices),
        values,
        *others,
        settings=Settings(box.function),
        attributes={"shape": _vector(box.shape)},
    )


def _fill(indices: jax.Array, values: jax.Array, default: jax.Array, count: Any, box: _Box) -> tuple[jax.Array, ...]:
    def on_cpu(*arrays: jax.Array) -> Any:
        *results, report = _call_fill(box, *arrays)
        return *results, count_of(report)

    def on_cuda(indices: jax.Array, values: jax.Array, default: jax.Array, *count: jax.Array) -> Any:
        if count:
            return _fill_with_padding(indices, values, default, count[0], box)
        new_indices, new_values, empty_rows, places, report = _call_fill(box, indices, values, default)
        found = count_of(report)
        return new_indices, poisoned(new_values, report, found), empty_rows, places, found

    arrays = operands(indices, values, default, count)
    new_indices, *others = on_platform(on_cpu, on_cuda, *arrays)
    return _narrow(new_indices, indices.dtype), *others


def _fill_with_padding(
    indices: jax.Array, values: jax.Array, default: jax.Array, count: jax.Array, box: _Box
) -> tuple[jax.Array, ...]:
    """For GPUs, where handlers cannot read `count`. Padding goes to a row behind all others, which is cut off."""
    rows, n = box.shape[0], values.shape[0]
    known = jnp.arange(n, dtype=np.int32) < count
    padding = jnp.array([[rows] + [0] * (indices.shape[1] - 1)], indices.dtype)
    larger = box._replace(shape=(rows + 1, *box.shape[1:]), room=box.room + n + 1)
    moved = jnp.where(known[:, None], indices, padding)
    new_indices, new_values, empty_rows, places, report = _call_fill(larger, moved, values, default)
    found = count_of(report) - jnp.maximum(n - count, 1)  # without padding that row gets a default
    kept = jnp.arange(box.room, dtype=np.int32) < found
    return (
        jnp.where(kept[:, None, None], new_indices[: box.room], _wide(padding)),
        poisoned(jnp.where(kept, new_values[: box.room], jnp.zeros_like(new_values[: box.room])), report, found),
        empty_rows[:rows],
        jnp.where(known[:, None], places, jnp.array([[box.room, 0]], np.int32)),
        found,
    )


def _fill_backward(box: _Box, saved: Any, cotangents: Any) -> tuple[Any, ...]:
    places, found = saved
    # Padding depends on nothing. One more place, behind all others, is that of padding among the entries.
    kept = jnp.arange(box.room + 1, dtype=np.int32) < found
    return None, *_taken(places, jnp.where(kept, jnp.pad(cotangents[1], (0, 1)), 0), box), None


def _fill_forward(indices: jax.Array, values: jax.Array, default: jax.Array, count: Any, box: _Box) -> Any:
    filled = _filled(indices, values, default, count, box)
    return filled, filled[3:]


def _take(places: jax.Array, grad: jax.Array, box: _Box) -> tuple[jax.Array, ...]:
    """The gradient of the entries, from their places, and the sum of all others, which is that of the default."""
    results = (Shaped(places.shape[:1], grad.dtype), Shaped((), grad.dtype))
    settings = Settings(box.function, accumulation=box.accumulation)
    return tuple(call("raggrad_fill_empty_rows_grad", results, places, grad, settings=settings))


def _take_backward(box: _Box, places: jax.Array, cotangents: Any) -> tuple[Any, ...]:
    of_entries, of_default = cotangents
    return None, jnp.full(box.room + 1, of_default).at[_narrow(places, np.int32)].set(of_entries, unique_indices=True)


def _slice(indices: jax.Array, values: jax.Array, box: _Box) -> tuple[jax.Array, ...]:
    def on_cpu(indices: jax.Array, values: jax.Array) -> Any:
        return call(
            "raggrad_slice",
            (_pairs((box.room, indices.shape[1])), Shaped((box.room,), values.dtype), REPORT),
            _wide(indices),
            values,
            settings=Settings(box.function),
            attributes={"shape": _vector(box.shape), "start": _vector(box.start), "size": _vector(box.size)},
        )

    def on_cuda(*arrays: jax.Array) -> Any:
        new_indices, new_values, report = on_cpu(*arrays)
        return new_indices, poisoned(new_values, report, count_of(report)), report

    new_indices, new_values, report = on_platform(on_cpu, on_cuda, indices, values)
    return _narrow(new_indices, indices.dtype), new_values, count_of(report)


def _slice_backward(box: _Box, indices: jax.Array, cotangents: Any) -> tuple[Any, ...]:
    """Entry i of the input is the n-th of the slice, n being how many entries before it are kept."""
    start, size = (jnp.array([numbers], indices.dtype) for numbers in (box.start, box.size))
    kept = jnp.all((indices >= start) & (indices - start < size), axis=1)
    return None, jnp.where(kept, cotangents[1].at[jnp.cumsum(kept) - 1].get(mode="fill", fill_value=0), 0)


_filled = differentiable(_fill, 4, _fill_forward, _fill_backward)
_taken = differentiable(_take, 2, lambda places, grad, box: (_taken(places, grad, box), places), _take_backward)
_sliced = differentiable(
    _slice, 2, lambda indices, values, box: (_sliced(indices, values, box), indices), _slice_backward
)
