"""raggrad itself, called from Python."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import raggrad

from ..workload import FUSED_SGD, ONE_PIECE, WITH_PLAN
from . import Inputs, Way, bringer


def about() -> dict[str, str]:
    return {"raggrad": raggrad.__version__, "numpy": np.__version__}


def use_threads(count: int) -> None:
    raggrad.set_num_threads(count)


def operator(name: str) -> Callable[[Inputs], Callable[[], Any]]:
    def prepare(inputs: Inputs) -> Callable[[], Any]:
        function = getattr(raggrad.raw_ops, name)
        operands = {key: value for key, value in inputs.items() if key != "size"}
        return lambda: function(**operands)

    return prepare


def _with_plan(inputs: Inputs) -> Callable[[], Any]:
    grad, rows = inputs["grad"], int(inputs["dense_output_dim0"])
    plan = raggrad.SegmentPlan(inputs["indices"], inputs["segment_ids"], rows, len(grad))

    def call() -> tuple[Any, Any]:
        slices = raggrad.ops.sparse_segment_mean_grad(grad, plan=plan)
        return slices.values, slices.indices

    return call


def _fused_sgd(inputs: Inputs) -> Callable[[], Any]:
    grad, indices, segment_ids, table, sgd = step_operands(inputs)

    def call() -> Any:
        raggrad.ops.sparse_segment_mean_grad_apply_(table, grad, indices, segment_ids, optimizer=sgd)
        return table

    return call


def step_operands(inputs: Inputs) -> tuple[Any, ...]:
    """Gradient, ids, a table of zeros, and an optimizer whose first step makes the table the negated gradient."""
    grad = inputs["grad"]
    table = np.zeros((int(inputs["dense_output_dim0"]), grad.shape[1]), grad.dtype)
    return grad, inputs["indices"], inputs["segment_ids"], table, raggrad.optimizers.SGD(learning_rate=1.0)


def _ragged(inputs: Inputs) -> Callable[[], Any]:
    pieces: list[Any] = [raggrad.Ragged([], piece) for piece in np.split(inputs["values"], inputs["row_splits"][1:-1])]
    for number in inputs["missing"]:
        pieces[number] = None
    encoded = raggrad.VariantArray(pieces)
    shape = np.int32(inputs["values"].shape)
    splits = inputs["row_splits"]
    operator = raggrad.raw_ops.RaggedTensorToVariantGradient
    return lambda: operator(
        encoded_ragged_grad=encoded, row_splits=splits, dense_values_shape=shape, Tvalues="float32"
    )


def _unbatch(inputs: Inputs) -> Callable[[int], Any]:
    return bringer(inputs, raggrad.raw_ops.UnbatchGrad, lambda array: array)


def arrays(result: Any) -> list[np.ndarray]:
    return [np.asarray(array) for array in (result if isinstance(result, tuple) else (result,))]


_OPERATORS = ("SparseSegmentMeanGradV2", "SparseFillEmptyRowsGrad", "SparseSliceGrad")

# A function that an older raggrad lacks fails in `prepare`, and the way is reported as missing.
WAYS = {
    **{name: [Way(f"raw_ops.{name}", operator(name), arrays)] for name in _OPERATORS},
    "RaggedTensorToVariantGradient": [Way("raw_ops.RaggedTensorToVariantGradient", _ragged, arrays)],
    "UnbatchGrad": [Way("raw_ops.UnbatchGrad", _unbatch, arrays)],
    ONE_PIECE: [Way("raw_ops.UnbatchGrad", lambda inputs: partial(_unbatch(inputs), 0), arrays)],
    WITH_PLAN: [Way("ops.sparse_segment_mean_grad with a plan", _with_plan, arrays)],
    FUSED_SGD: [Way("ops.sparse_segment_mean_grad_apply_", _fused_sgd, arrays)],
}
