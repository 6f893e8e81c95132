"""Embedding lookups: rows of a table, pooled per example, with or without a weight for each id.

Without weights these are the sparse segment operators, with TensorFlow's bits. With weights, each row is multiplied by
its weight (rounded), and the products are summed in the order of TensorFlow's segment_sum. In host memory, sums and
means have TensorFlow's bits on x86 if rows have a multiple of 8 columns (float64: of 4) or no example has 16 ids. All
else agrees to within 2 n eps sum(|w x|) for n ids of an example. half and bfloat16 are computed in float32 and rounded
once. Where the weights of an example cancel, the result and its gradients are 0, as in TensorFlow.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from .. import _arrays, _core
from .._named import named
from .._recorded import warn_if_recorded
from ..errors import InvalidArgumentError
from ..settings import Accumulation, current_accumulation, using
from . import pooling, weighted_lookup
from .lookup_inputs import (
    Given,
    Ids,
    check,
    check_kept,
    default_row,
    floats,
    given,
    read,
    table_of,
    warn_of_weights,
)
from .shards import Shards, shards_of


class LookupGrad(NamedTuple):
    """The gradients of a lookup.

    Attributes:
      params: an IndexedSlices; for a table in shards a list of them.
      weights: a vector, one for each id; None if there were no weights.
    """

    params: Any
    weights: Any


class _Call(NamedTuple):
    """The operands of a lookup."""

    params: Given
    shards: Shards | None
    ids: Ids
    combiner: str


def _read(op: str, params: Given, ids: Given, weights: Given, combiner: str | None, partition_strategy: str) -> _Call:
    shards = shards_of(op, params, partition_strategy)
    numbers, combiner = read(op, ids, weights, combiner)
    _arrays.check_one_device(op, params.name, params.value[0] if shards else params.value, **{ids.name: numbers.ids})
    return _Call(params, shards, numbers, combiner)


def _read_safe(
    op: str,
    params: Given,
    ids: Given,
    weights: Given,
    combiner: str | None,
    default_id: Any,
    partition_strategy: str,
) -> _Call:
    call = _read(op, params, ids, weights, combiner, partition_strategy)
    num_rows = call.shards.num_rows if call.shards else len(table_of(op, params))
    with call.ids.xp:
        return call._replace(ids=_safe(op, call.ids, call.combiner, default_id, num_rows))


def _lookup(op: str, params: Given, ids: Ids, combiner: str) -> Any:
    table = table_of(op, params)
    if ids.weights is None:
        data = table if isinstance(params.value, (list, tuple)) else _arrays.operand(params.value, ids.xp)
        try:
            pooled = _core.segment(
                op, params.name, combiner, data, ids.ids, ids.examples, ids.num_examples, current_accumulation.get()
            )
        except InvalidArgumentError:
            check(op, ids, len(table))
            raise
        return pooled if data is params.value else _arrays.in_kind_of(pooled, params.value)
    warn_if_recorded(params.value, op, params.name)
    return _arrays.in_kind_of(weighted_lookup.look_up(op, params, table, ids, combiner), params.value)


def _lookup_grad(op: str, grad: Any, params: Given, ids: Ids, combiner: str) -> LookupGrad:
    table = table_of(op, params)
    upstream = floats(op, "grad", grad)
    _arrays.check_one_device(op, params.name, table, grad=upstream)
    expected = (ids.num_examples, *table.shape[1:])
    if upstream.shape != expected:
        raise InvalidArgumentError(
            f"{op}: grad has the wrong shape [grad: expected {expected}, got {tuple(upstream.shape)}]"
        )
    if ids.weights is None:
        data = upstream if isinstance(grad, (list, tuple)) else _arrays.operand(grad, ids.xp)
        try:
            slices = pooling.pool_grad(op, combiner, data, pooling.Ids(ids.ids, ids.examples, None), len(table))
        except InvalidArgumentError:
            check(op, ids, len(table))
            raise
        return LookupGrad(slices, None)
    warn_if_recorded(grad, op, "grad")
    return LookupGrad(*weighted_lookup.grad(op, upstream, table, params.value, ids, combiner))


def _from_shards(op: str, shards: Shards, ids: Ids) -> tuple[Given, Any, Ids]:
    """A table of the rows that ids name, the places of these rows in the whole table, and the ids in the new table."""
    check(op, ids, shards.num_rows)
    rows, places = ids.xp.unique(ids.ids)
    return Given("params", shards.gather(rows, ids.xp)), rows, ids._replace(ids=places)


def _lookup_any(op: str, call: _Call) -> Any:
    params, shards, ids, combiner = call
    with ids.xp:
        if shards is None:
            return _lookup(op, params, ids, combiner)
        for shard in params.value:
            warn_if_recorded(shard, op, params.name)
        table, _, places = _from_shards(op, shards, ids)
        return _arrays.in_kind_of(_lookup(op, table, places, combiner), params.value[0])


def _lookup_any_grad(op: str, grad: Any, call: _Call) -> LookupGrad:
    params, shards, ids, combiner = call
    with ids.xp:
        if shards is None:
            return _lookup_grad(op, grad, params, ids, combiner)
        warn_if_recorded(grad, op, "grad")
        table, rows, places = _from_shards(op, shards, ids)
        slices, weights = _lookup_grad(op, floats(op, "grad", grad), table, places, combiner)
        return LookupGrad(
            shards.scatter(slices.values, rows[slices.indices], ids.xp),
            None if weights is None else _arrays.in_kind_of(weights, params.value[0]),
        )


@named()
def embedding_lookup_sparse(
    params: Any,
    ids: Any = None,
    weights: Any = None,
    combiner: str | None = "mean",
    *,
    partition_strategy: str = "div",
    accumulation: Accumulation | None = None,
    sp_ids: Any = None,
    sp_weights: Any = None,
) -> Any:
    """Looks up rows of `params` and pools those of each example.

    Like tf.nn.embedding_lookup_sparse, but with a row for every example: an example without ids gets zeros. torch and
    TensorFlow cannot differentiate through it; a warning says so if they try.

    Args:
      params: [rows, ...], half, bfloat16, float32 or float64. A list of arrays is a table in shards.
      ids: the ids of each example: lists of integers, a raggrad.Ragged of one level, anything that a Ragged.from_...
        takes, or an object with indices [n, 2], values [n] and dense_shape [2], such as a tf.SparseTensor, with its
        rows in order.
      weights: one for each id, of the types of `params`: a vector, or the form of `ids` with the same places.
      combiner: "sum": sum(w x). "mean": sum(w x) / sum(w). "sqrtn": sum(w x) / sqrt(sum(w^2)). w is 1 without weights.
        The result is 0 where the divisor is 0.
      partition_strategy: where rows lie in shards. "div", as in TensorFlow 2: one shard after the other. "mod": row i
        in shard i % n. If the number of rows is not a multiple of n, the first shards have one row more.
      accumulation: "sequential", "fast" or "reproducible"; None: that of raggrad.accumulation.
      sp_ids, sp_weights: TensorFlow's names for ids and weights.

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
    of_ids = given(op, "weights", weights, "sp_weights", sp_weights)
    warn_of_weights(op, of_ids)
    found = given(op, "ids", ids, "sp_ids", sp_ids)
    with using(accumulation):
        return _lookup_any(op, _read(op, Given("params", params), found, of_ids, combiner, partition_strategy))


