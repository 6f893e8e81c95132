"""Shapes and gradients of the operators that EmbeddingBag and Embedding use."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.library import register_fake

from ._operator import Operator
from ._operators import coo, fake_rows


@register_fake("raggrad::embedding_bag")
def _(
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    mode: str,
    include_last_offset: bool,
    padding_idx: int | None,
    sparse: bool,
    accumulation: str | None,
) -> Tensor:
    bags = offsets.shape[0] - 1 if include_last_offset else offsets.shape[0]
    return weight.new_empty((bags, *weight.shape[1:]))


@register_fake("raggrad::embedding_bag_grad")
def _(grad: Tensor, indices: Tensor, offsets: Tensor, table_rows: int, *_: Any) -> Tensor:
    return grad.new_empty((table_rows, *grad.shape[1:]))


@register_fake("raggrad::embedding_bag_grad_rows")
def _(grad: Tensor, indices: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return fake_rows(grad, indices)


@register_fake("raggrad::embedding")
def _(weight: Tensor, indices: Tensor, padding_idx: int | None, sparse: bool, accumulation: str | None) -> Tensor:
    return weight.new_empty((*indices.shape, *weight.shape[1:]))


def _save_bags(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    weight, indices, offsets, mode, include_last_offset, padding_idx, ctx.sparse, accumulation = inputs
    ctx.save_for_backward(indices, offsets)
    ctx.shape = weight.shape
    ctx.options = mode, include_last_offset, padding_idx, accumulation


def _grad_of_weight(grad: Tensor, indices: Tensor, offsets: Tensor, shape: Any, options: Any, sparse: bool) -> Tensor:
    if not sparse:
        return embedding_bag_grad(grad, indices, offsets, shape[0], *options)
    return coo(*embedding_bag_grad_rows(grad, indices, offsets, shape[0], *options), shape)


def _embedding_bag_backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    d_weight = _grad_of_weight(grad, *ctx.saved_tensors, ctx.shape, ctx.options, ctx.sparse)
    return d_weight, None, None, None, None, None, None, None


def _save_bags_of_grad(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    _, indices, offsets, _, *ctx.options = inputs
    ctx.save_for_backward(indices, offsets)


def _embedding_bag_grad_backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    mode, include_last_offset, padding_idx, accumulation = ctx.options
    d_grad = embedding_bag(
        grad, *ctx.saved_tensors, mode, include_last_offset, padding_idx, False, accumulation
    )
    return d_grad, None, None, None, None, None, None, None


def _save_bags_and_rows(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    _, indices, offsets, _, *ctx.options = inputs
    ctx.save_for_backward(indices, offsets, output[1])


def _embedding_bag_grad_rows_backward(ctx: Any, d_values: Tensor, d_rows: Any) -> tuple[Any, ...]:
    indices, offsets, rows = ctx.saved_tensors
    mode, include_last_offset, padding_idx, accumulation = ctx.options
    places = torch.searchsorted(rows, indices)
    if padding_idx is not None:  # padding is no row of the gradient
        places, padding_idx = places.masked_fill(indices == padding_idx, -1), -1
    d_grad = embedding_bag(d_values, places, offsets, mode, include_last_offset, padding_idx, False, accumulation)
    return d_grad, None, None, None, None, None, None, None


def _save_ids(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    weight, indices, padding_idx, ctx.sparse, accumulation = inputs
    ctx.save_for_backward(indices)
    ctx.shape = weight.shape
    ctx.options = "sum", False, padding_idx, accumulation


def _embedding_backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    (indices,) = ctx.saved_tensors
    offsets = torch.arange(indices.numel(), device=indices.device, dtype=indices.dtype)  # every id is its own bag
    rows = grad.reshape(indices.numel(), *ctx.shape[1:])
    d_weight = _grad_of_weight(rows, indices.reshape(-1), offsets, ctx.shape, ctx.options, ctx.sparse)
    return d_weight, None, None, None, None


embedding_bag = Operator("embedding_bag", _save_bags, _embedding_bag_backward)
embedding_bag_grad = Operator("embedding_bag_grad", _save_bags_of_grad, _embedding_bag_grad_backward)
embedding_bag_grad_rows = Operator("embedding_bag_grad_rows", _save_bags_and_rows, _embedding_bag_grad_rows_backward)
embedding = Operator("embedding", _save_ids, _embedding_backward)
