"""Calls of the bindings, with or without a plan, for sparse_segment_* and the lookups."""

from __future__ import annotations

import operator
from typing import Any

from .. import _core, optimizers
from .._core import SegmentPlan
from ..errors import InvalidArgumentError
from ..indexed_slices import IndexedSlices
from ..settings import sum_order


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
    order = sum_order.get()
    if plan is not None:
        _check_size(name, "num_rows", num_rows, plan.num_rows)
        num_rows = plan.num_rows
        values, rows = _core.segment_grad_with_plan(name, combiner, grad, plan, order)
    elif num_rows is None:
        raise InvalidArgumentError(f"{name}: expected num_rows, the rows of the table, or a plan; got neither")
    else:
        values, rows = _core.segment_grad(name, combiner, grad, indices, segment_ids, num_rows, order)
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
    order = sum_order.get()
    if plan is not None:
        _core.segment_grad_apply_with_plan(name, combiner, grad, plan, update, table, order)
    else:
        _core.segment_grad_apply(name, combiner, grad, indices, segment_ids, update, table, order)
    optimizers.end(optimizer)