@named()
def embedding_lookup_sparse_grad(
    grad: Any,
    params: Any,
    ids: Any = None,
    weights: Any = None,
    combiner: str | None = "mean",
    *,
    partition_strategy: str = "div",
    accumulation: Accumulation | None = None,
    sp_ids: Any = None,
    sp_weights: Any = None,
) -> LookupGrad:
    """Gradient of embedding_lookup_sparse with respect to `params`, and to `weights` if there are any.

    In host memory it copies no rows. With weights on a GPU, or with a `grad` of another type than `params`, it needs
    memory for twice the looked-up rows, [n, ...] in float32.

    Args:
      grad: [examples, ...]: the gradient of the pooled rows.
      params, ids, weights, combiner, partition_strategy, accumulation, sp_ids, sp_weights: those of the lookup.

    Returns:
      (params, weights): IndexedSlices of the rows that ids name, or for a table in shards a list with IndexedSlices for
      each shard; and a vector, one number for each id, or None if there were no weights.

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
    of_ids = given(op, "weights", weights, "sp_weights", sp_weights)
    found = given(op, "ids", ids, "sp_ids", sp_ids)
    call = _read(op, Given("params", params), found, of_ids, combiner, partition_strategy)
    with using(accumulation):
        return _lookup_any_grad(op, grad, call)


def _safe(op: str, ids: Ids, combiner: str, default_id: Any, num_rows: int) -> Ids:
    """Drops ids below 0 and, unless sums are wanted, ids whose weight is not positive: as TensorFlow does."""
    xp = ids.xp
    keep = ids.ids >= 0
    if ids.weights is not None and combiner != "sum":
        keep = keep & (ids.weights > 0)
    check_kept(op, ids, keep, num_rows)
    numbers, examples = ids.ids[keep], ids.examples[keep]
    weights = None if ids.weights is None else ids.weights[keep]
    if default_id is not None:
        row = default_row(op, default_id, num_rows)
        empty = xp.astype(xp.flatnonzero(~xp.contains(examples, ids.num_examples)), xp.dtype(examples))
        order = xp.argsort(xp.concatenate([examples, empty]))
        numbers = xp.concatenate([numbers, xp.filled(len(empty), row, numbers)])[order]
        examples = xp.concatenate([examples, empty])[order]
        if weights is not None:
            weights = xp.concatenate([weights, xp.filled(len(empty), 1, weights)])[order]
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
    accumulation: Accumulation | None = None,
    embedding_weights: Any = None,
    sparse_ids: Any = None,
    sparse_weights: Any = None,
) -> Any:
    """embedding_lookup_sparse without ids below 0 and, unless combiner is "sum", without weights that are not positive.

    Examples that are left without ids get the row of `default_id`, or zeros if it is None: as in
    tf.nn.safe_embedding_lookup_sparse, whose names of params, ids and weights are accepted as well.

    Args:
      params, ids, weights, combiner, partition_strategy, accumulation: as for embedding_lookup_sparse.
      default_id: the row for examples without ids, with weight 1; None: they get zeros.
      embedding_weights, sparse_ids, sparse_weights: TensorFlow's names for params, ids and weights.

    Returns:
      [examples, ...]

    >>> import numpy as np
    >>> from raggrad import ops
    >>> params = np.float32([[1, 1], [2, 2]])
    >>> ops.safe_embedding_lookup_sparse(params, [[0, -1], []], default_id=1).tolist()
    [[1.0, 1.0], [2.0, 2.0]]
    """
    op = "safe_embedding_lookup_sparse"
    table = given(op, "params", params, "embedding_weights", embedding_weights)
    of_ids = given(op, "weights", weights, "sparse_weights", sparse_weights)
    warn_of_weights(op, of_ids)
    found = given(op, "ids", ids, "sparse_ids", sparse_ids)
    with using(accumulation):
        return _lookup_any(op, _read_safe(op, table, found, of_ids, combiner, default_id, partition_strategy))


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
    accumulation: Accumulation | None = None,
    embedding_weights: Any = None,
    sparse_ids: Any = None,
    sparse_weights: Any = None,
) -> Any:
    """Gradient of safe_embedding_lookup_sparse with respect to `params`.

    Args:
      grad: [examples, ...]: the gradient of the pooled rows.
      params, ids, weights, combiner, default_id, partition_strategy, accumulation: those of the lookup.
      embedding_weights, sparse_ids, sparse_weights: TensorFlow's names for params, ids and weights.

    Returns:
      IndexedSlices of the rows that were read; for a table in shards a list with IndexedSlices for each shard.

    >>> import numpy as np
    >>> from raggrad import ops
    >>> params = np.float32([[1, 1], [2, 2]])
    >>> grad = ops.safe_embedding_lookup_sparse_grad(np.ones((2, 2), np.float32), params, [[0, -1], []])
    >>> grad.to_dense().tolist()
    [[1.0, 1.0], [0.0, 0.0]]
    """
    op = "safe_embedding_lookup_sparse_grad"
    table = given(op, "params", params, "embedding_weights", embedding_weights)
    of_ids = given(op, "weights", weights, "sparse_weights", sparse_weights)
    found = given(op, "ids", ids, "sparse_ids", sparse_ids)
    call = _read_safe(op, table, found, of_ids, combiner, default_id, partition_strategy)
    with using(accumulation):
        return _lookup_any_grad(op, grad, call).params
