"""Shapes and gradients of torch.ops.raggrad's operators, whose kernels are C++ (doors/torch)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.library import get_ctx

from .fake import fake
from .operator import Operator


def coo(values: Tensor, rows: Tensor, shape: tuple[int, ...]) -> Tensor:
    """A sparse tensor with these rows, which are unique and ascending. Copies nothing but int32 rows."""
    rows = rows.long().view(1, -1)  # faster than unsqueeze
    return torch.sparse_coo_tensor(rows, values, shape, is_coalesced=True, check_invariants=False)


# Rows of a table, pooled by segment.


@fake("sparse_segment")
def _(data: Tensor, indices: Tensor, segment_ids: Tensor, num_segments: int, *_: Any) -> Tensor:
    return data.new_empty((num_segments, *data.shape[1:]))


@fake("sparse_segment_grad")
def _(grad: Tensor, indices: Tensor, segment_ids: Tensor, table_rows: int, *_: Any) -> Tensor:
    return grad.new_empty((table_rows, *grad.shape[1:]))


@fake("sparse_segment_grad_rows")
def _(grad: Tensor, indices: Tensor, segment_ids: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return fake_rows(grad, indices)


def fake_rows(grad: Tensor, indices: Tensor) -> tuple[Tensor, Tensor]:
    num_unique = get_ctx().new_dynamic_size()  # depends on the data
    return grad.new_empty((num_unique, *grad.shape[1:])), indices.new_empty((num_unique,))


def _save_segments(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    rows, indices, segment_ids, _, ctx.combiner, ctx.accumulation = inputs
    ctx.save_for_backward(indices, segment_ids)
    ctx.rows = rows.shape[0]


def _sparse_segment_backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    indices, segment_ids = ctx.saved_tensors
    d_data = sparse_segment_grad(grad, indices, segment_ids, ctx.rows, ctx.combiner, ctx.accumulation)
    return d_data, None, None, None, None, None


def _sparse_segment_grad_backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    indices, segment_ids = ctx.saved_tensors
    d_grad = sparse_segment(grad, indices, segment_ids, ctx.rows, ctx.combiner, ctx.accumulation)
    return d_grad, None, None, None, None, None


def _save_segments_and_rows(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    grad, indices, segment_ids, _, ctx.combiner, ctx.accumulation = inputs
    ctx.save_for_backward(indices, segment_ids, output[1])
    ctx.rows = grad.shape[0]


def _sparse_segment_grad_rows_backward(ctx: Any, d_values: Tensor, d_rows: Any) -> tuple[Any, ...]:
    indices, segment_ids, rows = ctx.saved_tensors
    places = torch.searchsorted(rows, indices)
    d_grad = sparse_segment(d_values, places, segment_ids, ctx.rows, ctx.combiner, ctx.accumulation)
    return d_grad, None, None, None, None, None


sparse_segment = Operator("sparse_segment", _save_segments, _sparse_segment_backward)
sparse_segment_grad = Operator("sparse_segment_grad", _save_segments, _sparse_segment_grad_backward)
sparse_segment_grad_rows = Operator(
    "sparse_segment_grad_rows", _save_segments_and_rows, _sparse_segment_grad_rows_backward
)


# Rows of an array, pooled by segment ids in any order.


@fake("segment")
def _(data: Tensor, segment_ids: Tensor, num_segments: int, combiner: str, accumulation: Any) -> Tensor:
    return data.new_empty((num_segments, *data.shape[1:]))


@fake("segment_grad")
def _(grad: Tensor, segment_ids: Tensor, combiner: str, accumulation: Any) -> Tensor:
    return grad.new_empty((segment_ids.shape[0], *grad.shape[1:]))


def _save_segment(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    data, segment_ids, *_, ctx.combiner, ctx.accumulation = inputs
    ctx.save_for_backward(segment_ids)
    ctx.rows = data.shape[0]


def _segment_backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    d_data = segment_grad(grad, ctx.saved_tensors[0], ctx.combiner, ctx.accumulation)
    return d_data, None, None, None, None


def _segment_grad_backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    d_grad = segment(grad, ctx.saved_tensors[0], ctx.rows, ctx.combiner, ctx.accumulation)
    return d_grad, None, None, None


segment = Operator("segment", _save_segment, _segment_backward)
segment_grad = Operator("segment_grad", _save_segment, _segment_grad_backward)


# Rows with ids.


@fake("ascends")
def _(ids: Tensor) -> Tensor:
    return ids.new_empty((), dtype=torch.bool)


@fake("coalesce_rows")
def _(values: Tensor, rows: Tensor, table_rows: int, accumulation: Any) -> tuple[Tensor, Tensor]:
    return fake_rows(values, rows)


def _save_rows(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(inputs[1], output[1])


def _coalesce_rows_backward(ctx: Any, d_values: Tensor, d_rows: Any) -> tuple[Any, ...]:
    rows, unique_rows = ctx.saved_tensors
    return d_values.index_select(0, torch.searchsorted(unique_rows, rows)), None, None, None


coalesce_rows = Operator("coalesce_rows", _save_rows, _coalesce_rows_backward)
