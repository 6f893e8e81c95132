"""raggrad without its shortcuts: it plans in every call, and gradient and update are two steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import raggrad

from ..workload import FUSED_SGD, WITH_PLAN
from . import Inputs, Way
from .raggrad import about, arrays, operator, step_operands, use_threads

__all__ = ["WAYS", "about", "use_threads"]


def _two_steps(inputs: Inputs) -> Callable[[], Any]:
    grad, indices, segment_ids, table, sgd = step_operands(inputs)

    def call() -> Any:
        raggrad.ops.sparse_segment_mean_grad(grad, indices, segment_ids, len(table)).apply_(table, sgd)
        return table

    return call


WAYS = {
    WITH_PLAN: [Way("raw_ops.SparseSegmentMeanGradV2", operator("SparseSegmentMeanGradV2"), arrays)],
    FUSED_SGD: [Way("ops.sparse_segment_mean_grad, then apply_", _two_steps, arrays)],
}
