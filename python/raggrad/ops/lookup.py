"""Embedding lookups: rows of a table, pooled per example, with or without a weight for each id.

Without weights these are the segment operators, with TensorFlow's bits. With weights, each row is multiplied by its
weight (rounded) and the products are summed in the order of SparseSegmentSum; TensorFlow sums them in another order, so
the results agree to within 2 n eps sum(|w x|) for n ids of an example. half and bfloat16 are computed in float32 and
rounded once.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from .. import _core, raw_ops
from ..errors import InvalidArgumentError
from ..indexed_slices import IndexedSlices
from ..ragged import Ragged
from ..ragged.arrays import numpy_of, numpy_parts
from . import segments

_COMBINERS = ("sum", "mean", "sqrtn")
_FLOATS = (np.float16, ml_dtypes.bfloat16, np.float32, np.float64)


class LookupGrad(NamedTuple):
    params: IndexedSlices
    weights: Any  # like the ids; None if there were no weights


class _Ids(NamedTuple):
    """The ids of a lookup: which rows, and which example each belongs to."""

    ids: np.ndarray
    examples: np.ndarray
    num_examples: int
    weights: np.ndarray | None


def _floats(op: str, name: str, array: Any) -> np.ndarray:
    numbers = numpy_of(array, op, name, "float32")
    if numbers.dtype not in _FLOATS:
        raise InvalidArgumentError(
            f"{op}: {name} must be floats [{name}: expected half, bfloat16, float32 or float64, got {numbers.dtype}]"
        )
    return numbers


def _table(op: str, params: Any) -> np.ndarray:
    table = _floats(op, "params", params)
    if table.ndim == 0:
        raise InvalidArgumentError(f"{op}: params must have rows [params: expected at least rank 1, got a scalar]")
    return table


def _integers(op: str, name: str, array: Any, rank: int) -> np.ndarray:
    numbers = numpy_of(array, op, name, "int64")
    if numbers.dtype not in (np.int32, np.int64) or numbers.ndim != rank:
        raise InvalidArgumentError(
            f"{op}: {name} has the wrong dtype or shape [{name}: expected int32 or int64 of rank {rank}, "
            f"got {numbers.dtype} of shape {numbers.shape}]"
        )
    return numbers


def _read_ids(op: str, ids: Any) -> tuple[np.ndarray, np.ndarray, int]:
    if isinstance(ids, Ragged):
        if ids.ragged_rank != 1:
            raise InvalidArgumentError(
                f"{op}: ids must be a matrix [ids: expected one level of splits, got {ids.ragged_rank}]"
            )
        (splits,), numbers = numpy_parts(ids.nested_splits, ids.values, f"{op}: ids")
        lengths = np.diff(splits)
        return _integers(op, "ids.values", numbers, 1), np.repeat(np.arange(len(lengths)), lengths), len(lengths)
    if all(hasattr(ids, part) for part in ("indices", "values", "dense_shape")):
        shape = _integers(op, "ids.dense_shape", ids.dense_shape, 1)
        indices = _integers(op, "ids.indices", ids.indices, 2)
        numbers = _integers(op, "ids.values", ids.values, 1)
        if len(shape) != 2 or (shape < 0).any():
            raise InvalidArgumentError(
                f"{op}: ids must be a matrix [ids.dense_shape: expected two sizes >= 0, got {shape}]"
            )
        if indices.shape != (len(numbers), 2):
            raise InvalidArgumentError(
                f"{op}: every id needs a place [ids.indices: expected shape {(len(numbers), 2)}, got {indices.shape}]"
            )
        return numbers, np.ascontiguousarray(indices[:, 0]), int(shape[0])
    raise InvalidArgumentError(
        f"{op}: expected ids as a raggrad.Ragged, or as anything with indices, values and dense_shape "
        f"(tf.SparseTensor); got {type(ids).__name__}"
    )


def _read(op: str, ids: Any, weights: Any, combiner: str) -> _Ids:
    if combiner not in _COMBINERS:
        raise InvalidArgumentError(f"{op}: no such combiner [combiner: expected one of {_COMBINERS}, got {combiner!r}]")
    numbers, examples, num_examples = _read_ids(op, ids)
    if weights is None:
        return _Ids(numbers, examples, num_examples, None)
    values = getattr(weights, "values", weights)  # of what has the form of ids; torch has a method of this name
    weights = _floats(op, "weights", weights if callable(values) else values)
    if weights.shape != numbers.shape:
        raise InvalidArgumentError(
            f"{op}: every id needs a weight [weights: expected shape {numbers.shape}, got {weights.shape}]"
        )
    return _Ids(numbers, examples, num_examples, weights)


def _wide(array: np.ndarray) -> np.ndarray:
    return array if array.dtype == np.float64 else array.astype(np.float32, copy=False)


def _column(vector: np.ndarray, like: np.ndarray) -> np.ndarray:
    return vector.reshape(-1, *(1 for _ in like.shape[1:]))


def _check_rows(op: str, ids: np.ndarray, bad: np.ndarray, num_rows: int) -> None:
    if bad.any():
        place = int(bad.argmax())
        raise InvalidArgumentError(
            f"{op}: an id is out of range [ids[{place}]: expected 0 to {num_rows - 1}, got {ids[place]}]"
        )


def _check_examples(op: str, read: _Ids) -> None:
    before = np.concatenate([[0], read.examples])[:-1]
    bad = (read.examples < before) | (read.examples >= read.num_examples)
    if bad.any():
        place = int(bad.argmax())
        raise InvalidArgumentError(
            f"{op}: ids must be in the order of their examples [ids.indices[{place}, 0]: expected {before[place]} to "
            f"{read.num_examples - 1}, got {read.examples[place]}]"
        )


def _check(op: str, read: _Ids, num_rows: int) -> None:
    """What is asked of the numbers. Operators ask it, too; this is for what NumPy reads, and to say it in our words."""
    _check_rows(op, read.ids, (read.ids < 0) | (read.ids >= num_rows), num_rows)
    _check_examples(op, read)


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


def _weighted(op: str, table: np.ndarray, read: _Ids, combiner: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The pooled rows, the rows that were looked up, and what the sums were divided by."""
    _check(op, read, len(table))
    weights = _wide(read.weights).astype(_wide(table[:0]).dtype, copy=False)
    rows = _wide(table[read.ids])
    divisor = _divisor(read, weights, combiner)
    pooled = _segment_sum(rows * _column(weights, rows), read) / _column(divisor, rows)
    return pooled, rows, divisor


