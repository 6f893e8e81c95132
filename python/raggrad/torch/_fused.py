"""Tables that are updated in backward: rt.optim with fused=True."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from . import _embedding_operators as embeddings
from ._data_parallel import refuse_data_parallel
from ._sparse_gradients import leave_alone
from ._update_operators import embedding_bag_grad_apply_

if TYPE_CHECKING:
    from ._row_optimizer import RowOptimizer

# Weak references to optimizers. An attribute of the table would be pickled with it, and the optimizer too.
_optimizers = WeakIdKeyDictionary()


def take_over(table: Tensor, optimizer: RowOptimizer) -> None:
    """From now on the backward of embeddings updates the table, until the optimizer is gone."""
    _optimizers[table] = weakref.ref(optimizer)
    leave_alone(table)


def optimizer_of(table: Tensor) -> RowOptimizer | None:
    """The optimizer that updates this table in backward, if there is one and a gradient is wanted."""
    if torch.compiler.is_compiling() or not _optimizers:
        return None
    if not (table.requires_grad and torch.is_grad_enabled()) or torch._C._are_functorch_transforms_active():
        return None
    found = _optimizers.get(table)
    optimizer = None if found is None else found()
    if optimizer is not None:
        refuse_data_parallel(f"raggrad.torch.optim.{type(optimizer).__name__}", table, "what fused=True updates")
    return optimizer


class FusedBag(torch.autograd.Function):
    """embedding_bag with a backward that updates the table and has no gradient of it."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, optimizer: RowOptimizer, *bags: Any) -> Tensor:
        indices, offsets, weights, mode, include_last_offset, padding_idx, accumulation = bags
        ctx.table, ctx.optimizer = weight, optimizer
        ctx.options = mode, include_last_offset, padding_idx, accumulation
        # Another update between forward and backward is fine, but not for the gradient of the weights.
        ctx.save_for_backward(indices, offsets, weights, weight if weights is not None else None)
        return torch.ops.raggrad.embedding_bag.default(
            weight, indices, offsets, weights, mode, include_last_offset, padding_idx, True, accumulation
        )

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        indices, offsets, weights, table = ctx.saved_tensors
        *options, accumulation = ctx.options
        d_weights = None
        if ctx.needs_input_grad[4]:
            d_weights = embeddings.grad_of_weights(grad, table, indices, offsets, weights, ctx.options)
        ctx.optimizer.update_in_backward(
            ctx.table, embedding_bag_grad_apply_, grad, indices, offsets, weights, *options, accumulation=accumulation
        )
        return None, None, None, None, d_weights, None, None, None, None


class FusedEmbedding(torch.autograd.Function):
    """embedding with a backward that updates the table and has no gradient of it."""

    @staticmethod
    def forward(
        ctx: Any,
        weight: Tensor,
        optimizer: RowOptimizer,
        indices: Tensor,
        padding_idx: int | None,
        accumulation: str | None,
    ) -> Tensor:
        ctx.table, ctx.optimizer, ctx.padding_idx, ctx.accumulation = weight, optimizer, padding_idx, accumulation
        ctx.save_for_backward(indices)
        return torch.ops.raggrad.embedding.default(weight, indices, padding_idx, True, accumulation)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        rows, ids, offsets = embeddings.bags_of_one(grad, ctx.saved_tensors[0], ctx.table.shape)
        bags = ids, offsets, None, "sum", False, ctx.padding_idx
        ctx.optimizer.update_in_backward(
            ctx.table, embedding_bag_grad_apply_, rows, *bags, accumulation=ctx.accumulation
        )
        return None, None, None, None, None
