"""Lookups with a weight for each id, in NumPy, and their gradients.

Each row is multiplied by its weight (rounded) and the products are summed in the order of SparseSegmentSum. half and
bfloat16 are computed in float32 and rounded once.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .. import _core, raw_ops
from ..indexed_slices import IndexedSlices
from .lookup_inputs import Ids, check


def _wide(array: np.ndarray) -> np.ndarray:
    return array if array.dtype == np.float64 else array.astype(np.float32, copy=False)


def _column(vector: np.ndarray, like: np.ndarray) -> np.ndarray:
    return vector.reshape(-1, *(1 for _ in like.shape[1:]))


def _over_columns(rows: np.ndarray) -> np.ndarray:
    return rows.reshape(len(rows), -1).sum(axis=1)


def _divide(sums: np.ndarray, divisor: np.ndarray | None) -> np.ndarray:
    """Divides row by row. 0 where the divisor is 0, as tf.math.divide_no_nan does."""
    if divisor is None:
        return sums
    divisor = _column(divisor, sums)
    zero = divisor == 0
    return np.where(zero, sums.dtype.type(0), sums / np.where(zero, divisor.dtype.type(1), divisor))


def _segment_sum(rows: np.ndarray, ids: Ids) -> np.ndarray:
    return raw_ops.SparseSegmentSumWithNumSegments(
        data=rows,
        indices=np.arange(len(rows), dtype=np.int64),
        segment_ids=ids.examples,
        num_segments=ids.num_examples,
    )


class WeightedLookup(NamedTuple):
    """The result of a lookup with weights, and what its gradient needs."""

    rows: np.ndarray  # of the table, one for each id
    weights: np.ndarray
    divisor: np.ndarray | None  # of the weighted sums; None if they are not divided
    pooled: np.ndarray


@np.errstate(all="ignore")  # infinities and NaN are results like others
def look_up(op: str, table: np.ndarray, ids: Ids, combiner: str) -> WeightedLookup:
    check(op, ids, len(table))
    rows = _wide(table[ids.ids])
    weights = _wide(ids.weights).astype(rows.dtype, copy=False)
    sums = _segment_sum(rows * _column(weights, rows), ids)
    divisor = None
    if combiner == "mean":
        divisor = _segment_sum(weights, ids)
    elif combiner == "sqrtn":
        divisor = np.sqrt(_segment_sum(weights * weights, ids))
    return WeightedLookup(rows, weights, divisor, _divide(sums, divisor))


def _divisor_grad(upstream: np.ndarray, of: WeightedLookup, ids: Ids, combiner: str) -> np.ndarray:
    """The part of the weights' gradient that comes through the divisor."""
    through = _over_columns(upstream * _divide(-of.pooled, of.divisor))
    if combiner == "mean":
        return through[ids.examples]
    through = np.where(through == 0, through, through / (of.divisor + of.divisor))  # 0 / 0 counts as 0 here as well
    return through[ids.examples] * (of.weights + of.weights)


@np.errstate(all="ignore")
def grad(
    op: str, upstream: np.ndarray, table: np.ndarray, like: Any, ids: Ids, combiner: str
) -> tuple[IndexedSlices, Any]:
    """Gradients with respect to table and weights, as arrays of the kind of `like`."""
    of = look_up(op, table, ids, combiner)
    upstream = _wide(upstream).astype(of.rows.dtype, copy=False)
    row_grad = _divide(upstream, of.divisor)[ids.examples]
    d_rows = (row_grad * _column(of.weights, row_grad)).astype(table.dtype, copy=False)
    d_weights = _over_columns(row_grad * of.rows)
    if of.divisor is not None:
        d_weights = d_weights + _divisor_grad(upstream, of, ids, combiner)
    values, rows = _core.coalesce(d_rows, ids.ids, len(table))
    return (
        IndexedSlices(_core.in_kind_of(values, like), _core.in_kind_of(rows, like), table.shape),
        _core.in_kind_of(d_weights.astype(ids.weights.dtype, copy=False), like),
    )
