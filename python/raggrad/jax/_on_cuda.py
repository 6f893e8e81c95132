"""XLA's part before and after a handler for GPUs of gradients: it takes ids out of range aside.

Such ids go to one more segment, behind the others, whose row is thrown away, or whose gradient is zero.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from . import _scratch
from ._calls import REPORT, Settings, Shaped, call, call_in_command_buffers, count_of, operands


def _segments(segment_ids: jax.Array, s: Settings) -> jax.Array:
    """The segments, int32; the one behind all others for ids out of range."""
    in_range = (segment_ids >= 0) & (segment_ids < s.num_segments)
    return jnp.where(in_range, segment_ids, s.num_segments).astype(np.int32)


def _order(segments: jax.Array) -> jax.Array:
    """Positions, ordered by segment."""
    return jnp.argsort(segments, stable=True).astype(np.int32)


def _with_zero_row(grad: jax.Array) -> jax.Array:
    return jnp.concatenate([grad, jnp.zeros((1, *grad.shape[1:]), grad.dtype)])


def _kept(factors: Any, segments: jax.Array, s: Settings) -> Any:
    """The factors of ids, zero for those that are dropped: NaN and infinity times a row of zeros would be NaN."""
    return None if factors is None else jnp.where(segments < s.num_segments, factors, 0)


def _sum_type(dtype: Any) -> Any:
    return np.float64 if dtype == np.float64 else np.float32


def _call(name: str, results: Any, *arrays: jax.Array | None, s: Settings) -> Any:
    return call(name, results, *operands(*arrays), settings=s, attributes={"combiner": s.combiner})


def spread(grad: jax.Array, segment_ids: jax.Array, s: Settings) -> jax.Array:
    """The gradient of pool(): that of each row's segment, scaled; zero where the id is out of range."""
    segments = _segments(segment_ids, s)
    rows = _with_zero_row(grad)[segments]
    if s.combiner == "sum":
        return rows
    counts = jnp.zeros(s.num_segments + 1, np.int32).at[segments].add(1)
    counts = jnp.maximum(counts, 1).astype(_sum_type(grad.dtype))
    scales = (1 / (counts if s.combiner == "mean" else jnp.sqrt(counts)))[segments]
    scaled = rows.astype(scales.dtype) * scales.reshape(scales.shape + (1,) * (rows.ndim - 1))
    return scaled.astype(grad.dtype)


def bag_grad(grad: jax.Array, ids: jax.Array, segment_ids: jax.Array, weights: Any, s: Settings) -> jax.Array:
    segments = _segments(segment_ids, s)
    # The others add zeros to row 0. Reproducible sums count their terms, so that they need a row that is cut off, which
    # copies the gradient.
    own_row = int(s.accumulation == "reproducible")
    known = jnp.where(segments < s.num_segments, ids, jnp.array(own_row * s.num_rows, ids.dtype))
    out = Shaped((s.num_rows + own_row, *grad.shape[1:]), grad.dtype)
    factors = _kept(weights, segments, s)
    sums = _call("raggrad_bag_grad", out, _with_zero_row(grad), known, segments, factors, s=s)
    return sums[: s.num_rows]


def bag_weights_grad(
    grad: jax.Array, table: jax.Array, ids: jax.Array, segment_ids: jax.Array, s: Settings
) -> jax.Array:
    segments = _segments(segment_ids, s)
    order = _order(segments)
    segments = segments[order]
    known = jnp.where(segments < s.num_segments, ids[order], 0)
    weights = jnp.zeros(ids.shape, table.dtype)
    out = Shaped(ids.shape, table.dtype)
    ordered = _call("raggrad_bag_weights_grad", out, _with_zero_row(grad), table, known, segments, weights, s=s)
    return jnp.zeros_like(ordered).at[order].set(_kept(ordered, segments, s), unique_indices=True)


def bag_grad_rows(grad: jax.Array, ids: jax.Array, segment_ids: jax.Array, weights: Any, s: Settings) -> Any:
    """Values, ids and their number. The handler drops ids by itself, and writes NaN after a fault."""
    results = (Shaped((s.size, *grad.shape[1:]), grad.dtype), Shaped((s.size,), ids.dtype), REPORT)
    values, unique, report = call_in_command_buffers(
        "raggrad_bag_grad_rows",
        results,
        *operands(grad, ids, segment_ids, weights),
        scratch=_scratch.gradient_rows(grad, ids.shape[0], weights is not None, s.accumulation),
        settings=s,
        attributes={"combiner": s.combiner, "num_rows": np.int64(s.num_rows)},
    )
    return values, unique, count_of(report)
