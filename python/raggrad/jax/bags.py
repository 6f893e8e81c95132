"""Rows of a table, pooled by segment: embedding_bag. Its gradient is dense here; rows.py has the sparse one."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from . import _on_cuda
from ._calls import (
    Settings,
    Shaped,
    call,
    check_word,
    differentiable,
    dimension_of,
    fail,
    ids_of,
    mode_of,
    on_platform,
    operands,
    real_of,
    rows_of,
)
from ._varying import alike


def embedding_bag(
    table: Any,
    ids: Any,
    segment_ids: Any,
    num_segments: int,
    *,
    mode: str = "mean",
    weights: Any = None,
    accumulation: str | None = None,
) -> jax.Array:
    """Row s is the mean of table[ids[i]] over all i with segment_ids[i] == s, or their sum, or sum / sqrt(number).

    Segment ids come in any order. An id whose segment id is out of range, negative too, is dropped: it may be anything,
    so batches are padded with segment id `num_segments` or -1. Any other id out of range is an error. A segment without
    ids is zero. Differentiable in `table`, with a dense gradient, and in `weights`, any number of times; there is no
    forward-mode derivative.

    `mode` is "sum", "mean" or "sqrtn". `weights`, one for every id, multiply the rows; "mean" and "sqrtn" divide by the
    number of ids all the same. `accumulation` is that of segment_sum.

    Rows are read where they lie. On a CPU it takes nothing besides if the segment ids are in order, else up to 28 bytes
    per id; on a GPU 16, with weights 28; the gradient up to 24 bytes per id. The same bits on every run, with any
    number of threads and on CPU and GPU; float16 and bfloat16 are summed in float32.

    >>> import jax.numpy as jnp, raggrad.jax as rj
    >>> table = jnp.array([[1.0], [2.0], [4.0]])
    >>> rj.embedding_bag(table, jnp.array([2, 0, 1]), jnp.array([0, 0, 1]), 3).tolist()
    [[2.5], [2.0], [0.0]]
    """
    name = "embedding_bag"
    check_word(name, "mode", mode)
    rows = rows_of(name, "table", table)
    indices = ids_of(name, "ids", ids)
    segments = ids_of(name, "segment_ids", segment_ids, indices.shape[0])
    settings = Settings(
        name,
        mode,
        num_segments=dimension_of(name, "num_segments", num_segments),
        num_rows=dimension_of(name, "table's rows", rows.shape[0]),
        accumulation=mode_of(name, accumulation),
    )
    return bag(*alike(rows, indices, segments, weights_of(name, weights, rows, indices)), settings)


def weights_of(function: str, weights: Any, rows: jax.Array, ids: jax.Array) -> jax.Array | None:
    """Weights in float32 or the type of the rows."""
    if weights is None:
        return None
    array = real_of(function, "weights", weights)
    if array.shape != ids.shape:
        fail(function, f"weights: expected shape {ids.shape}, one for every id, got {array.shape}")
    return array if array.dtype in (rows.dtype, jnp.float32) else array.astype(rows.dtype)


def _bag(table: jax.Array, ids: jax.Array, segment_ids: jax.Array, weights: Any, s: Settings) -> jax.Array:
    out = Shaped((s.num_segments, *table.shape[1:]), table.dtype)
    arrays = operands(table, ids, segment_ids, weights)
    return call("raggrad_bag", out, *arrays, settings=s, attributes={"combiner": s.combiner})


def _bag_grad(grad: jax.Array, ids: jax.Array, segment_ids: jax.Array, weights: Any, s: Settings) -> jax.Array:
    arrays = operands(grad, ids, segment_ids, weights)

    def on_cpu(*arrays: jax.Array) -> jax.Array:
        out = Shaped((s.num_rows, *grad.shape[1:]), grad.dtype)
        return call("raggrad_bag_grad", out, *arrays, settings=s, attributes={"combiner": s.combiner})

    def on_cuda(grad: jax.Array, ids: jax.Array, segment_ids: jax.Array, *weights: jax.Array) -> jax.Array:
        return _on_cuda.bag_grad(grad, ids, segment_ids, weights[0] if weights else None, s)

    return on_platform(on_cpu, on_cuda, *arrays)


def _bag_weights_grad(
    grad: jax.Array, table: jax.Array, ids: jax.Array, segment_ids: jax.Array, s: Settings
) -> jax.Array:
    """In the type of the rows. It does not depend on the weights, because these are divided by numbers of ids."""

    def on_cpu(*arrays: jax.Array) -> jax.Array:
        out, any_weights = Shaped(ids.shape, table.dtype), jnp.zeros(ids.shape, table.dtype)
        attributes = {"combiner": s.combiner}
        return call("raggrad_bag_weights_grad", out, *arrays, any_weights, settings=s, attributes=attributes)

    def on_cuda(*arrays: jax.Array) -> jax.Array:
        return _on_cuda.bag_weights_grad(*arrays, s)

    return on_platform(on_cpu, on_cuda, grad, table, ids, segment_ids)


# The sum of grad * bag(table, weights) is linear in each of its three arrays, and each function below is its gradient
# in one of them. So each gradient of these is one of them again.


def _bag_backward(s: Settings, saved: Any, cotangent: jax.Array) -> tuple[Any, ...]:
    table, ids, segment_ids, weights = saved
    d_table = bag_grad(cotangent, ids, segment_ids, weights, s)
    d_weights = None if weights is None else bag_weights_grad(cotangent, table, ids, segment_ids, s)
    return d_table, None, None, like(d_weights, weights)


def _bag_grad_backward(s: Settings, saved: Any, cotangent: jax.Array) -> tuple[Any, ...]:
    grad, ids, segment_ids, weights = saved
    d_grad = bag(cotangent, ids, segment_ids, weights, s)
    d_weights = None if weights is None else bag_weights_grad(grad, cotangent, ids, segment_ids, s)
    return d_grad, None, None, like(d_weights, weights)


def _bag_weights_grad_backward(s: Settings, saved: Any, cotangent: jax.Array) -> tuple[Any, ...]:
    grad, table, ids, segment_ids = saved
    d_grad = bag(table, ids, segment_ids, cotangent, s)
    d_table = bag_grad(grad, ids, segment_ids, cotangent, s)
    return d_grad, d_table, None, None


def like(gradient: jax.Array | None, weights: jax.Array | None) -> jax.Array | None:
    return None if gradient is None or weights is None else gradient.astype(weights.dtype)


bag = differentiable(_bag, 4, lambda *arguments: (bag(*arguments), arguments[:4]), _bag_backward)
bag_grad = differentiable(_bag_grad, 4, lambda *arguments: (bag_grad(*arguments), arguments[:4]), _bag_grad_backward)
bag_weights_grad = differentiable(
    _bag_weights_grad,
    4,
    lambda *arguments: (bag_weights_grad(*arguments), arguments[:4]),
    _bag_weights_grad_backward,
)
