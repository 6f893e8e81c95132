"""Pooled rows of a table, their gradients, and the gradient and the update of the table in one pass.

All of them take the ids as `indices` and `segment_ids`, or a SegmentPlan made from them, or both: then the plan is
checked to be theirs. A plan spares a third to a half of a gradient's time, and results are the same bits.
"""

from __future__ import annotations

import operator
from typing import Any

from .. import _core, optimizers
from .._core import SegmentPlan
from .._named import named
from ..errors import InvalidArgumentError
from ..indexed_slices import IndexedSlices
from ..settings import fast_accumulation


def _check_ids(name: str, indices: Any, segment_ids: Any, plan: SegmentPlan | None) -> None:
    if plan is not None and not isinstance(plan, SegmentPlan):
        raise InvalidArgumentError(f"{name}: plan: expected a raggrad.SegmentPlan, got {type(plan).__name__}")
    if (indices is None) != (segment_ids is None):
        raise InvalidArgumentError(f"{name}: indices and segment_ids belong together; one of them is missing")
    if indices is None and plan is None:
        raise InvalidArgumentError(f"{name}: expected indices and segment_ids, or a plan; got neither")
    if indices is not None and plan is not None:
        plan.check_made_from(indices, segment_ids)


def _check_size(name: str, argument: str, given: Any, planned: int) -> None:
    if given is not None and given != planned:
        raise InvalidArgumentError(
            f"{name}: the plan was made for another size [{argument}: expected {planned}, got {given}]"
        )


def pool(
    name: str, combiner: str, data: Any, indices: Any, segment_ids: Any, num_segments: Any, plan: SegmentPlan | None
) -> Any:
    _check_ids(name, indices, segment_ids, plan)
    if plan is not None:
        _check_size(name, "num_segments", num_segments, plan.num_segments)
        return _core.segment_with_plan(name, combiner, data, plan)
    return _core.segment(name, "data", combiner, data, indices, segment_ids, num_segments)


def pool_grad(
    name: str, combiner: str, grad: Any, indices: Any, segment_ids: Any, num_rows: Any, plan: SegmentPlan | None
) -> IndexedSlices:
    _check_ids(name, indices, segment_ids, plan)
    fast = fast_accumulation.get()
    if plan is not None:
        _check_size(name, "num_rows", num_rows, plan.num_rows)
        num_rows = plan.num_rows
        values, rows = _core.segment_grad_with_plan(name, combiner, grad, plan, fast)
    elif num_rows is None:
        raise InvalidArgumentError(f"{name}: expected num_rows, the rows of the table, or a plan; got neither")
    else:
        values, rows = _core.segment_grad(name, combiner, grad, indices, segment_ids, num_rows, fast)
    return IndexedSlices(values, rows, (operator.index(num_rows), *values.shape[1:]))


def pool_grad_apply_(
    name: str,
    combiner: str,
    table: Any,
    grad: Any,
    indices: Any,
    segment_ids: Any,
    optimizer: optimizers.Optimizer,
    plan: SegmentPlan | None,
) -> None:
    _check_ids(name, indices, segment_ids, plan)
    update = optimizers.begin(name, optimizer)
    fast = fast_accumulation.get()
    if plan is not None:
        _core.segment_grad_apply_with_plan(name, combiner, grad, plan, update, table, fast)
    else:
        _core.segment_grad_apply(name, combiner, grad, indices, segment_ids, update, table, fast)
    optimizers.end(optimizer)


