"""Embedding lookups: rows of a table, pooled per example, with or without a weight for each id.

Without weights these are the segment operators, with TensorFlow's bits. With weights, each row is multiplied by its
weight (rounded) and the products are summed in the order of SparseSegmentSum; TensorFlow sums them in another order, so
the results agree to within 2 n eps sum(|w x|) for n ids of an example. half and bfloat16 are computed in float32 and
rounded once.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .. import _core, raw_ops
from ..errors import InvalidArgumentError
from ..indexed_slices import IndexedSlices
from ..ragged import Ragged
from . import segments

_COMBINERS = ("sum", "mean", "sqrtn")


class LookupGrad(NamedTuple):
    params: IndexedSlices
    weights: Any  # like the ids; None if there were no weights


class _Ids(NamedTuple):
    """The ids of a lookup: which rows, and which example each belongs to."""

    ids: np.ndarray
    examples: np.ndarray
    num_examples: int
    weights: np.ndarray | None


def _numpy(array: Any) -> np.ndarray:
    return array if isinstance(array, np.ndarray) else _core.Tensor(array).numpy()


def _read_ids(name: str, ids: Any) -> tuple[np.ndarray, np.ndarray, int]:
    if isinstance(ids, Ragged):
        if len(ids.nested_splits) != 1:
            raise InvalidArgumentError(
                f"{name}: ids must be a matrix [ids: expected one level of splits, got {len(ids.nested_splits)}]"
            )
        lengths = np.diff(_numpy(ids.nested_splits[0]))
        return _numpy(ids.values), np.repeat(np.arange(len(lengths)), lengths), len(lengths)
    if all(hasattr(ids, part) for part in ("indices", "values", "dense_shape")):
        shape = _numpy(ids.dense_shape)
        if len(shape) != 2:
            raise InvalidArgumentError(f"{name}: ids must be a matrix [ids: expected rank 2, got {len(shape)}]")
        return _numpy(ids.values), np.ascontiguousarray(_numpy(ids.indices)[:, 0]), int(shape[0])
    raise InvalidArgumentError(
        f"{name}: expected ids as a raggrad.Ragged, or as anything with indices, values and dense_shape "
        f"(tf.SparseTensor); got {type(ids).__name__}"
    )


def _read(name: str, ids: Any, weights: Any, combiner: str) -> _Ids:
    if combiner not in _COMBINERS:
        raise InvalidArgumentError(
            f"{name}: no such combiner [combiner: expected one of {_COMBINERS}, got {combiner!r}]"
        )
    numbers, examples, num_examples = _read_ids(name, ids)
    if weights is None:
        return _Ids(numbers, examples, num_examples, None)
    weights = _numpy(weights.values if hasattr(weights, "values") and not callable(weights.values) else weights)
    if weights.shape != numbers.shape:
        raise InvalidArgumentError(
            f"{name}: every id needs a weight [weights: expected shape {numbers.shape}, got {weights.shape}]"
        )
    return _Ids(numbers, examples, num_examples, weights)


def _wide(array: np.ndarray) -> np.ndarray:
    return array if array.dtype == np.float64 else array.astype(np.float32, copy=False)


def _column(vector: np.ndarray, like: np.ndarray) -> np.ndarray:
    return vector.reshape(-1, *(1 for _ in like.shape[1:]))


def _check_range(name: str, ids: np.ndarray, num_rows: int) -> None:
    bad = np.flatnonzero((ids < 0) | (ids >= num_rows))
    if len(bad):
        raise InvalidArgumentError(
            f"{name}: an id is not a row of params [ids[{bad[0]}]: expected 0 to {num_rows - 1}, got {ids[bad[0]]}]"
        )


def _segment_sum(rows: np.ndarray, read: _Ids) -> np.ndarray:
    return raw_ops.SparseSegmentSumWithNumSegments(
        data=rows,
        indices=np.arange(len(rows), dtype=np.int64),
        segment_ids=read.examples,
        num_segments=read.num_examples,
    )


def _divisor(read: _Ids, weights: np.ndarray, combiner: str) -> np.ndarray:
    """What the weighted sums of the examples are divided by; 1 instead of 0, as the sums are 0 then."""
    if combiner == "sum":
        return np.ones(read.num_examples, weights.dtype)
    sums = _segment_sum(weights if combiner == "mean" else weights * weights, read)
    divisor = sums if combiner == "mean" else np.sqrt(sums)
    return np.where(divisor == 0, divisor.dtype.type(1), divisor)


def _weighted(name: str, params: np.ndarray, read: _Ids, combiner: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The pooled rows, the rows that were looked up, and what the sums were divided by."""
    _check_range(name, read.ids, len(params))
    weights = _wide(read.weights).astype(_wide(params[:0]).dtype, copy=False)
    rows = _wide(params[read.ids])
    divisor = _divisor(read, weights, combiner)
    pooled = _segment_sum(rows * _column(weights, rows), read) / _column(divisor, rows)
    return pooled, rows, divisor


