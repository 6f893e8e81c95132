"""Operators that have no kernel of their own for CUDA: other operators and torch's functions stand in."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.library import impl

from .. import _load as _load

ops = torch.ops.raggrad


@impl("raggrad::segment", "CUDA")
def _(data: Tensor, segment_ids: Tensor, num_segments: int, combiner: str, accumulation: str | None) -> Tensor:
    ascending, positions = torch.sort(segment_ids, stable=True)
    return ops.sparse_segment(data, positions, ascending, num_segments, combiner, accumulation)


@impl("raggrad::ascends", "CUDA")
def _(ids: Tensor) -> Tensor:
    return (ids[1:] > ids[:-1]).all()
