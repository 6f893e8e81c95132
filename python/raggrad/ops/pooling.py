"""Calls of the bindings, with or without a plan, for sparse_segment_* and the lookups."""

from __future__ import annotations

import operator
from typing import Any, NamedTuple

from .. import _core, optimizers
from .._core import SegmentPlan
from ..errors import InvalidArgumentError
from ..indexed_slices import IndexedSlices
from ..settings import accumulation_or_current


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


def weighted_by(name: str, weights: Any, divisor: str) -> tuple[Any, str] | None:
    """The weights as the bindings take them."""
    if divisor not in ("weights", "count"):
        raise InvalidArgumentError(f"{name}: divisor: expected 'weights' or 'count', got {divisor!r}")
    return None if weights is None else (weights, divisor)


class Ids(NamedTuple):
    """Which rows go where, and how much of them."""

    indices: Any
    segment_ids: Any
    plan: SegmentPlan | None
    weights: tuple[Any, str] | None = None
    accumulation: str | None = None

    def mode(self) -> str | None:
        return accumulation_or_current(self.accumulation)


def ids_of(
    name: str,
    indices: Any,
    segment_ids: Any,
    plan: SegmentPlan | None,
    weights: Any = None,
    divisor: str = "weights",
    accumulation: str | None = None,
) -> Ids:
    _check_ids(name, indices, segment_ids, plan)
    return Ids(indices, segment_ids, plan, weighted_by(name, weights, divisor), accumulation)


def pool(name: str, combiner: str, data: Any, ids: Ids, num_segments: Any) -> Any:
    if ids.plan is not None:
        _check_size(name, "num_segments", num_segments, ids.plan.num_segments)
        return _core.segment_with_plan(name, combiner, data, ids.plan, ids.mode(), ids.weights)
    return _core.segment(
        name, "data", combiner, data, ids.indices, ids.segment_ids, num_segments, ids.mode(), ids.weights
    )


def pool_grad(name: str, combiner: str, grad: Any, ids: Ids, num_rows: Any) -> IndexedSlices:
    mode = ids.mode()
    if ids.plan is not None:
        _check_size(name, "num_rows", num_rows, ids.plan.num_rows)
        num_rows = ids.plan.num_rows
        values, rows = _core.segment_grad_with_plan(name, combiner, grad, ids.plan, mode, ids.weights)
    elif num_rows is None:
        raise InvalidArgumentError(f"{name}: expected num_rows, the rows of the table, or a plan; got neither")
    else:
        values, rows = _core.segment_grad(
            name, combiner, grad, ids.indices, ids.segment_ids, num_rows, mode, ids.weights
        )
    return IndexedSlices(values, rows, (operator.index(num_rows), *values.shape[1:]))


def pool_grad_apply_(
    name: str, combiner: str, table: Any, grad: Any, ids: Ids, optimizer: optimizers.Optimizer
) -> None:
    update = optimizers.begin(name, optimizer)
    mode = ids.mode()
    if ids.plan is not None:
        _core.segment_grad_apply_with_plan(name, combiner, grad, ids.plan, update, table, mode, ids.weights)
    else:
        _core.segment_grad_apply(name, combiner, grad, ids.indices, ids.segment_ids, update, table, mode, ids.weights)
    optimizers.end(optimizer)


def weights_grad(name: str, combiner: str, grad: Any, data: Any, ids: Ids) -> Any:
    if ids.weights is None:
        raise InvalidArgumentError(f"{name}: weights: expected one for each id, got None")
    if ids.plan is not None:
        return _core.segment_weights_grad_with_plan(name, combiner, grad, data, ids.plan, ids.mode(), ids.weights)
    return _core.segment_weights_grad(
        name, combiner, grad, data, ids.indices, ids.segment_ids, ids.mode(), ids.weights
    )