def embedding_lookup_sparse(params: Any, ids: Any, weights: Any = None, combiner: str = "mean") -> Any:
    """Looks up rows of `params` and pools those of each example.

    Like tf.nn.embedding_lookup_sparse, but with a row for every example: an example without ids gets zeros.

    Args:
      params: [rows, ...], half, bfloat16, float32 or float64.
      ids: the ids of each example: a raggrad.Ragged of one level, or anything with indices [n, 2], values [n] and
        dense_shape [2], such as tf.SparseTensor, with its rows in order.
      weights: one for each id: an array, or anything of the form of `ids`.
      combiner: "sum": sum(w x). "mean": sum(w x) / sum(w). "sqrtn": sum(w x) / sqrt(sum(w^2)). w = 1 without weights.

    Returns:
      [examples, ...]

    >>> import numpy as np
    >>> from raggrad import Ragged, ops
    >>> params = np.float32([[1, 1], [2, 2], [4, 4]])
    >>> ids = Ragged.from_lists([[0, 2], [], [1]])
    >>> ops.embedding_lookup_sparse(params, ids, combiner="sum").tolist()
    [[5.0, 5.0], [0.0, 0.0], [2.0, 2.0]]
    >>> ops.embedding_lookup_sparse(params, ids, weights=np.float32([1, 3, 2]), combiner="mean").tolist()
    [[3.25, 3.25], [0.0, 0.0], [2.0, 2.0]]
    """
    name = "embedding_lookup_sparse"
    read = _read(name, ids, weights, combiner)
    if read.weights is None:
        return segments.pool(combiner, params, read.ids, read.examples, read.num_examples, None)
    table = _numpy(params)
    pooled, _, _ = _weighted(name, table, read, combiner)
    return _core.in_kind_of(pooled.astype(table.dtype, copy=False), params)


def embedding_lookup_sparse_grad(
    grad: Any, params: Any, ids: Any, weights: Any = None, combiner: str = "mean"
) -> LookupGrad:
    """Gradient of embedding_lookup_sparse with respect to `params`, and to `weights` if there are any.

    With weights it needs memory for the looked-up rows, [n, ...] in float32, twice.

    >>> import numpy as np
    >>> from raggrad import Ragged, ops
    >>> params = np.float32([[1, 1], [2, 2], [4, 4]])
    >>> ids = Ragged.from_lists([[0, 2], [2]])
    >>> grad = ops.embedding_lookup_sparse_grad(np.float32([[1, 1], [5, 5]]), params, ids, combiner="mean")
    >>> grad.params
    IndexedSlices(2 rows of a float32 [3, 2] at [0, 2])
    >>> grad.params.values.tolist()
    [[0.5, 0.5], [5.5, 5.5]]
    """
    name = "embedding_lookup_sparse_grad"
    read = _read(name, ids, weights, combiner)
    table = _numpy(params)
    if read.weights is None:
        return LookupGrad(segments.pool_grad(combiner, grad, read.ids, read.examples, len(table), None), None)
    pooled, rows, divisor = _weighted(name, table, read, combiner)
    upstream = _wide(_numpy(grad))
    if upstream.shape != pooled.shape:
        raise InvalidArgumentError(
            f"{name}: grad has the wrong shape [grad: expected {pooled.shape}, got {upstream.shape}]"
        )
    weights = _column(_wide(read.weights).astype(rows.dtype, copy=False), rows)
    row_grad = (upstream / _column(divisor, upstream))[read.examples]
    slices = IndexedSlices((row_grad * weights).astype(table.dtype, copy=False), read.ids, table.shape).coalesce()
    if combiner == "mean":
        rows = rows - pooled[read.examples]
    elif combiner == "sqrtn":
        rows = rows - pooled[read.examples] * weights / _column(divisor, pooled)[read.examples]
    d_weights = (row_grad * rows).reshape(len(rows), -1).sum(axis=1).astype(read.weights.dtype, copy=False)
    slices = IndexedSlices(
        _core.in_kind_of(slices.values, params), _core.in_kind_of(slices.indices, params), slices.dense_shape
    )
    return LookupGrad(slices, _core.in_kind_of(d_weights, params))


