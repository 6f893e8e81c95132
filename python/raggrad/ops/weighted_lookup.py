"""Lookups with a weight for each id, and their gradients, by the functions of the arrays' framework.

Each row is multiplied by its weight (rounded) and the products are summed in the order of SparseSegmentSum. half and
bfloat16 are computed in float32 and rounded once.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from .. import _arrays, _core, raw_ops
from .._namespaces import Namespace
from ..indexed_slices import IndexedSlices, order_of_sums
from .lookup_inputs import Ids, check


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
def look_up(op: str, table: Any, ids: Ids, combiner: str) -> WeightedLookup:
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
def grad(op: str, upstream: Any, table: Any, like: Any, ids: Ids, combiner: str) -> tuple[IndexedSlices, Any]:
    """Gradients with respect to table and weights, as arrays of the kind of `like`."""
    xp = ids.xp
    of = look_up(op, table, ids, combiner)
    upstream = xp.astype(_wide(upstream, xp), xp.dtype(of.rows))
    row_grad = _divide(upstream, of.divisor, xp)[ids.examples]
    d_rows = xp.astype(row_grad * _column(of.weights, row_grad), xp.dtype(table))
    d_weights = _over_columns(row_grad * of.rows)
    if of.divisor is not None:
        d_weights = d_weights + _divisor_grad(upstream, of, ids, combiner)
    values, rows = _core.coalesce(d_rows, ids.ids, len(table), order_of_sums(d_rows))
    return (
        IndexedSlices(_arrays.in_kind_of(values, like), _arrays.in_kind_of(rows, like), tuple(table.shape)),
        _arrays.in_kind_of(xp.astype(d_weights, xp.dtype(ids.weights)), like),
    )
