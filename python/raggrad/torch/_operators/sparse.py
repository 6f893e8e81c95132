"""Shapes and gradients of the operators on entries of sparse tensors, and of rows that are added to rows."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.library import get_ctx

from .fake import fake
from .operator import Operator

# Rows added to rows.


@fake("index_add")
def _(input: Tensor, source: Tensor, index: Tensor, alpha: float, accumulation: str | None) -> Tensor:
    return input.new_empty(input.shape)


def _save_index(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    _, _, index, ctx.alpha, _ = inputs
    ctx.save_for_backward(index)


def _index_add_backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    return grad, grad.index_select(0, ctx.saved_tensors[0]) * ctx.alpha, None, None, None


index_add = Operator("index_add", _save_index, _index_add_backward, linear=(0, 1), together=True)


# Empty rows filled.


@fake("fill_empty_rows")
def _(values: Tensor, default_value: Tensor, indices: Tensor, shape: list[int]) -> tuple[Tensor, ...]:
    count = get_ctx().new_dynamic_size()  # depends on the data
    return (
        values.new_empty((count,)),
        indices.new_empty((count, indices.shape[1])),
        values.new_empty((shape[0],), dtype=torch.bool),
        indices.new_empty((values.shape[0],)),
    )


@fake("fill_empty_rows_grad")
def _(grad: Tensor, places: Tensor, accumulation: str | None) -> tuple[Tensor, Tensor]:
    return grad.new_empty(places.shape), grad.new_empty(())


def _save_places(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(output[3])


def _fill_empty_rows_backward(ctx: Any, grad: Tensor, *_: Any) -> tuple[Any, ...]:
    return (*torch.ops.raggrad.fill_empty_rows_grad(grad, ctx.saved_tensors[0], None), None, None)


def _save_places_of_grad(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.save_for_backward(inputs[1])
    ctx.count = inputs[0].shape[0]


def _fill_empty_rows_grad_backward(ctx: Any, d_values: Tensor, d_default_value: Tensor) -> tuple[Any, ...]:
    filled = d_default_value.expand(ctx.count)
    return filled.index_copy(0, ctx.saved_tensors[0], d_values), None, None


fill_empty_rows = Operator("fill_empty_rows", _save_places, _fill_empty_rows_backward, linear=(0, 1), together=True)
torch.library.register_autograd(
    "raggrad::fill_empty_rows_grad", _fill_empty_rows_grad_backward, setup_context=_save_places_of_grad
)


# Boxes cut out.


@fake("sparse_slice")
def _(values: Tensor, indices: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    count = get_ctx().new_dynamic_size()  # depends on the data
    return values.new_empty((count,)), indices.new_empty((count, indices.shape[1]))


@fake("sparse_slice_grad")
def _(grad: Tensor, indices: Tensor, *_: Any) -> Tensor:
    return grad.new_empty((indices.shape[0],))


def _save_slice(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    _, indices, *ctx.box = inputs
    ctx.save_for_backward(indices, output[1])


def _sparse_slice_backward(ctx: Any, grad: Tensor, _: Any) -> tuple[Any, ...]:
    return sparse_slice_grad(grad, *ctx.saved_tensors, *ctx.box), None, None, None, None


def _save_slice_of_grad(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    _, indices, _, *ctx.box = inputs
    ctx.save_for_backward(indices)


def _sparse_slice_grad_backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    return sparse_slice(grad, ctx.saved_tensors[0], *ctx.box)[0], None, None, None, None, None


sparse_slice = Operator("sparse_slice", _save_slice, _sparse_slice_backward)
sparse_slice_grad = Operator("sparse_slice_grad", _save_slice_of_grad, _sparse_slice_grad_backward)