@named()
def segment_sum(
    data: Any,
    indices: Any = None,
    segment_ids: Any = None,
    num_segments: Any = None,
    *,
    plan: SegmentPlan | None = None,
) -> Any:
    """Row s of the result is the sum of data[indices[i]] over all i with segment_ids[i] == s.

    Args:
      data: [rows, ...], half, bfloat16, float32 or float64; also integers.
      indices: [n], integers: which rows; may repeat. int32 and int64 are taken as they are, others copied.
      segment_ids: [n], integers, ascending: where they go.
      num_segments: rows of the result; the last segment id + 1 if it is not given.
      plan: a SegmentPlan, instead of the ids or to be checked against them.

    Returns:
      [num_segments, ...]; zeros for segments that no id names.

    >>> import numpy as np
    >>> from raggrad import ops
    >>> ops.segment_sum(np.float32([[1], [2], [4]]), indices=[0, 1, 2], segment_ids=[0, 0, 1]).tolist()
    [[3.0], [4.0]]
    """
    return pool("segment_sum", "sum", data, indices, segment_ids, num_segments, plan)


@named()
def segment_sum_grad(
    grad: Any,
    indices: Any = None,
    segment_ids: Any = None,
    num_rows: Any = None,
    *,
    plan: SegmentPlan | None = None,
) -> IndexedSlices:
    """Gradient of segment_sum with respect to `data`.

    Args:
      grad: [segments, ...], half, bfloat16, float32 or float64.
      indices: [n], integers in [0, num_rows). int32 and int64 are taken as they are, others copied.
      segment_ids: [n], integers in [0, segments), in any order.
      num_rows: rows of the table; at most 2^32.
      plan: a SegmentPlan, instead of the ids or to be checked against them.

    Returns:
      IndexedSlices of the rows that were used, ascending.

    >>> import numpy as np
    >>> from raggrad import ops
    >>> grad = ops.segment_sum_grad(np.float32([[2], [6]]), indices=[4, 0, 4], segment_ids=[0, 0, 1], num_rows=5)
    >>> grad.values.tolist()
    [[2.0], [8.0]]
    """
    return pool_grad("segment_sum_grad", "sum", grad, indices, segment_ids, num_rows, plan)


@named()
def segment_sum_grad_apply_(
    table: Any,
    grad: Any,
    indices: Any = None,
    segment_ids: Any = None,
    *,
    optimizer: optimizers.Optimizer,
    plan: SegmentPlan | None = None,
) -> None:
    """Gradient of segment_sum and an optimizer step on the table, in one pass over the sorted ids.

    The bits of segment_sum_grad(...).apply_(table, optimizer), without the gradient's way through memory.

    Args:
      table: [rows, ...], changed in place; half, bfloat16 or float32 for gradients of any of these, or float64.
      grad: [segments, ...].
      indices, segment_ids, plan: as for segment_sum_grad.
      optimizer: raggrad.optimizers.SGD, Adagrad or Adam.

    >>> import numpy as np
    >>> from raggrad import ops, optimizers
    >>> table = np.float32([[1], [1]])
    >>> sgd = optimizers.SGD(learning_rate=0.5)
    >>> ops.segment_sum_grad_apply_(table, np.float32([[2]]), [1], [0], optimizer=sgd)
    >>> table.tolist()
    [[1.0], [0.0]]
    """
    pool_grad_apply_("segment_sum_grad_apply_", "sum", table, grad, indices, segment_ids, optimizer, plan)


@named()
def segment_mean(
    data: Any,
    indices: Any = None,
    segment_ids: Any = None,
    num_segments: Any = None,
    *,
    plan: SegmentPlan | None = None,
) -> Any:
    """Row s of the result is the mean of data[indices[i]] over all i with segment_ids[i] == s.

    Arguments and result are those of segment_sum.

    >>> import numpy as np
    >>> from raggrad import ops
    >>> ops.segment_mean(np.float32([[1], [2], [4]]), indices=[0, 1, 2], segment_ids=[0, 0, 1]).tolist()
    [[1.5], [4.0]]
    """
    return pool("segment_mean", "mean", data, indices, segment_ids, num_segments, plan)


