"""Embedding lookups: rows of a table, pooled per example, with or without a weight for each id.

Without weights these are the segment operators, with TensorFlow's bits. With weights, each row is multiplied by its
weight (rounded) and the products are summed in the order of SparseSegmentSum; TensorFlow sums them in another order, so
the results agree to within 2 n eps sum(|w x|) for n ids of an example. half and bfloat16 are computed in float32 and
rounded once. Where the weights of an example cancel, the result and its gradients are 0, as in TensorFlow.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .. import _core, raw_ops
from .._named import named
from .._recorded import warn_if_recorded
from ..errors import InvalidArgumentError
from ..indexed_slices import IndexedSlices
from . import pooling
from .lookup_inputs import (
    Given,
    Ids,
    Shards,
    check,
    check_examples,
    check_rows,
    default_row,
    floats,
    given,
    read,
    shards_of,
    table_of,
    warn_of_weights,
)


class LookupGrad(NamedTuple):
    params: Any  # IndexedSlices; of a table in shards a list of them
    weights: Any  # like the ids; None if there were no weights


def _wide(array: np.ndarray) -> np.ndarray:
    return array if array.dtype == np.float64 else array.astype(np.float32, copy=False)


def _column(vector: np.ndarray, like: np.ndarray) -> np.ndarray:
    return vector.reshape(-1, *(1 for _ in like.shape[1:]))


def _over_columns(rows: np.ndarray) -> np.ndarray:
    return rows.reshape(len(rows), -1).sum(axis=1)


def _divide(sums: np.ndarray, divisor: np.ndarray | None) -> np.ndarray:
    """Row by row; 0 where the divisor is 0, as tf.math.divide_no_nan."""
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


class _Weighted(NamedTuple):
    """A lookup with weights, with what its gradient needs."""

    rows: np.ndarray  # that were looked up
    weights: np.ndarray
    sums: np.ndarray  # of rows times weights
    divisor: np.ndarray | None  # of the sums; None: there is none
    pooled: np.ndarray


@np.errstate(all="ignore")  # infinities and NaN are results like others
def _weighted(op: str, table: np.ndarray, ids: Ids, combiner: str) -> _Weighted:
    check(op, ids, len(table))
    rows = _wide(table[ids.ids])
    weights = _wide(ids.weights).astype(rows.dtype, copy=False)
    sums = _segment_sum(rows * _column(weights, rows), ids)
    divisor = None
    if combiner == "mean":
        divisor = _segment_sum(weights, ids)
    elif combiner == "sqrtn":
        divisor = np.sqrt(_segment_sum(weights * weights, ids))
    return _Weighted(rows, weights, sums, divisor, _divide(sums, divisor))


def _divisor_grad(upstream: np.ndarray, of: _Weighted, ids: Ids, combiner: str) -> np.ndarray:
    """The part of the weights' gradient that comes through the divisor."""
    through = _over_columns(upstream * _divide(-of.pooled, of.divisor))
    if combiner == "mean":
        return through[ids.examples]
    through = np.where(through == 0, through, through / (of.divisor + of.divisor))  # 0 / 0 counts as 0 here, too
    return through[ids.examples] * (of.weights + of.weights)


def _lookup(op: str, params: Given, ids: Ids, combiner: str) -> Any:
    table = table_of(op, params)
    if ids.weights is None:
        data = table if isinstance(params.value, (list, tuple)) else params.value
        try:
            return _core.segment(op, params.name, combiner, data, ids.ids, ids.examples, ids.num_examples)
        except InvalidArgumentError:
            check(op, ids, len(table))
            raise
    warn_if_recorded(params.value, op, params.name)
    pooled = _weighted(op, table, ids, combiner).pooled
    return _core.in_kind_of(pooled.astype(table.dtype, copy=False), params.value)


def _lookup_grad(op: str, grad: Any, params: Given, ids: Ids, combiner: str) -> LookupGrad:
    table = table_of(op, params)
    upstream = floats(op, "grad", grad)
    expected = (ids.num_examples, *table.shape[1:])
    if upstream.shape != expected:
        raise InvalidArgumentError(f"{op}: grad has the wrong shape [grad: expected {expected}, got {upstream.shape}]")
    if ids.weights is None:
        data = upstream if isinstance(grad, (list, tuple)) else grad
        try:
            slices = pooling.pool_grad(op, combiner, data, ids.ids, ids.examples, len(table), None)
        except InvalidArgumentError:
            check(op, ids, len(table))
            raise
        return LookupGrad(slices, None)
    warn_if_recorded(grad, op, "grad")
    return _weighted_grad(op, upstream, table, params.value, ids, combiner)


