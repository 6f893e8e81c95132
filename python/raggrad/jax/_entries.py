"""Handlers of sparse arrays' entries, and their derivatives."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from . import _scratch
from ._calls import (
    REPORT,
    Settings,
    Shaped,
    call,
    call_in_command_buffers,
    count_of,
    differentiable,
    on_platform,
    operands,
    poisoned,
)


class Box(NamedTuple):
    """The operands of a call that are no arrays."""

    function: str
    shape: tuple[int, ...]
    start: tuple[int, ...]
    size: tuple[int, ...]
    room: int
    accumulation: str | None = None


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


def _call_fill(call_handler: Callable[..., Any], box: Box, indices: jax.Array, *others: jax.Array) -> Any:
    """The others are the values, the default and, on a CPU, how many entries there are."""
    return call_handler(
        "raggrad_fill_empty_rows",
        (
            _pairs((box.room, indices.shape[1])),
            Shaped((box.room,), others[0].dtype),
            Shaped((box.shape[0],), np.bool_),
            _pairs(indices.shape[:1]),
            REPORT,
        ),
        _wide(indices),
        *others,
        settings=Settings(box.function),
        attributes={"shape": _vector(box.shape)},
    )


def _fill_on_cuda(box: Box, indices: jax.Array, *others: jax.Array) -> Any:
    scratch = _scratch.filled_entries(indices.shape[0], box.shape[0])
    return _call_fill(partial(call_in_command_buffers, scratch=scratch), box, indices, *others)


def fill(indices: jax.Array, values: jax.Array, default: jax.Array, count: Any, box: Box) -> tuple[jax.Array, ...]:
    def on_cpu(*arrays: jax.Array) -> Any:
        *results, report = _call_fill(call, box, *arrays)
        return *results, count_of(report)

    def on_cuda(indices: jax.Array, values: jax.Array, default: jax.Array, *count: jax.Array) -> Any:
        if count:
            return fill_with_padding(indices, values, default, count[0], box)
        new_indices, new_values, empty_rows, places, report = _fill_on_cuda(box, indices, values, default)
        found = count_of(report)
        return new_indices, poisoned(new_values, report, found), empty_rows, places, found

    arrays = operands(indices, values, default, count)
    new_indices, *others = on_platform(on_cpu, on_cuda, *arrays)
    return _narrow(new_indices, indices.dtype), *others


def fill_with_padding(
    indices: jax.Array, values: jax.Array, default: jax.Array, count: jax.Array, box: Box
) -> tuple[jax.Array, ...]:
    """For GPUs, where handlers cannot read `count`. Padding goes to a row behind all others, which is cut off."""
    rows, n = box.shape[0], values.shape[0]
    known = jnp.arange(n, dtype=np.int32) < count
    padding = jnp.array([[rows] + [0] * (indices.shape[1] - 1)], indices.dtype)
    larger = box._replace(shape=(rows + 1, *box.shape[1:]), room=box.room + n + 1)
    moved = jnp.where(known[:, None], indices, padding)
    new_indices, new_values, empty_rows, places, report = _fill_on_cuda(larger, moved, values, default)
    found = count_of(report) - jnp.maximum(n - count, 1)  # without padding that row gets a default
    kept = jnp.arange(box.room, dtype=np.int32) < found
    return (
        jnp.where(kept[:, None, None], new_indices[: box.room], _wide(padding)),
        poisoned(jnp.where(kept, new_values[: box.room], jnp.zeros_like(new_values[: box.room])), report, found),
        empty_rows[:rows],
        jnp.where(known[:, None], places, jnp.array([[box.room, 0]], np.int32)),
        found,
    )


def _fill_backward(box: Box, saved: Any, cotangents: Any) -> tuple[Any, ...]:
    places, found = saved
    # Padding depends on nothing. One more place, behind all others, is that of padding among the entries.
    kept = jnp.arange(box.room + 1, dtype=np.int32) < found
    return None, *_taken(places, jnp.where(kept, jnp.pad(cotangents[1], (0, 1)), 0), box), None


def _fill_forward(indices: jax.Array, values: jax.Array, default: jax.Array, count: Any, box: Box) -> Any:
    results = filled(indices, values, default, count, box)
    return results, results[3:]


def _take(places: jax.Array, grad: jax.Array, box: Box) -> tuple[jax.Array, ...]:
    """The gradient of the entries, from their places, and the sum of all others, which is that of the default."""
    results = (Shaped(places.shape[:1], grad.dtype), Shaped((), grad.dtype))
    settings = Settings(box.function, accumulation=box.accumulation)
    return tuple(call("raggrad_fill_empty_rows_grad", results, places, grad, settings=settings))


def _take_backward(box: Box, places: jax.Array, cotangents: Any) -> tuple[Any, ...]:
    of_entries, of_default = cotangents
    return None, jnp.full(box.room + 1, of_default).at[_narrow(places, np.int32)].set(of_entries, unique_indices=True)


def _slice(indices: jax.Array, values: jax.Array, box: Box) -> tuple[jax.Array, ...]:
    def with_handler(call_handler: Callable[..., Any], indices: jax.Array, values: jax.Array) -> Any:
        return call_handler(
            "raggrad_slice",
            (_pairs((box.room, indices.shape[1])), Shaped((box.room,), values.dtype), REPORT),
            _wide(indices),
            values,
            settings=Settings(box.function),
            attributes={"shape": _vector(box.shape), "start": _vector(box.start), "size": _vector(box.size)},
        )

    def on_cuda(indices: jax.Array, values: jax.Array) -> Any:
        scratch = _scratch.sliced_entries(indices.shape[0])
        call_handler = partial(call_in_command_buffers, scratch=scratch)
        new_indices, new_values, report = with_handler(call_handler, indices, values)
        return new_indices, poisoned(new_values, report, count_of(report)), report

    new_indices, new_values, report = on_platform(partial(with_handler, call), on_cuda, indices, values)
    return _narrow(new_indices, indices.dtype), new_values, count_of(report)


def _slice_backward(box: Box, indices: jax.Array, cotangents: Any) -> tuple[Any, ...]:
    """Entry i of the input is the n-th of the slice, n being how many entries before it are kept."""
    start, size = (jnp.array([numbers], indices.dtype) for numbers in (box.start, box.size))
    kept = jnp.all((indices >= start) & (indices - start < size), axis=1)
    return None, jnp.where(kept, cotangents[1].at[jnp.cumsum(kept) - 1].get(mode="fill", fill_value=0), 0)


filled = differentiable(fill, 4, _fill_forward, _fill_backward)
_taken = differentiable(_take, 2, lambda places, grad, box: (_taken(places, grad, box), places), _take_backward)
sliced = differentiable(
    _slice, 2, lambda indices, values, box: (sliced(indices, values, box), indices), _slice_backward
)