@named()
def segment_mean_grad(
    grad: Any,
    indices: Any = None,
    segment_ids: Any = None,
    num_rows: Any = None,
    *,
    plan: SegmentPlan | None = None,
) -> IndexedSlices:
    """Gradient of segment_mean with respect to `data`.

    Arguments and result are those of segment_sum_grad.

    >>> import numpy as np
    >>> from raggrad import ops
    >>> grad = ops.segment_mean_grad(np.float32([[2], [6]]), indices=[4, 0, 4], segment_ids=[0, 0, 1], num_rows=5)
    >>> grad.values.tolist()
    [[1.0], [7.0]]
    """
    return pool_grad("segment_mean_grad", "mean", grad, indices, segment_ids, num_rows, plan)


@named()
def segment_mean_grad_apply_(
    table: Any,
    grad: Any,
    indices: Any = None,
    segment_ids: Any = None,
    *,
    optimizer: optimizers.Optimizer,
    plan: SegmentPlan | None = None,
) -> None:
    """Gradient of segment_mean and an optimizer step on the table, in one pass over the sorted ids.

    Arguments are those of segment_sum_grad_apply_.

    >>> import numpy as np
    >>> from raggrad import ops, optimizers
    >>> table = np.float32([[1], [1]])
    >>> sgd = optimizers.SGD(learning_rate=0.5)
    >>> ops.segment_mean_grad_apply_(table, np.float32([[2]]), [1], [0], optimizer=sgd)
    >>> table.tolist()
    [[1.0], [0.0]]
    """
    pool_grad_apply_("segment_mean_grad_apply_", "mean", table, grad, indices, segment_ids, optimizer, plan)


@named()
def segment_sqrt_n(
    data: Any,
    indices: Any = None,
    segment_ids: Any = None,
    num_segments: Any = None,
    *,
    plan: SegmentPlan | None = None,
) -> Any:
    """Row s of the result is sum(x) / sqrt(n) of the n rows x = data[indices[i]] with segment_ids[i] == s.

    Arguments and result are those of segment_sum.

    >>> import numpy as np
    >>> from raggrad import ops
    >>> ops.segment_sqrt_n(np.float32([[1], [2], [4], [1]]), indices=[0, 1, 2, 3], segment_ids=[0, 0, 0, 0]).tolist()
    [[4.0]]
    """
    return pool("segment_sqrt_n", "sqrtn", data, indices, segment_ids, num_segments, plan)


@named()
def segment_sqrt_n_grad(
    grad: Any,
    indices: Any = None,
    segment_ids: Any = None,
    num_rows: Any = None,
    *,
    plan: SegmentPlan | None = None,
) -> IndexedSlices:
    """Gradient of segment_sqrt_n with respect to `data`.

    Arguments and result are those of segment_sum_grad.

    >>> import numpy as np
    >>> from raggrad import ops
    >>> grad = ops.segment_sqrt_n_grad(np.float32([[8]]), indices=[1, 1, 2, 3], segment_ids=[0, 0, 0, 0], num_rows=5)
    >>> grad.values.tolist()
    [[8.0], [4.0], [4.0]]
    """
    return pool_grad("segment_sqrt_n_grad", "sqrtn", grad, indices, segment_ids, num_rows, plan)


@named()
def segment_sqrt_n_grad_apply_(
    table: Any,
    grad: Any,
    indices: Any = None,
    segment_ids: Any = None,
    *,
    optimizer: optimizers.Optimizer,
    plan: SegmentPlan | None = None,
) -> None:
    """Gradient of segment_sqrt_n and an optimizer step on the table, in one pass over the sorted ids.

    Arguments are those of segment_sum_grad_apply_.

    >>> import numpy as np
    >>> from raggrad import ops, optimizers
    >>> table = np.float32([[1], [1]])
    >>> sgd = optimizers.SGD(learning_rate=0.5)
    >>> ops.segment_sqrt_n_grad_apply_(table, np.float32([[2]]), [1], [0], optimizer=sgd)
    >>> table.tolist()
    [[1.0], [0.0]]
    """
    pool_grad_apply_("segment_sqrt_n_grad_apply_", "sqrtn", table, grad, indices, segment_ids, optimizer, plan)