@np.errstate(all="ignore")
def _weighted_grad(
    op: str, upstream: np.ndarray, table: np.ndarray, like: Any, ids: Ids, combiner: str
) -> LookupGrad:
    of = _weighted(op, table, ids, combiner)
    upstream = _wide(upstream).astype(of.rows.dtype, copy=False)
    row_grad = _divide(upstream, of.divisor)[ids.examples]
    d_rows = (row_grad * _column(of.weights, row_grad)).astype(table.dtype, copy=False)
    d_weights = _over_columns(row_grad * of.rows)
    if of.divisor is not None:
        d_weights = d_weights + _divisor_grad(upstream, of, ids, combiner)
    values, rows = _core.coalesce(d_rows, ids.ids, len(table))
    return LookupGrad(
        IndexedSlices(_core.in_kind_of(values, like), _core.in_kind_of(rows, like), table.shape),
        _core.in_kind_of(d_weights.astype(ids.weights.dtype, copy=False), like),
    )


def _from_shards(op: str, shards: Shards, ids: Ids) -> tuple[Given, np.ndarray, Ids]:
    """The rows that ids name, as a table of their own: where they were, and the ids of this table."""
    check(op, ids, shards.num_rows)
    rows, places = np.unique(ids.ids, return_inverse=True)
    return Given("params", shards.gather(rows)), rows, ids._replace(ids=places.reshape(-1))


def _lookup_any(op: str, params: Given, shards: Shards | None, ids: Ids, combiner: str) -> Any:
    if shards is None:
        return _lookup(op, params, ids, combiner)
    for shard in params.value:
        warn_if_recorded(shard, op, params.name)
    table, _, places = _from_shards(op, shards, ids)
    return _core.in_kind_of(_lookup(op, table, places, combiner), params.value[0])


def _lookup_any_grad(
    op: str, grad: Any, params: Given, shards: Shards | None, ids: Ids, combiner: str
) -> LookupGrad:
    if shards is None:
        return _lookup_grad(op, grad, params, ids, combiner)
    warn_if_recorded(grad, op, "grad")
    table, rows, places = _from_shards(op, shards, ids)
    slices, weights = _lookup_grad(op, floats(op, "grad", grad), table, places, combiner)
    like = params.value[0]
    return LookupGrad(
        shards.scatter(slices.values, rows[slices.indices]),
        None if weights is None else _core.in_kind_of(weights, like),
    )


@named()
def embedding_lookup_sparse(
    params: Any,
    ids: Any = None,
    weights: Any = None,
    combiner: str | None = "mean",
    *,
    partition_strategy: str = "div",
    sp_ids: Any = None,
    sp_weights: Any = None,
) -> Any:
    """Looks up rows of `params` and pools those of each example.

    Like tf.nn.embedding_lookup_sparse, but with a row for every example: an example without ids gets zeros. What torch
    or TensorFlow record for their own gradients does not reach through it; a warning says so.

    Args:
      params: [rows, ...], half, bfloat16, float32 or float64. A list of arrays is a table in shards.
      ids: the ids of each example: lists of integers, a raggrad.Ragged of one level, what Ragged.from_... takes, or
        anything with indices [n, 2], values [n] and dense_shape [2], such as tf.SparseTensor, with its rows in order.
      weights: one for each id, of the types of `params`: a vector, or the form of `ids` with the same places.
      combiner: "sum": sum(w x). "mean": sum(w x) / sum(w). "sqrtn": sum(w x) / sqrt(sum(w^2)). w = 1 without weights;
        0 if the divisor is 0.
      partition_strategy: how rows lie in shards: "div", one shard after the other, as in TensorFlow 2, or "mod", row i
        in shard i % n. The first shards have a row more if rows are no multiple of their number.
      sp_ids, sp_weights: TensorFlow's names of ids and weights.

    Returns:
      [examples, ...]

    >>> import numpy as np
    >>> from raggrad import ops
    >>> params = np.float32([[1, 1], [2, 2], [4, 4]])
    >>> ids = [[0, 2], [], [1]]
    >>> ops.embedding_lookup_sparse(params, ids, combiner="sum").tolist()
    [[5.0, 5.0], [0.0, 0.0], [2.0, 2.0]]
    >>> ops.embedding_lookup_sparse(params, ids, weights=np.float32([1, 3, 2]), combiner="mean").tolist()
    [[3.25, 3.25], [0.0, 0.0], [2.0, 2.0]]
    """
    op = "embedding_lookup_sparse"
    table = Given("params", params)
    shards = shards_of(op, table, partition_strategy)
    of_ids = given(op, "weights", weights, "sp_weights", sp_weights)
    warn_of_weights(op, of_ids)
    found, combiner = read(op, given(op, "ids", ids, "sp_ids", sp_ids), of_ids, combiner)
    return _lookup_any(op, table, shards, found, combiner)