def _prune(read: _Ids, combiner: str) -> _Ids:
    """Without ids below 0 and, unless sums are wanted, without weights that are not positive: as TensorFlow."""
    keep = read.ids >= 0
    if read.weights is not None and combiner != "sum":
        keep &= read.weights > 0
    weights = None if read.weights is None else read.weights[keep]
    return _Ids(read.ids[keep], read.examples[keep], read.num_examples, weights)


class _SparseIds(NamedTuple):
    indices: np.ndarray
    values: np.ndarray
    dense_shape: np.ndarray


def _safe_ids(name: str, ids: Any, weights: Any, combiner: str, default_id: int | None) -> tuple[_SparseIds, Any]:
    read = _prune(_read(name, ids, weights, combiner), combiner)
    numbers, examples, row_weights = read.ids, read.examples, read.weights
    if default_id is not None:
        empty = np.setdiff1d(np.arange(read.num_examples), examples)
        order = np.argsort(np.concatenate([examples, empty]), kind="stable")
        numbers = np.concatenate([numbers, np.full(len(empty), default_id, numbers.dtype)])[order]
        examples = np.concatenate([examples, empty])[order]
        if row_weights is not None:
            row_weights = np.concatenate([row_weights, np.ones(len(empty), row_weights.dtype)])[order]
    indices = np.stack([examples, np.zeros_like(examples)], axis=1)
    return _SparseIds(indices, numbers, np.array([read.num_examples, 1])), row_weights


def safe_embedding_lookup_sparse(
    params: Any, ids: Any, weights: Any = None, combiner: str = "mean", default_id: int | None = None
) -> Any:
    """embedding_lookup_sparse that drops ids below 0, and weights that are not positive unless combiner is "sum".

    Examples that have no id then get the row of `default_id`, or zeros if there is none: as
    tf.nn.safe_embedding_lookup_sparse.

    >>> import numpy as np
    >>> from raggrad import Ragged, ops
    >>> params = np.float32([[1, 1], [2, 2]])
    >>> ops.safe_embedding_lookup_sparse(params, Ragged.from_lists([[0, -1], []]), default_id=1).tolist()
    [[1.0, 1.0], [2.0, 2.0]]
    """
    safe, safe_weights = _safe_ids("safe_embedding_lookup_sparse", ids, weights, combiner, default_id)
    return embedding_lookup_sparse(params, safe, safe_weights, combiner)


def safe_embedding_lookup_sparse_grad(
    grad: Any,
    params: Any,
    ids: Any,
    weights: Any = None,
    combiner: str = "mean",
    default_id: int | None = None,
) -> IndexedSlices:
    """Gradient of safe_embedding_lookup_sparse with respect to `params`.

    >>> import numpy as np
    >>> from raggrad import Ragged, ops
    >>> params = np.float32([[1, 1], [2, 2]])
    >>> ids = Ragged.from_lists([[0, -1], []])
    >>> ops.safe_embedding_lookup_sparse_grad(np.ones((2, 2), np.float32), params, ids).to_dense().tolist()
    [[1.0, 1.0], [0.0, 0.0]]
    """
    safe, safe_weights = _safe_ids("safe_embedding_lookup_sparse_grad", ids, weights, combiner, default_id)
    return embedding_lookup_sparse_grad(grad, params, safe, safe_weights, combiner).params
