"""Shapes and gradients of the operators that EmbeddingBag and Embedding use.

With w the weights of ids, t the table and g a gradient of pooled rows: embedding_bag is linear in t and in w,
embedding_bag_grad in g and in w, and embedding_bag_weights_grad in g and in t. Each is the derivative of the others.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import Tensor

from .._errors import check_no_vmap
from .._tables.sparse_gradients import NAME_OF_GRADIENT, make_grad
from .fake import fake
from .operator import Operator
from .segments import fake_rows


@fake("embedding_bag")
def _(
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    per_sample_weights: Tensor | None,
    mode: str,
    include_last_offset: bool,
    *_: Any,
) -> Tensor:
    bags = offsets.shape[0] - 1 if include_last_offset else offsets.shape[0]
    return weight.new_empty((bags, *weight.shape[1:]))


@fake("embedding_bag_grad")
def _(
    grad: Tensor, indices: Tensor, offsets: Tensor, per_sample_weights: Tensor | None, table_rows: int, *_: Any
) -> Tensor:
    return grad.new_empty((table_rows, *grad.shape[1:]))


@fake("embedding_bag_grad_rows")
def _(grad: Tensor, indices: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return fake_rows(grad, indices)


@fake("embedding_bag_weights_grad")
def _(grad: Tensor, weight: Tensor, indices: Tensor, *_: Any) -> Tensor:
    return weight.new_empty(indices.shape)


@fake("embedding")
def _(weight: Tensor, indices: Tensor, *_: Any) -> Tensor:
    return weight.new_empty((*indices.shape, *weight.shape[1:]))


# mode, include_last_offset, padding_idx, accumulation
Options = tuple[str, bool, int | None, str | None]


def grad_of_weight(ctx: Any, grad: Tensor, indices: Tensor, offsets: Tensor, weights: Tensor | None) -> Tensor:
    """The gradient of embedding_bag's table, for a ctx with sparse, shape, options and weight."""
    if not ctx.sparse:
        return embedding_bag_grad(grad, indices, offsets, weights, ctx.shape[0], *ctx.options)
    check_no_vmap(NAME_OF_GRADIENT, grad, indices, offsets, weights)
    values, rows = embedding_bag_grad_rows(grad, indices, offsets, weights, ctx.shape[0], *ctx.options)
    return make_grad(ctx.weight(), values, rows, ctx.shape)


def grad_of_weights(grad: Tensor, table: Tensor, indices: Tensor, offsets: Tensor, weights: Any, options: Any) -> Any:
    """The gradient of embedding_bag's weights."""
    return embedding_bag_weights_grad(grad, table, indices, offsets, *options[:3]).to(weights.dtype)