@named()
def embedding_lookup_sparse_grad(
    grad: Any,
    params: Any,
    ids: Any = None,
    weights: Any = None,
    combiner: str | None = "mean",
    *,
    partition_strategy: str = "div",
    sp_ids: Any = None,
    sp_weights: Any = None,
) -> LookupGrad:
    """Gradient of embedding_lookup_sparse with respect to `params`, and to `weights` if there are any.

    With weights it needs memory for the looked-up rows, [n, ...] in float32, twice. The gradient of a table in shards
    is a list, with IndexedSlices for each.

    >>> import numpy as np
    >>> from raggrad import ops
    >>> params = np.float32([[1, 1], [2, 2], [4, 4]])
    >>> grad = ops.embedding_lookup_sparse_grad(np.float32([[1, 1], [5, 5]]), params, [[0, 2], [2]], combiner="mean")
    >>> grad.params
    IndexedSlices(2 rows of a float32 [3, 2] at [0, 2])
    >>> grad.params.values.tolist()
    [[0.5, 0.5], [5.5, 5.5]]
    """
    op = "embedding_lookup_sparse_grad"
    table = Given("params", params)
    shards = shards_of(op, table, partition_strategy)
    found, combiner = read(
        op, given(op, "ids", ids, "sp_ids", sp_ids), given(op, "weights", weights, "sp_weights", sp_weights), combiner
    )
    return _lookup_any_grad(op, grad, table, shards, found, combiner)


def _safe(op: str, ids: Ids, combiner: str, default_id: Any, num_rows: int) -> Ids:
    """Without ids below 0 and, unless sums are wanted, without weights that are not positive: as TensorFlow."""
    check_examples(op, ids)
    keep = ids.ids >= 0
    if ids.weights is not None and combiner != "sum":
        keep &= ids.weights > 0
    check_rows(op, ids, keep & (ids.ids >= num_rows), num_rows)
    numbers, examples = ids.ids[keep], ids.examples[keep]
    weights = None if ids.weights is None else ids.weights[keep]
    if default_id is not None:
        row = default_row(op, default_id, num_rows)
        empty = np.setdiff1d(np.arange(ids.num_examples), examples)
        order = np.argsort(np.concatenate([examples, empty]), kind="stable")
        numbers = np.concatenate([numbers, np.full(len(empty), row, numbers.dtype)])[order]
        examples = np.concatenate([examples, empty])[order]
        if weights is not None:
            weights = np.concatenate([weights, np.ones(len(empty), weights.dtype)])[order]
    return ids._replace(ids=numbers, examples=examples, weights=weights)


@named()
def safe_embedding_lookup_sparse(
    params: Any = None,
    ids: Any = None,
    weights: Any = None,
    combiner: str | None = "mean",
    default_id: int | None = None,
    *,
    partition_strategy: str = "div",
    embedding_weights: Any = None,
    sparse_ids: Any = None,
    sparse_weights: Any = None,
) -> Any:
    """embedding_lookup_sparse that drops ids below 0, and weights that are not positive unless combiner is "sum".

    Examples that have no id then get the row of `default_id`, or zeros if there is none: as
    tf.nn.safe_embedding_lookup_sparse, whose names of params, ids and weights are taken, too.

    >>> import numpy as np
    >>> from raggrad import ops
    >>> params = np.float32([[1, 1], [2, 2]])
    >>> ops.safe_embedding_lookup_sparse(params, [[0, -1], []], default_id=1).tolist()
    [[1.0, 1.0], [2.0, 2.0]]
    """
    op = "safe_embedding_lookup_sparse"
    table = given(op, "params", params, "embedding_weights", embedding_weights)
    shards = shards_of(op, table, partition_strategy)
    of_ids = given(op, "weights", weights, "sparse_weights", sparse_weights)
    warn_of_weights(op, of_ids)
    found, combiner = read(op, given(op, "ids", ids, "sparse_ids", sparse_ids), of_ids, combiner)
    num_rows = shards.num_rows if shards else len(table_of(op, table))
    return _lookup_any(op, table, shards, _safe(op, found, combiner, default_id, num_rows), combiner)


@named()
def safe_embedding_lookup_sparse_grad(
    grad: Any,
    params: Any = None,
    ids: Any = None,
    weights: Any = None,
    combiner: str | None = "mean",
    default_id: int | None = None,
    *,
    partition_strategy: str = "div",
    embedding_weights: Any = None,
    sparse_ids: Any = None,
    sparse_weights: Any = None,
) -> Any:
    """Gradient of safe_embedding_lookup_sparse with respect to `params`: IndexedSlices, of shards a list of them.

    >>> import numpy as np
    >>> from raggrad import ops
    >>> params = np.float32([[1, 1], [2, 2]])
    >>> grad = ops.safe_embedding_lookup_sparse_grad(np.ones((2, 2), np.float32), params, [[0, -1], []])
    >>> grad.to_dense().tolist()
    [[1.0, 1.0], [0.0, 0.0]]
    """
    op = "safe_embedding_lookup_sparse_grad"
    table = given(op, "params", params, "embedding_weights", embedding_weights)
    shards = shards_of(op, table, partition_strategy)
    found, combiner = read(
        op,
        given(op, "ids", ids, "sparse_ids", sparse_ids),
        given(op, "weights", weights, "sparse_weights", sparse_weights),
        combiner,
    )
    num_rows = shards.num_rows if shards else len(table_of(op, table))
    safe = _safe(op, found, combiner, default_id, num_rows)
    return _lookup_any_grad(op, grad, table, shards, safe, combiner).params
