"""Lookups with a weight for each id, and their gradients.

In host memory they take one pass over the rows, in the order of TensorFlow's segment_sum, and memory for the ids. On a
GPU, and for a gradient that is not of the table's type, they use the functions of the arrays' framework: products in
memory, summed in the order of SparseSegmentSum. half and bfloat16 are computed in float32 and rounded once.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from .. import _arrays, _core, raw_ops
from .._namespaces import Namespace
from ..errors import InvalidArgumentError
from ..indexed_slices import IndexedSlices
from ..settings import current_accumulation
from . import pooling
from .lookup_inputs import Given, Ids, check


def _weights_for(rows: Any, ids: Ids) -> tuple[Any, str]:
    """The weights as operators take them: in the type of the rows or in float32."""
    kept = ids.xp.dtype(ids.weights) in (ids.xp.dtype(rows), "float32")
    return ids.weights if kept else ids.xp.astype(ids.weights, "float32"), "weights"


def look_up(op: str, params: Given, table: Any, ids: Ids, combiner: str) -> Any:
    """The pooled rows, as an array of the kind of the table."""
    if _arrays.is_on_device(table):
        return ids.xp.astype(_look_up_in_steps(op, table, ids, combiner).pooled, ids.xp.dtype(table))
    try:
        weights = _weights_for(table, ids)
        return _core.segment(
            op,
            params.name,
            combiner,
            table,
            ids.ids,
            ids.examples,
            ids.num_examples,
            current_accumulation.get(),
            weights,
        )
    except InvalidArgumentError:
        check(op, ids, len(table))
        raise


def grad(op: str, upstream: Any, table: Any, like: Any, ids: Ids, combiner: str) -> tuple[IndexedSlices, Any]:
    """Gradients with respect to table and weights, as arrays of the kind of `like`."""
    xp = ids.xp
    check(op, ids, len(table))
    if _arrays.is_on_device(table) or xp.dtype(upstream) != xp.dtype(table):
        return _grad_in_steps(op, upstream, table, like, ids, combiner)
    weights = _weights_for(table, ids)
    slices = pooling.pool_grad(op, combiner, upstream, pooling.Ids(ids.ids, ids.examples, None, weights), len(table))
    d_weights = _core.segment_weights_grad(
        op, combiner, upstream, table, ids.ids, ids.examples, current_accumulation.get(), weights
    )
    values, rows = (_arrays.in_kind_of(array, like) for array in (slices.values, slices.indices))
    return (
        IndexedSlices(values, rows, slices.dense_shape),
        _arrays.in_kind_of(xp.astype(d_weights, xp.dtype(ids.weights)), like),
    )


def _wide(array: Any, xp: Namespace) -> Any:
    return array if xp.dtype(array) == "float64" else xp.astype(array, "float32")


def _column(vector: Any, like: Any) -> Any:
    return vector.reshape(-1, *(1 for _ in like.shape[1:]))


def _over_columns(rows: Any) -> Any:
    return rows.reshape(len(rows), math.prod(rows.shape[1:])).sum(axis=1)


def _divide(sums: Any, divisor: Any | None, xp: Namespace) -> Any:
    """Divides row by row. 0 where the divisor is 0, as tf.math.divide_no_nan does."""
    if divisor is None:
        return sums
    divisor = _column(divisor, sums)
    zero = divisor == 0
    return xp.where(zero, xp.scalar(0, sums), xp.divided(sums, xp.where(zero, xp.scalar(1, divisor), divisor)))


def _segment_sum(rows: Any, ids: Ids) -> Any:
    return raw_ops.SparseSegmentSumWithNumSegments(
        data=rows,
        indices=ids.xp.arange(len(rows)),
        segment_ids=ids.examples,
        num_segments=ids.num_examples,
    )


class WeightedLookup(NamedTuple):
    """The result of a lookup with weights, and what its gradient needs."""

    rows: Any  # of the table, one for each id
    weights: Any
    divisor: Any | None  # of the weighted sums; None if they are not divided
    pooled: Any


@np.errstate(all="ignore")  # infinities and NaN are results like others
def _look_up_in_steps(op: str, table: Any, ids: Ids, combiner: str) -> WeightedLookup:
    check(op, ids, len(table))
    xp = ids.xp
    rows = _wide(table[ids.ids], xp)
    weights = xp.astype(_wide(ids.weights, xp), xp.dtype(rows))
    sums = _segment_sum(rows * _column(weights, rows), ids)
    divisor = None
    if combiner == "mean":
        divisor = _segment_sum(weights, ids)
    elif combiner == "sqrtn":
        divisor = xp.sqrt(_segment_sum(weights * weights, ids))
    return WeightedLookup(rows, weights, divisor, _divide(sums, divisor, xp))


def _divisor_grad(upstream: Any, of: WeightedLookup, ids: Ids, combiner: str) -> Any:
    """The part of the weights' gradient that comes through the divisor."""
    through = _over_columns(upstream * _divide(-of.pooled, of.divisor, ids.xp))
    if combiner == "mean":
        return through[ids.examples]
    # 0 / 0 counts as 0 here as well
    through = ids.xp.where(through == 0, through, through / (of.divisor + of.divisor))
    return through[ids.examples] * (of.weights + of.weights)


@np.errstate(all="ignore")
def _grad_in_steps(op: str, upstream: Any, table: Any, like: Any, ids: Ids, combiner: str) -> tuple[IndexedSlices, Any]:
    xp = ids.xp
    of = _look_up_in_steps(op, table, ids, combiner)
    upstream = xp.astype(_wide(upstream, xp), xp.dtype(of.rows))
    row_grad = _divide(upstream, of.divisor, xp)[ids.examples]
    d_rows = xp.astype(row_grad * _column(of.weights, row_grad), xp.dtype(table))
    d_weights = _over_columns(row_grad * of.rows)
    if of.divisor is not None:
        d_weights = d_weights + _divisor_grad(upstream, of, ids, combiner)
    values, rows = _core.coalesce(d_rows, ids.ids, len(table), current_accumulation.get())
    return (
        IndexedSlices(_arrays.in_kind_of(values, like), _arrays.in_kind_of(rows, like), tuple(table.shape)),
        _arrays.in_kind_of(xp.astype(d_weights, xp.dtype(ids.weights)), like),
    )
