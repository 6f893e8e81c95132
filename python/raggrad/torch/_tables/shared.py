"""Tables whose gradient is made together with other processes: what raggrad.dist.register sets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .._errors import is_stacked
from .._operators.embeddings import bags_of_one, embedding, embedding_bag, grad_of_weights
from .._operators.operator import once_differentiable
from .._operators.updates import apply_rows_
from .._pooling.waiting import must_not_wait
from .by_table import ByTable
from .fused import optimizer_of
from .sparse_gradients import make_grad

# Gradient of pooled rows, ids, offsets, weights, mode, include_last_offset, padding_idx, accumulation, and whether the
# table is updated at once -> values, rows.
Reducer = Callable[..., tuple[Tensor, Tensor]]

_reducers: ByTable[Reducer] = ByTable()


def share(table: Tensor, reducer: Reducer) -> None:
    """From now on `reducer` makes the gradient of this table in the backward of embeddings."""
    _reducers[table] = reducer


def is_shared(table: Tensor) -> bool:
    return _reducers.get(table) is not None


def reducer_of(table: Tensor) -> Reducer | None:
    """The function that makes the gradient of this table, if it is shared and a gradient is wanted."""
    reducer = _reducers.by_id(id(table))
    return reducer if reducer is not None and table.requires_grad and torch.is_grad_enabled() else None


class SharedBag(torch.autograd.Function):
    """embedding_bag with a gradient that a reducer makes."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, reducer: Reducer, *bags: Any) -> Tensor:
        indices, offsets, weights, mode, include_last_offset, padding_idx, ctx.sparse, accumulation = bags
        _remember(ctx, weight, reducer)
        ctx.options = mode, include_last_offset, padding_idx, accumulation
        ctx.save_for_backward(indices, offsets, weights, weight if weights is not None else None)
        return embedding_bag.without_grad(weight, *bags)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        indices, offsets, weights, table = ctx.saved_tensors
        d_weights = None
        if ctx.needs_input_grad[4]:
            d_weights = grad_of_weights(grad, table, indices, offsets, weights, ctx.options)
        d_table = _reduced(ctx, grad, indices, offsets, weights, *ctx.options)
        return d_table, None, None, None, d_weights, None, None, None, None, None


class SharedEmbedding(torch.autograd.Function):
    """embedding with a gradient that a reducer makes."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, reducer: Reducer, *ids: Any) -> Tensor:
        indices, ctx.padding_idx, ctx.sparse, ctx.accumulation = ids
        _remember(ctx, weight, reducer)
        ctx.save_for_backward(indices)
        return embedding.without_grad(weight, *ids)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        rows, ids, offsets = bags_of_one(grad, ctx.saved_tensors[0], ctx.table.shape)
        d_table = _reduced(ctx, rows, ids, offsets, None, "sum", False, ctx.padding_idx, ctx.accumulation)
        return d_table, None, None, None, None, None


def _remember(ctx: Any, table: Tensor, reducer: Reducer) -> None:
    if must_not_wait(table):
        raise RuntimeError(
            "raggrad.torch: the gradient of this table is summed over processes (raggrad.dist.register), which waits "
            "for a GPU: not inside raggrad.torch.without_waiting() or a CUDA graph"
        )
    with torch.enable_grad():  # as in the call that led here
        ctx.optimizer = optimizer_of(table)
    ctx.table, ctx.reducer = table, reducer


def _reduced(ctx: Any, *arguments: Any) -> Tensor | None:
    """The gradient of the table; None if a fused optimizer has taken it."""
    if is_stacked(arguments[0]):
        raise NotImplementedError("raggrad.dist.register: torch.vmap cannot stack gradients that ranks sum")
    values, rows = ctx.reducer(*arguments, ctx.optimizer is not None)
    if ctx.optimizer is not None:
        # Every row is there once: the order of sums makes no difference.
        ctx.optimizer.update_in_backward(ctx.table, apply_rows_, values, (rows,), None)
        return None
    if ctx.sparse:
        return make_grad(ctx.table, values, rows, ctx.table.shape)
    return values.new_zeros(ctx.table.shape).index_copy_(0, rows, values)
