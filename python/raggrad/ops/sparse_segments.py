"""Pooled rows of a table, their gradients, and the gradient and the update of the table in one pass.

With `weights`, one for each id, row s of a result is sum(w x) / d. `divisor` says what d is for the mean and for sqrtn:
sum(w) and sqrt(sum(w^2)) for "weights", as in TensorFlow's embedding_lookup_sparse; n and sqrt(n) for "count", as in
PyTorch's embedding_bag. The result is 0 where d is 0. Weights have the type of the rows or float32.

All functions take the ids as `indices` and `segment_ids`, or as a SegmentPlan made from them. Given both, the plan is
checked against the ids. A plan saves a third to a half of a gradient's time and gives the same bits.
"""

from __future__ import annotations

from typing import Any, Literal

from .. import optimizers
from .._core import SegmentPlan
from .._named import named
from ..indexed_slices import IndexedSlices
from ..settings import Accumulation
from .pooling import ids_of, pool, pool_grad, pool_grad_apply_, weights_grad

Divisor = Literal["weights", "count"]


@named()
def sparse_segment_sum(
    data: Any,
    indices: Any = None,
    segment_ids: Any = None,
    num_segments: Any = None,
    *,
    plan: SegmentPlan | None = None,
    weights: Any = None,
    divisor: Divisor = "weights",
    accumulation: Accumulation | None = None,
) -> Any:
    """Row s of the result is the sum of data[indices[i]] over all i with segment_ids[i] == s.

    Args:
      data: [rows, ...], half, bfloat16, float32 or float64; also integers.
      indices: [n], integers: the rows to read; they may repeat. int32 and int64 are taken as they are, others copied.
      segment_ids: [n], integers, ascending: the row of the result that each is added to.
      num_segments: rows of the result; the last segment id + 1 if it is not given.
      plan: a SegmentPlan instead of the ids, or beside them; then it is checked against them.
      weights: [n], one for each id; not for integers.
      divisor: of the mean and of sqrtn with weights: "weights" or "count". No influence on the sum.
      accumulation: "sequential", "fast" or "reproducible"; None: that of raggrad.accumulation.

    Returns:
      [num_segments, ...]; zeros for segments that no id names.

    >>> import numpy as np
    >>> from raggrad import ops
    >>> ops.sparse_segment_sum(np.float32([[1], [2], [4]]), indices=[0, 1, 2], segment_ids=[0, 0, 1]).tolist()
    [[3.0], [4.0]]
    >>> ops.sparse_segment_sum(np.float32([[1], [2], [4]]), [0, 1, 2], [0, 0, 1], weights=[1, 0.5, 3]).tolist()
    [[2.0], [12.0]]
    """
    ids = ids_of("sparse_segment_sum", indices, segment_ids, plan, weights, divisor, accumulation)
    return pool("sparse_segment_sum", "sum", data, ids, num_segments)


@named(table_rows="num_rows")
def sparse_segment_sum_grad(
    grad: Any,
    indices: Any = None,
    segment_ids: Any = None,
    num_rows: Any = None,
    *,
    plan: SegmentPlan | None = None,
    weights: Any = None,
    divisor: Divisor = "weights",
    accumulation: Accumulation | None = None,
) -> IndexedSlices:
    """Gradient of sparse_segment_sum with respect to `data`.

    Args:
      grad: [segments, ...], half, bfloat16, float32 or float64.
      indices: [n], integers in [0, num_rows). int32 and int64 are taken as they are, others copied.
      segment_ids: [n], integers in [0, segments), in any order.
      num_rows: rows of the table; at most 2^32.
      plan: a SegmentPlan instead of the ids, or beside them; then it is checked against them.
      weights, divisor: those of the forward.
      accumulation: "sequential", "fast" or "reproducible"; None: that of raggrad.accumulation.

    Returns:
      IndexedSlices of the rows that indices name, ascending.

    >>> import numpy as np
    >>> from raggrad import ops
    >>> grad = ops.sparse_segment_sum_grad(np.float32([[2], [6]]), indices=[4, 0, 4], segment_ids=[0, 0, 1], num_rows=5)
    >>> grad.values.tolist()
    [[2.0], [8.0]]
    """
    ids = ids_of("sparse_segment_sum_grad", indices, segment_ids, plan, weights, divisor, accumulation)
    return pool_grad("sparse_segment_sum_grad", "sum", grad, ids, num_rows)


