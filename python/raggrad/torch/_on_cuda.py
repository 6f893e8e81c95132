"""Operators that have no kernel of their own for CUDA: other operators and torch's functions stand in."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.library import impl

from . import _load as _load

ops = torch.ops.raggrad


def _bags(indices: Tensor, offsets: Tensor, include_last_offset: bool, padding_idx: int | None) -> tuple[Any, ...]:
    """Ids without padding, the bag of each, and the number of bags."""
    bags = offsets.shape[0] - include_last_offset
    if include_last_offset:
        indices = indices[: int(offsets[-1])]
    starts = offsets[:bags]
    positions = torch.arange(indices.shape[0], device=indices.device, dtype=starts.dtype)
    segment_ids = torch.searchsorted(starts, positions, right=True) - 1
    if padding_idx is not None:
        kept = indices != padding_idx
        indices, segment_ids = indices[kept], segment_ids[kept]
    return indices, segment_ids, bags


def _check_no_weights(op: str, per_sample_weights: Tensor | None) -> None:
    if per_sample_weights is not None:
        raise RuntimeError(f"UNIMPLEMENTED: raggrad::{op}: [per_sample_weights: not on a GPU yet]")


@impl("raggrad::embedding_bag", "CUDA")
def _(
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    per_sample_weights: Tensor | None,
    mode: str,
    include_last_offset: bool,
    padding_idx: int | None,
    sparse: bool,
    accumulation: str | None,
) -> Tensor:
    _check_no_weights("embedding_bag", per_sample_weights)
    ids, segment_ids, bags = _bags(indices, offsets, include_last_offset, padding_idx)
    return ops.sparse_segment(weight, ids, segment_ids, bags, mode, accumulation)


@impl("raggrad::embedding_bag_grad", "CUDA")
def _(
    grad: Tensor,
    indices: Tensor,
    offsets: Tensor,
    per_sample_weights: Tensor | None,
    table_rows: int,
    mode: str,
    include_last_offset: bool,
    padding_idx: int | None,
    accumulation: str | None,
) -> Tensor:
    _check_no_weights("embedding_bag_grad", per_sample_weights)
    ids, segment_ids, _ = _bags(indices, offsets, include_last_offset, padding_idx)
    return ops.sparse_segment_grad(grad, ids, segment_ids, table_rows, mode, accumulation)


@impl("raggrad::embedding_bag_grad_rows", "CUDA")
def _(
    grad: Tensor,
    indices: Tensor,
    offsets: Tensor,
    per_sample_weights: Tensor | None,
    table_rows: int,
    mode: str,
    include_last_offset: bool,
    padding_idx: int | None,
    accumulation: str | None,
) -> tuple[Tensor, Tensor]:
    _check_no_weights("embedding_bag_grad_rows", per_sample_weights)
    ids, segment_ids, _ = _bags(indices, offsets, include_last_offset, padding_idx)
    return ops.sparse_segment_grad_rows(grad, ids, segment_ids, table_rows, mode, accumulation)


@impl("raggrad::embedding", "CUDA")
def _(weight: Tensor, indices: Tensor, padding_idx: int | None, sparse: bool, accumulation: str | None) -> Tensor:
    return torch.embedding(weight, indices)


@impl("raggrad::segment", "CUDA")
def _(data: Tensor, segment_ids: Tensor, num_segments: int, combiner: str, accumulation: str | None) -> Tensor:
    ascending, positions = torch.sort(segment_ids, stable=True)
    return ops.sparse_segment(data, positions, ascending, num_segments, combiner, accumulation)


@impl("raggrad::segment_grad", "CUDA")
def _(grad: Tensor, segment_ids: Tensor, combiner: str, accumulation: str | None) -> Tensor:
    rows = segment_ids.shape[0]
    positions = torch.arange(rows, device=segment_ids.device)
    return ops.sparse_segment_grad(grad, positions, segment_ids, rows, combiner, accumulation)


@impl("raggrad::ascends", "CUDA")
def _(ids: Tensor) -> Tensor:
    return (ids[1:] > ids[:-1]).all()
