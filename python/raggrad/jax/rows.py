"""Rows: a gradient that has only some rows of a table, with a size that is known when a function is traced."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from . import _on_cuda
from ._calls import (
    REPORT,
    Settings,
    Shaped,
    call,
    check_word,
    count_of,
    differentiable,
    exportable,
    fail,
    ids_of,
    mode_of,
    on_platform,
    operands,
    rows_of,
    size_of,
)
from ._varying import alike
from .bags import bag, bag_weights_grad, like, weights_of


@exportable
@partial(jax.tree_util.register_dataclass, data_fields=("values", "ids", "count"), meta_fields=())
@dataclass(frozen=True)
class Rows:
    """Some rows of an array of `num_rows` rows: the first `count` ones; all behind them are padding.

    values: [size, ...]; padding is zero.
    ids: [size]: which rows they are, ascending, each once; padding has the id num_rows, so that
      `table.at[rows.ids].add(rows.values, mode="drop")` leaves it out.
    count: [], int32.
    """

    values: jax.Array
    ids: jax.Array
    count: jax.Array

    @property
    def size(self) -> int:
        """How many rows there is room for."""
        return self.ids.shape[-1]


def sparse_segment_grad(
    mode: str,
    grad: Any,
    ids: Any,
    segment_ids: Any,
    num_rows: int,
    *,
    size: int | None = None,
    weights: Any = None,
    accumulation: str | None = None,
) -> Rows:
    """The gradient of embedding_bag in a table of `num_rows` rows, as the rows that it has.

    Arguments are those of embedding_bag; `grad` is the gradient of its result. `size` is the room for rows, by default
    min(len(ids), num_rows), which is always enough. Less memory is touched if it is smaller. More rows than that are an
    error on a CPU. On a GPU they are an error if the function is not traced; in a compiled function all values are NaN
    and `count` is larger than `size`, because nothing can be raised there. The same holds for ids out of range.

    Differentiable in `grad` and `weights`. Nothing has the size of the table. Takes up to 24 bytes per id besides the
    result, on a GPU with weights 40. The same bits on every run and with any number of threads.

    >>> import jax.numpy as jnp, raggrad.jax as rj
    >>> rows = rj.sparse_segment_grad("sum", jnp.array([[1.0], [2.0]]), jnp.array([7, 3, 7]), jnp.array([0, 0, 1]), 9)
    >>> rows.ids.tolist(), rows.values.tolist(), int(rows.count)
    ([3, 7, 9], [[1.0], [3.0], [0.0]], 2)
    """
    name = "sparse_segment_grad"
    check_word(name, "mode", mode)
    rows = rows_of(name, "grad", grad)
    indices = ids_of(name, "ids", ids)
    segments = ids_of(name, "segment_ids", segment_ids, indices.shape[0])
    num_rows = size_of(name, "num_rows", num_rows)
    room = jax.core.min_dim(indices.shape[0], num_rows) if size is None else size_of(name, "size", size)
    settings = Settings(
        name,
        mode,
        num_segments=rows.shape[0],
        num_rows=num_rows,
        size=room,
        accumulation=mode_of(name, accumulation),
    )
    found = _grad_rows(*alike(rows, indices, segments, weights_of(name, weights, rows, indices)), settings)
    if not isinstance(found.count, jax.core.Tracer) and _is_on_gpu(found.count) and int(found.count) > room:
        fail(name, f"size: expected at least {int(found.count)}, the rows that there are, got {room}", RuntimeError)
    return found


def _is_on_gpu(array: jax.Array) -> bool:
    return any(device.platform == "gpu" for device in array.devices())


def _find_rows(grad: jax.Array, ids: jax.Array, segment_ids: jax.Array, weights: Any, s: Settings) -> Rows:
    def on_cpu(*arrays: jax.Array) -> Any:
        values, unique, report = call(
            "raggrad_bag_grad_rows",
            (Shaped((s.size, *grad.shape[1:]), grad.dtype), Shaped((s.size,), ids.dtype), REPORT),
            *arrays,
            settings=s,
            attributes={"combiner": s.combiner, "num_rows": np.int64(s.num_rows)},
        )
        return values, unique, count_of(report)

    def on_cuda(grad: jax.Array, ids: jax.Array, segment_ids: jax.Array, *weights: jax.Array) -> Any:
        return _on_cuda.bag_grad_rows(grad, ids, segment_ids, weights[0] if weights else None, s)

    return Rows(*on_platform(on_cpu, on_cuda, *operands(grad, ids, segment_ids, weights)))


def _find_rows_forward(grad: jax.Array, ids: jax.Array, segment_ids: jax.Array, weights: Any, s: Settings) -> Any:
    rows = _grad_rows(grad, ids, segment_ids, weights, s)
    return rows, (grad, ids, segment_ids, weights, rows.ids)


def _find_rows_backward(s: Settings, saved: Any, cotangents: Rows) -> tuple[Any, ...]:
    """As that of embedding_bag's gradient, with the rows as the table."""
    grad, ids, segment_ids, weights, found = saved
    table, places = cotangents.values, jnp.searchsorted(found, ids).astype(np.int32)
    settings = s._replace(num_rows=s.size)
    d_grad = bag(table, places, segment_ids, weights, settings)
    d_weights = None if weights is None else bag_weights_grad(grad, table, places, segment_ids, settings)
    return d_grad, None, None, like(d_weights, weights)


_grad_rows = differentiable(_find_rows, 4, _find_rows_forward, _find_rows_backward)