@named()
def sparse_segment_sum_grad_apply_(
    table: Any,
    grad: Any,
    indices: Any = None,
    segment_ids: Any = None,
    *,
    optimizer: optimizers.Optimizer,
    plan: SegmentPlan | None = None,
    weights: Any = None,
    divisor: Divisor = "weights",
    accumulation: Accumulation | None = None,
) -> None:
    """Gradient of sparse_segment_sum and an optimizer step on the table, in one pass over the sorted ids.

    Gives the bits of sparse_segment_sum_grad(...).apply_(table, optimizer), but the gradient never reaches memory.

    Args:
      table: [rows, ...], changed in place; half, bfloat16 or float32 for gradients of any of these, or float64.
      grad: [segments, ...].
      indices, segment_ids, plan, weights, divisor: as for sparse_segment_sum_grad.
      optimizer: raggrad.optimizers.SGD, Adagrad, Adam or RowwiseAdagrad.

    >>> import numpy as np
    >>> from raggrad import ops, optimizers
    >>> table = np.float32([[1], [1]])
    >>> sgd = optimizers.SGD(learning_rate=0.5)
    >>> ops.sparse_segment_sum_grad_apply_(table, np.float32([[2]]), [1], [0], optimizer=sgd)
    >>> table.tolist()
    [[1.0], [0.0]]
    """
    ids = ids_of("sparse_segment_sum_grad_apply_", indices, segment_ids, plan, weights, divisor, accumulation)
    pool_grad_apply_("sparse_segment_sum_grad_apply_", "sum", table, grad, ids, optimizer)


@named()
def sparse_segment_sum_weights_grad(
    grad: Any,
    data: Any,
    indices: Any = None,
    segment_ids: Any = None,
    *,
    weights: Any,
    plan: SegmentPlan | None = None,
    divisor: Divisor = "weights",
    accumulation: Accumulation | None = None,
) -> Any:
    """Gradient of sparse_segment_sum with respect to `weights`.

    One pass over the rows, which are not copied.

    Args:
      grad: [segments, ...], in the type of data.
      data, indices, segment_ids, plan, weights, divisor, accumulation: those of the forward.

    Returns:
      [n], in the type of the weights.

    >>> import numpy as np
    >>> from raggrad import ops
    >>> data = np.float32([[1, 1], [2, 4]])
    >>> ops.sparse_segment_sum_weights_grad(np.float32([[1, 10]]), data, [0, 1], [0, 0], weights=[0.5, 3]).tolist()
    [11.0, 42.0]
    """
    ids = ids_of("sparse_segment_sum_weights_grad", indices, segment_ids, plan, weights, divisor, accumulation)
    return weights_grad("sparse_segment_sum_weights_grad", "sum", grad, data, ids)


@named()
def sparse_segment_mean(
    data: Any,
    indices: Any = None,
    segment_ids: Any = None,
    num_segments: Any = None,
    *,
    plan: SegmentPlan | None = None,
    weights: Any = None,
    divisor: Divisor = "weights",
    accumulation: Accumulation | None = None,
) -> Any:
    """Row s of the result is the mean of data[indices[i]] over all i with segment_ids[i] == s.

    Arguments and result are those of sparse_segment_sum, without integers.

    >>> import numpy as np
    >>> from raggrad import ops
    >>> ops.sparse_segment_mean(np.float32([[1], [2], [4]]), indices=[0, 1, 2], segment_ids=[0, 0, 1]).tolist()
    [[1.5], [4.0]]
    """
    ids = ids_of("sparse_segment_mean", indices, segment_ids, plan, weights, divisor, accumulation)
    return pool("sparse_segment_mean", "mean", data, ids, num_segments)


