"""Sums, means and sums over square roots of rows, by segment."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from . import _on_cuda, _scratch
from ._calls import (
    FLOATS,
    INTEGERS,
    Settings,
    Shaped,
    call,
    call_in_command_buffers,
    differentiable,
    dimension_of,
    flag_of,
    ids_of,
    integers_of,
    mode_of,
    on_platform,
    rows_of,
)
from ._varying import alike


def segment_sum(
    data: Any,
    segment_ids: Any,
    num_segments: int | None = None,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    *,
    accumulation: str | None = None,
) -> jax.Array:
    """Row s is the sum of data[i] over all i with segment_ids[i] == s: jax.ops.segment_sum, with the same arguments.

    Ids come in any order; those out of range, negative ones too, are dropped. `num_segments` is the number of rows, by
    default the largest id plus one, which has to be known when the function is traced. `indices_are_sorted` is a
    promise that saves a sort on a GPU, where rows get into other sums if it is not kept; a CPU finds it out.
    `unique_indices` changes nothing. `accumulation` is "sequential", "fast" or "reproducible" (raggrad.accumulation); a
    compiled function keeps the one that it was traced with.

    Rows of a segment are added in the order they have in `data`; float16 and bfloat16 in float32, rounded once. The
    same bits on every run, with any number of threads and on CPU and GPU. Rows are read where they lie. It takes 4
    bytes per id on a CPU, 24 if they are not in order; on a GPU 20, or none after the promise, and 8 per segment.
    Complex numbers, float8 and int4 go to jax.ops.segment_sum.

    >>> import jax.numpy as jnp, raggrad.jax as rj
    >>> rj.segment_sum(jnp.array([[1.0], [2.0], [4.0]]), jnp.array([1, 0, 1])).tolist()
    [[2.0], [5.0]]
    """
    name = "segment_sum"
    rows = rows_of(name, "data", data, ())
    if jnp.issubdtype(rows.dtype, jnp.number) and rows.dtype.name not in FLOATS + INTEGERS:
        ids = ids_of(name, "segment_ids", segment_ids, rows.shape[0])
        mode_of(name, accumulation)  # checks it; JAX's sums are what they are
        count = _count_of(name, num_segments, segment_ids)
        return jax.ops.segment_sum(rows, ids, count, indices_are_sorted, unique_indices)
    return _segment(name, "sum", rows, segment_ids, num_segments, indices_are_sorted, accumulation)


def segment_mean(
    data: Any,
    segment_ids: Any,
    num_segments: int | None = None,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    *,
    accumulation: str | None = None,
) -> jax.Array:
    """Row s is the mean of data[i] over all i with segment_ids[i] == s. A segment without rows is zero.

    Arguments are those of segment_sum. Floating-point numbers only.

    >>> import jax.numpy as jnp, raggrad.jax as rj
    >>> rj.segment_mean(jnp.array([[1.0], [2.0], [4.0]]), jnp.array([1, 0, 1])).tolist()
    [[2.0], [2.5]]
    """
    return _segment("segment_mean", "mean", data, segment_ids, num_segments, indices_are_sorted, accumulation)


def segment_sqrtn(
    data: Any,
    segment_ids: Any,
    num_segments: int | None = None,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    *,
    accumulation: str | None = None,
) -> jax.Array:
    """segment_sum divided by the square root of the number of rows. A segment without rows is zero.

    Arguments are those of segment_sum. Floating-point numbers only.

    >>> import jax.numpy as jnp, raggrad.jax as rj
    >>> rj.segment_sqrtn(jnp.array([[1.0], [2.0], [3.0], [4.0]]), jnp.zeros(4, int), 1).tolist()
    [[5.0]]
    """
    return _segment("segment_sqrtn", "sqrtn", data, segment_ids, num_segments, indices_are_sorted, accumulation)


def _segment(
    function: str,
    combiner: str,
    data: Any,
    segment_ids: Any,
    num_segments: int | None,
    sorted_ids: bool,
    accumulation: str | None,
) -> jax.Array:
    rows = rows_of(function, "data", data, FLOATS + INTEGERS if combiner == "sum" else FLOATS)
    ids = ids_of(function, "segment_ids", segment_ids, rows.shape[0])
    settings = Settings(
        function,
        combiner,
        num_segments=_count_of(function, num_segments, segment_ids),
        num_rows=rows.shape[0],
        sorted_ids=flag_of(function, "indices_are_sorted", sorted_ids),
        accumulation=mode_of(function, accumulation),
    )
    return pool(*alike(rows, ids), settings)


def _count_of(function: str, num_segments: int | None, segment_ids: Any) -> int:
    count = _segments_in(function, segment_ids) if num_segments is None else num_segments
    return dimension_of(function, "num_segments", count)


def _segments_in(function: str, segment_ids: Any) -> int:
    """The largest id plus one. Ids that are known when a function is traced can be read there, too."""
    with jax.ensure_compile_time_eval():
        ids = integers_of(function, "segment_ids", segment_ids)
        if isinstance(ids, jax.core.Tracer):
            text = "num_segments: expected an int, because the ids are not known when the function is traced"
            raise jax.errors.ConcretizationTypeError(ids, f"raggrad.jax.{function}: {text}")
        return max(int(jnp.max(ids)) + 1, 0) if ids.size else 0


def _pool(data: jax.Array, segment_ids: jax.Array, s: Settings) -> jax.Array:
    name, out = "raggrad_segment", Shaped((s.num_segments, *data.shape[1:]), data.dtype)
    attributes = {"combiner": s.combiner, "ascending": np.int64(s.sorted_ids)}

    def on_cpu(*arrays: jax.Array) -> jax.Array:
        return call(name, out, *arrays, settings=s, attributes=attributes)

    def on_cuda(*arrays: jax.Array) -> jax.Array:
        scratch = _scratch.segments(data.shape[0], s.num_segments, s.sorted_ids)
        (pooled,) = call_in_command_buffers(name, (out,), *arrays, scratch=scratch, settings=s, attributes=attributes)
        return pooled

    return on_platform(on_cpu, on_cuda, data, segment_ids)


def _spread(grad: jax.Array, segment_ids: jax.Array, s: Settings) -> jax.Array:
    """The gradient of _pool, whose gradient is _pool."""

    def on_cpu(grad: jax.Array, segment_ids: jax.Array) -> jax.Array:
        out = Shaped((s.num_rows, *grad.shape[1:]), grad.dtype)
        return call("raggrad_segment_grad", out, grad, segment_ids, settings=s, attributes={"combiner": s.combiner})

    return on_platform(on_cpu, lambda grad, ids: _on_cuda.spread(grad, ids, s), grad, segment_ids)


def _pool_backward(s: Settings, segment_ids: jax.Array, cotangent: jax.Array) -> tuple[Any, None]:
    if cotangent.dtype == jax.dtypes.float0:  # the rows are integers
        return np.zeros((s.num_rows, *cotangent.shape[1:]), jax.dtypes.float0), None
    return spread(cotangent, segment_ids, s), None


def _spread_backward(s: Settings, segment_ids: jax.Array, cotangent: jax.Array) -> tuple[Any, None]:
    return pool(cotangent, segment_ids, s), None


pool = differentiable(_pool, 2, lambda data, segment_ids, s: (pool(data, segment_ids, s), segment_ids), _pool_backward)
spread = differentiable(
    _spread, 2, lambda grad, segment_ids, s: (spread(grad, segment_ids, s), segment_ids), _spread_backward
)
