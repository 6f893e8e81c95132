"""Bags on a GPU whose forward sorts the ids for backward, too. Backward then waits for nothing."""

from __future__ import annotations

import ctypes
import weakref
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from .. import _load
from .._errors import has_numbers
from .._operators import embeddings
from .._operators.operator import once_differentiable
from .._operators.updates import embedding_bag_planned_grad_apply_
from .._tables.quick_function import QuickFunction
from .._tables.sparse_gradients import make_grad

if TYPE_CHECKING:
    from .._optimizers.row_optimizer import RowOptimizer

_ops = torch.ops.raggrad

_forget_plan = ctypes.CDLL(str(_load.LIBRARY)).raggrad_torch_forget_plan
_forget_plan.argtypes = [ctypes.c_int64]
_forget_plan.restype = None


class Plan:
    """A plan of the ids, freed with this object."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number

    def __del__(self) -> None:
        _forget_plan(self.number)


def serves(weight: Tensor) -> bool:
    """Whether backward will come, and on a GPU. On a CPU nothing waits, and a plan only moves work to forward."""
    if not (weight.is_cuda and weight.requires_grad and torch.is_grad_enabled() and has_numbers(weight)):
        return False
    if torch._C._is_tracing():  # by torch.jit.trace, which knows operators only
        return False
    return not torch._C._are_functorch_transforms_active() and forward_ad._current_level < 0


class PlannedBag(QuickFunction):
    """embedding_bag without padding."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, weights: Tensor | None, sparse: bool, *bags: Any) -> Tensor:
        ctx.sparse, ctx.shape, ctx.weight = sparse, weight.shape, weakref.ref(weight)
        return _pool(ctx, weight, weights, *bags)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        indices, offsets, weights, _ = ctx.saved_tensors
        d_weight = None
        if ctx.needs_input_grad[0]:
            wanted_again = torch.is_grad_enabled()  # the plan's operators have no derivatives
            d_weight = (
                embeddings.grad_of_weight(ctx, grad, indices, offsets, weights)
                if wanted_again
                else _planned_grad(ctx, grad, weights)
            )
        d_weights = _grad_of_weights(ctx, grad) if ctx.needs_input_grad[1] else None
        return d_weight, d_weights, None, None, None, None


class FusedPlannedBag(QuickFunction):
    """embedding_bag without padding, with a backward that updates the table and has no gradient of it."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, weights: Tensor | None, optimizer: RowOptimizer, *bags: Any) -> Tensor:
        ctx.table, ctx.optimizer = weight, optimizer
        return _pool(ctx, weight, weights, *bags)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        d_weights = _grad_of_weights(ctx, grad) if ctx.needs_input_grad[1] else None
        mode, _, _, accumulation = ctx.options
        plan = ctx.plan.number, ctx.saved_tensors[2], mode
        ctx.optimizer.update_in_backward(ctx.table, embedding_bag_planned_grad_apply_, grad, plan, accumulation)
        return None, d_weights, None, None, None, None


def _pool(
    ctx: Any,
    weight: Tensor,
    weights: Tensor | None,
    indices: Tensor,
    offsets: Tensor,
    options: embeddings.Options,
) -> Tensor:
    mode, include_last_offset, _, accumulation = options
    pooled, number = _ops.embedding_bag_and_plan.default(
        weight, indices, offsets, weights, mode, include_last_offset, accumulation
    )
    ctx.plan, ctx.options = Plan(number), options
    # Another update between forward and backward is fine, but not for the gradient of the weights.
    ctx.save_for_backward(indices, offsets, weights, weight if weights is not None else None)
    return pooled


def _planned_grad(ctx: Any, grad: Tensor, weights: Tensor | None) -> Tensor:
    mode, *_, accumulation = ctx.options
    plan = ctx.plan.number, weights, mode, accumulation
    if not ctx.sparse:
        return _ops.embedding_bag_planned_grad.default(grad, *plan)
    return make_grad(ctx.weight(), *_ops.embedding_bag_planned_grad_rows.default(grad, *plan), ctx.shape)


def _grad_of_weights(ctx: Any, grad: Tensor) -> Tensor:
    indices, offsets, weights, table = ctx.saved_tensors
    return embeddings.grad_of_weights(grad, table, indices, offsets, weights, ctx.options)