def _save_bags(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    weight, indices, offsets, weights, mode, include_last_offset, padding_idx, ctx.sparse, accumulation = inputs
    ctx.options = mode, include_last_offset, padding_idx, accumulation
    ctx.shape, ctx.weight = weight.shape, weakref.ref(weight)
    ctx.save_for_backward(indices, offsets, weights, weight if weights is not None else None)


def _embedding_bag_backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    indices, offsets, weights, table = ctx.saved_tensors
    d_weight = d_weights = None
    if ctx.needs_input_grad[0]:
        d_weight = grad_of_weight(ctx, grad, indices, offsets, weights)
    if ctx.needs_input_grad[3]:
        d_weights = grad_of_weights(grad, table, indices, offsets, weights, ctx.options)
    return d_weight, None, None, d_weights, None, None, None, None, None


def _save_bags_of_grad(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    grad, indices, offsets, weights, _, *ctx.options = inputs
    ctx.save_for_backward(indices, offsets, weights, grad if weights is not None else None)


def _pooled(table: Tensor, indices: Tensor, offsets: Tensor, weights: Tensor | None, options: Any) -> Tensor:
    mode, include_last_offset, padding_idx, accumulation = options
    return embedding_bag(table, indices, offsets, weights, mode, include_last_offset, padding_idx, False, accumulation)


def _embedding_bag_grad_backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    indices, offsets, weights, upstream = ctx.saved_tensors
    d_grad = d_weights = None
    if ctx.needs_input_grad[0]:
        d_grad = _pooled(grad, indices, offsets, weights, ctx.options)
    if ctx.needs_input_grad[3]:
        d_weights = grad_of_weights(upstream, grad, indices, offsets, weights, ctx.options)
    return d_grad, None, None, d_weights, None, None, None, None, None


def _save_bags_and_rows(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    grad, indices, offsets, weights, _, *ctx.options = inputs
    ctx.save_for_backward(indices, offsets, weights, grad if weights is not None else None, output[1])


def _embedding_bag_grad_rows_backward(ctx: Any, d_values: Tensor, d_rows: Any) -> tuple[Any, ...]:
    indices, offsets, weights, upstream, rows = ctx.saved_tensors
    mode, include_last_offset, padding_idx, accumulation = ctx.options
    places = torch.searchsorted(rows, indices)
    if padding_idx is not None:  # padding is no row of the gradient
        places, padding_idx = places.masked_fill(indices == padding_idx, -1), -1
    options = mode, include_last_offset, padding_idx, accumulation
    d_grad = d_weights = None
    if ctx.needs_input_grad[0]:
        d_grad = _pooled(d_values, places, offsets, weights, options)
    if ctx.needs_input_grad[3]:
        d_weights = grad_of_weights(upstream, d_values, places, offsets, weights, options)
    return d_grad, None, None, d_weights, None, None, None, None, None


def _save_products(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    grad, weight, indices, offsets, *ctx.options = inputs
    ctx.save_for_backward(grad, weight, indices, offsets)


def _embedding_bag_weights_grad_backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    upstream, table, indices, offsets = ctx.saved_tensors
    options = *ctx.options, None
    d_upstream = d_table = None
    if ctx.needs_input_grad[0]:
        d_upstream = _pooled(table, indices, offsets, grad, options)
    if ctx.needs_input_grad[1]:
        d_table = embedding_bag_grad(upstream, indices, offsets, grad, table.shape[0], *options)
    return d_upstream, d_table, None, None, None, None, None


def _save_ids(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    weight, indices, padding_idx, ctx.sparse, accumulation = inputs
    ctx.save_for_backward(indices)
    ctx.shape, ctx.weight = weight.shape, weakref.ref(weight)
    ctx.options = "sum", False, padding_idx, accumulation


def bags_of_one(grad: Tensor, indices: Tensor, shape: Any) -> tuple[Tensor, Tensor, Tensor]:
    """The gradient of embedding as that of bags with one id each: gradient, ids, offsets."""
    ids = indices.reshape(-1)
    offsets = torch.arange(ids.shape[0], device=ids.device, dtype=ids.dtype)
    return grad.reshape(ids.shape[0], *shape[1:]), ids, offsets


def _embedding_backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    rows, ids, offsets = bags_of_one(grad, ctx.saved_tensors[0], ctx.shape)
    d_weight = grad_of_weight(ctx, rows, ids, offsets, None)
    return d_weight, None, None, None, None


embedding_bag = Operator("embedding_bag", _save_bags, _embedding_bag_backward, linear=(0, 3))
embedding_bag_grad = Operator("embedding_bag_grad", _save_bags_of_grad, _embedding_bag_grad_backward, linear=(0, 3))
embedding_bag_grad_rows = Operator(
    "embedding_bag_grad_rows", _save_bags_and_rows, _embedding_bag_grad_rows_backward, linear=(0, 3)
)
embedding_bag_weights_grad = Operator(
    "embedding_bag_weights_grad", _save_products, _embedding_bag_weights_grad_backward, linear=(0, 1)
)
embedding = Operator("embedding", _save_ids, _embedding_backward)