@named(table_rows="num_rows")
def sparse_segment_mean_grad(
    grad: Any,
    indices: Any = None,
    segment_ids: Any = None,
    num_rows: Any = None,
    *,
    plan: SegmentPlan | None = None,
    weights: Any = None,
    divisor: Divisor = "weights",
    accumulation: Accumulation | None = None,
) -> IndexedSlices:
    """Gradient of sparse_segment_mean with respect to `data`.

    Arguments and result are those of sparse_segment_sum_grad.

    >>> import numpy as np
    >>> from raggrad import ops
    >>> grad = ops.sparse_segment_mean_grad(np.float32([[2], [6]]), [4, 0, 4], segment_ids=[0, 0, 1], num_rows=5)
    >>> grad.values.tolist()
    [[1.0], [7.0]]
    """
    ids = ids_of("sparse_segment_mean_grad", indices, segment_ids, plan, weights, divisor, accumulation)
    return pool_grad("sparse_segment_mean_grad", "mean", grad, ids, num_rows)


@named()
def sparse_segment_mean_grad_apply_(
    table: Any,
    grad: Any,
    indices: Any = None,
    segment_ids: Any = None,
    *,
    optimizer: optimizers.Optimizer,
    plan: SegmentPlan | None = None,
    weights: Any = None,
    divisor: Divisor = "weights",
    accumulation: Accumulation | None = None,
) -> None:
    """Gradient of sparse_segment_mean and an optimizer step on the table, in one pass over the sorted ids.

    Arguments are those of sparse_segment_sum_grad_apply_.

    >>> import numpy as np
    >>> from raggrad import ops, optimizers
    >>> table = np.float32([[1], [1]])
    >>> sgd = optimizers.SGD(learning_rate=0.5)
    >>> ops.sparse_segment_mean_grad_apply_(table, np.float32([[2]]), [1], [0], optimizer=sgd)
    >>> table.tolist()
    [[1.0], [0.0]]
    """
    ids = ids_of("sparse_segment_mean_grad_apply_", indices, segment_ids, plan, weights, divisor, accumulation)
    pool_grad_apply_("sparse_segment_mean_grad_apply_", "mean", table, grad, ids, optimizer)


@named()
def sparse_segment_mean_weights_grad(
    grad: Any,
    data: Any,
    indices: Any = None,
    segment_ids: Any = None,
    *,
    weights: Any,
    plan: SegmentPlan | None = None,
    divisor: Divisor = "weights",
    accumulation: Accumulation | None = None,
) -> Any:
    """Gradient of sparse_segment_mean with respect to `weights`.

    Arguments and result are those of sparse_segment_sum_weights_grad.

    >>> import numpy as np
    >>> from raggrad import ops
    >>> data = np.float32([[1, 1], [2, 4]])
    >>> ops.sparse_segment_mean_weights_grad(np.float32([[1, 10]]), data, [0, 1], [0, 0], weights=[1, 3]).tolist()
    [-5.8125, 1.9375]
    """
    ids = ids_of("sparse_segment_mean_weights_grad", indices, segment_ids, plan, weights, divisor, accumulation)
    return weights_grad("sparse_segment_mean_weights_grad", "mean", grad, data, ids)


