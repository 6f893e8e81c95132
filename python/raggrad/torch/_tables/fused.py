"""Tables that are updated in backward: rt.optim with fused=True."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from .._operators import embeddings
from .._operators.operator import once_differentiable
from .._operators.updates import (
    Update,
    apply_rows_,
    embedding_bag_grad_apply_,
    embedding_bag_planned_grad_apply_,
)
from .by_table import ByTable
from .data_parallel import refuse_data_parallel
from .quick_function import QuickFunction
from .sparse_gradients import leave_alone

if TYPE_CHECKING:
    from .._optimizers.row_optimizer import RowOptimizer

_optimizers: ByTable[weakref.ref[RowOptimizer]] = ByTable()


def take_over(table: Tensor, optimizer: RowOptimizer) -> None:
    """From now on the backward of embeddings updates the table, until the optimizer is gone."""
    _optimizers[table] = weakref.ref(optimizer)
    leave_alone(table)


def optimizer_of(table: Tensor) -> RowOptimizer | None:
    """The optimizer that updates this table in backward, if there is one and a gradient is wanted."""
    found = _optimizers.by_id(id(table))
    optimizer = None if found is None else found()
    if optimizer is None or not (table.requires_grad and torch.is_grad_enabled()):
        return None
    if torch._C._are_functorch_transforms_active():
        return None
    if DistributedDataParallel._active_ddp_module is not None:
        refuse_data_parallel(f"raggrad.torch.optim.{type(optimizer).__name__}", table, "what fused=True updates")
    return optimizer


def rows_of_bags(table: Tensor, operator: Update, grad: Tensor, *bags: Any) -> tuple[Tensor, Tensor]:
    """The values and rows of the gradient that an operator of update_in_backward would make."""
    if operator is apply_rows_:
        return grad, bags[0]
    if operator is embedding_bag_planned_grad_apply_:
        return torch.ops.raggrad.embedding_bag_planned_grad_rows.default(grad, *bags)
    ids, offsets, weights, *options = bags
    return embeddings.embedding_bag_grad_rows(grad, ids, offsets, weights, table.shape[0], *options)


class FusedBag(QuickFunction):
    """embedding_bag with a backward that updates the table and has no gradient of it."""

    @staticmethod
    def forward(
        ctx: Any,
        weight: Tensor,
        weights: Tensor | None,
        optimizer: RowOptimizer,
        indices: Tensor,
        offsets: Tensor,
        options: embeddings.Options,
    ) -> Tensor:
        ctx.table, ctx.optimizer, ctx.options = weight, optimizer, options
        mode, include_last_offset, padding_idx, accumulation = options
        # Another update between forward and backward is fine, but not for the gradient of the weights.
        ctx.save_for_backward(indices, offsets, weights, weight if weights is not None else None)
        return embeddings.embedding_bag.without_grad(
            weight, indices, offsets, weights, mode, include_last_offset, padding_idx, True, accumulation
        )

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        indices, offsets, weights, table = ctx.saved_tensors
        d_weights = None
        if ctx.needs_input_grad[1]:
            d_weights = embeddings.grad_of_weights(grad, table, indices, offsets, weights, ctx.options)
        mode, include_last_offset, padding_idx, accumulation = ctx.options
        bags = indices, offsets, weights, mode, include_last_offset, padding_idx
        ctx.optimizer.update_in_backward(ctx.table, embedding_bag_grad_apply_, grad, bags, accumulation)
        return None, d_weights, None, None, None, None


class FusedEmbedding(QuickFunction):
    """embedding with a backward that updates the table and has no gradient of it."""

    @staticmethod
    def forward(
        ctx: Any,
        weight: Tensor,
        _: None,
        optimizer: RowOptimizer,
        indices: Tensor,
        padding_idx: int | None,
        accumulation: str | None,
    ) -> Tensor:
        ctx.table, ctx.optimizer, ctx.padding_idx, ctx.accumulation = weight, optimizer, padding_idx, accumulation
        ctx.save_for_backward(indices)
        return embeddings.embedding.without_grad(weight, indices, padding_idx, True, accumulation)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        rows, ids, offsets = embeddings.bags_of_one(grad, ctx.saved_tensors[0], ctx.table.shape)
        bags = ids, offsets, None, "sum", False, ctx.padding_idx
        ctx.optimizer.update_in_backward(ctx.table, embedding_bag_grad_apply_, rows, bags, ctx.accumulation)
        return None, None, None, None, None, None