def _lookup(op: str, params: Any, read: _Ids, combiner: str) -> Any:
    table = _table(op, params)
    if read.weights is None:
        data = table if isinstance(params, (list, tuple)) else params
        try:
            return segments.pool(combiner, data, read.ids, read.examples, read.num_examples, None)
        except InvalidArgumentError:
            _check(op, read, len(table))
            raise
    pooled, _, _ = _weighted(op, table, read, combiner)
    return _core.in_kind_of(pooled.astype(table.dtype, copy=False), params)


def _lookup_grad(op: str, grad: Any, params: Any, read: _Ids, combiner: str) -> LookupGrad:
    table = _table(op, params)
    upstream = _floats(op, "grad", grad)
    expected = (read.num_examples, *table.shape[1:])
    if upstream.shape != expected:
        raise InvalidArgumentError(f"{op}: grad has the wrong shape [grad: expected {expected}, got {upstream.shape}]")
    if read.weights is None:
        data = upstream if isinstance(grad, (list, tuple)) else grad
        try:
            return LookupGrad(segments.pool_grad(combiner, data, read.ids, read.examples, len(table), None), None)
        except InvalidArgumentError:
            _check(op, read, len(table))
            raise
    pooled, rows, divisor = _weighted(op, table, read, combiner)
    weights = _column(_wide(read.weights).astype(rows.dtype, copy=False), rows)
    row_grad = (_wide(upstream) / _column(divisor, upstream))[read.examples]
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


def embedding_lookup_sparse(params: Any, ids: Any, weights: Any = None, combiner: str = "mean") -> Any:
    """Looks up rows of `params` and pools those of each example.

    Like tf.nn.embedding_lookup_sparse, but with a row for every example: an example without ids gets zeros.

    Args:
      params: [rows, ...], half, bfloat16, float32 or float64.
      ids: the ids of each example: a raggrad.Ragged of one level, or anything with indices [n, 2], values [n] and
        dense_shape [2], such as tf.SparseTensor, with its rows in order.
      weights: one for each id, of the types of `params`: an array, or anything of the form of `ids`.
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
    op = "embedding_lookup_sparse"
    return _lookup(op, params, _read(op, ids, weights, combiner), combiner)


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
    op = "embedding_lookup_sparse_grad"
    return _lookup_grad(op, grad, params, _read(op, ids, weights, combiner), combiner)


def _safe(op: str, params: Any, ids: Any, weights: Any, combiner: str, default_id: int | None) -> _Ids:
    """Without ids below 0 and, unless sums are wanted, without weights that are not positive: as TensorFlow."""
    read = _read(op, ids, weights, combiner)
    _check_examples(op, read)
    keep = read.ids >= 0
    if read.weights is not None and combiner != "sum":
        keep &= read.weights > 0
    num_rows = len(_table(op, params))
    _check_rows(op, read.ids, keep & (read.ids >= num_rows), num_rows)
    numbers, examples = read.ids[keep], read.examples[keep]
    row_weights = None if read.weights is None else read.weights[keep]
    if default_id is not None:
        if not isinstance(default_id, (int, np.integer)) or not 0 <= default_id < num_rows:
            raise InvalidArgumentError(
                f"{op}: default_id is out of range [default_id: expected 0 to {num_rows - 1}, got {default_id!r}]"
            )
        empty = np.setdiff1d(np.arange(read.num_examples), examples)
        order = np.argsort(np.concatenate([examples, empty]), kind="stable")
        numbers = np.concatenate([numbers, np.full(len(empty), default_id, numbers.dtype)])[order]
        examples = np.concatenate([examples, empty])[order]
        if row_weights is not None:
            row_weights = np.concatenate([row_weights, np.ones(len(empty), row_weights.dtype)])[order]
    return _Ids(numbers, examples, read.num_examples, row_weights)


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
    op = "safe_embedding_lookup_sparse"
    return _lookup(op, params, _safe(op, params, ids, weights, combiner, default_id), combiner)


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
    op = "safe_embedding_lookup_sparse_grad"
    return _lookup_grad(op, grad, params, _safe(op, params, ids, weights, combiner, default_id), combiner).params