@named()
def sparse_segment_sqrtn(
    data: Any,
    indices: Any = None,
    segment_ids: Any = None,
    num_segments: Any = None,
    *,
    plan: SegmentPlan | None = None,
    weights: Any = None,
    divisor: Divisor = "weights",
    accumulation: Accumulation | None = None,
) -> Any:
    """Row s of the result is sum(x) / sqrt(n) of the n rows x = data[indices[i]] with segment_ids[i] == s.

    Arguments and result are those of sparse_segment_sum, without integers.

    >>> import numpy as np
    >>> from raggrad import ops
    >>> ops.sparse_segment_sqrtn(np.float32([[1], [2], [4]]), indices=[0, 1, 2, 0], segment_ids=[0, 0, 0, 0]).tolist()
    [[4.0]]
    """
    ids = ids_of("sparse_segment_sqrtn", indices, segment_ids, plan, weights, divisor, accumulation)
    return pool("sparse_segment_sqrtn", "sqrtn", data, ids, num_segments)


@named(table_rows="num_rows")
def sparse_segment_sqrtn_grad(
    grad: Any,
    indices: Any = None,
    segment_ids: Any = None,
    num_rows: Any = None,
    *,
    plan: SegmentPlan | None = None,
    weights: Any = None,
    divisor: Divisor = "weights",
    accumulation: Accumulation | None = None,
) -> IndexedSlices:
    """Gradient of sparse_segment_sqrtn with respect to `data`.

    Arguments and result are those of sparse_segment_sum_grad.

    >>> import numpy as np
    >>> from raggrad import ops
    >>> grad = ops.sparse_segment_sqrtn_grad(np.float32([[8]]), [1, 1, 2, 3], segment_ids=[0, 0, 0, 0], num_rows=5)
    >>> grad.values.tolist()
    [[8.0], [4.0], [4.0]]
    """
    ids = ids_of("sparse_segment_sqrtn_grad", indices, segment_ids, plan, weights, divisor, accumulation)
    return pool_grad("sparse_segment_sqrtn_grad", "sqrtn", grad, ids, num_rows)


@named()
def sparse_segment_sqrtn_grad_apply_(
    table: Any,
    grad: Any,
    indices: Any = None,
    segment_ids: Any = None,
    *,
    optimizer: optimizers.Optimizer,
    plan: SegmentPlan | None = None,
    weights: Any = None,
    divisor: Divisor = "weights",
    accumulation: Accumulation | None = None,
) -> None:
    """Gradient of sparse_segment_sqrtn and an optimizer step on the table, in one pass over the sorted ids.

    Arguments are those of sparse_segment_sum_grad_apply_.

    >>> import numpy as np
    >>> from raggrad import ops, optimizers
    >>> table = np.float32([[1], [1]])
    >>> sgd = optimizers.SGD(learning_rate=0.5)
    >>> ops.sparse_segment_sqrtn_grad_apply_(table, np.float32([[2]]), [1], [0], optimizer=sgd)
    >>> table.tolist()
    [[1.0], [0.0]]
    """
    ids = ids_of("sparse_segment_sqrtn_grad_apply_", indices, segment_ids, plan, weights, divisor, accumulation)
    pool_grad_apply_("sparse_segment_sqrtn_grad_apply_", "sqrtn", table, grad, ids, optimizer)


@named()
def sparse_segment_sqrtn_weights_grad(
    grad: Any,
    data: Any,
    indices: Any = None,
    segment_ids: Any = None,
    *,
    weights: Any,
    plan: SegmentPlan | None = None,
    divisor: Divisor = "weights",
    accumulation: Accumulation | None = None,
) -> Any:
    """Gradient of sparse_segment_sqrtn with respect to `weights`.

    Arguments and result are those of sparse_segment_sum_weights_grad.

    >>> import numpy as np
    >>> from raggrad import ops
    >>> data = np.float32([[1, 1], [2, 4]])
    >>> slopes = ops.sparse_segment_sqrtn_weights_grad(np.float32([[1, 10]]), data, [0, 1], [0, 0], weights=[3, 4])
    >>> [round(float(x), 3) for x in slopes]
    [-2.624, 1.968]
    """
    ids = ids_of("sparse_segment_sqrtn_weights_grad", indices, segment_ids, plan, weights, divisor, accumulation)
    return weights_grad("sparse_segment_sqrtn_weights_grad", "sqrtn", grad, data, ids)
