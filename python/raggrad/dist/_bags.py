"""Bags of ids, cut by offsets."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..ops.checks import up_to


class Bags(NamedTuple):
    """Bags of this rank, without padding."""

    ids: Tensor  # [n], int64
    bags: Tensor  # [n]: the bag of every id
    sizes: Tensor  # [bags]
    weights: Tensor | None  # [n]

    @property
    def starts(self) -> Tensor:
        return torch.cumsum(self.sizes, 0) - self.sizes


def cut(
    name: str, ids: Tensor, offsets: Tensor, weights: Tensor | None, include_last_offset: bool, padding_idx: int | None
) -> Bags:
    """The bags, or a ValueError of the function `name` for bad offsets. Ids are not looked at."""
    for argument, numbers in (("input", ids), ("offsets", offsets)):
        if numbers.dtype not in (torch.int32, torch.int64):
            raise ValueError(f"{name}: {argument}: expected int32 or int64, got {numbers.dtype}")
        if numbers.dim() != 1:
            raise ValueError(f"{name}: {argument}: expected 1 dimension, got {numbers.dim()}")
    sizes = _sizes_of(name, offsets.to(torch.int64), ids.shape[0], include_last_offset)
    ids = ids[: int(sizes.sum())].to(torch.int64)
    weights = None if weights is None else weights[: ids.shape[0]]
    bags = torch.repeat_interleave(torch.arange(sizes.shape[0], device=ids.device), sizes)
    if padding_idx is not None:
        kept = ids != padding_idx
        ids, bags = ids[kept], bags[kept]
        weights = None if weights is None else weights[kept]
        sizes = torch.bincount(bags, minlength=sizes.shape[0])
    return Bags(ids, bags, sizes, weights)


def check_ids(name: str, ids: Tensor, rows: int) -> None:
    if ids.numel() == 0:
        return
    low, high = (int(end) for end in torch.aminmax(ids))
    if low < 0 or high >= rows:
        wrong = low if low < 0 else high
        place = int((ids == wrong).nonzero()[0])
        raise ValueError(f"{name}: input[{place}]: expected {up_to(rows, 'the table has no rows')}, got {wrong}")


def _sizes_of(name: str, starts: Tensor, ids: int, include_last_offset: bool) -> Tensor:
    ends = starts if include_last_offset else torch.cat([starts, starts.new_tensor([ids])])
    if ends.shape[0] == 0:
        raise ValueError(f"{name}: offsets: expected at least one with include_last_offset, got none")
    if ends.shape[0] == 1:
        return starts.new_empty(0)
    sizes = ends[1:] - ends[:-1]
    if int(ends[0]) != 0 or int(ends[-1]) > ids or bool((sizes < 0).any()):
        raise ValueError(f"{name}: offsets: expected numbers that ascend from 0 to at most {ids}")
    return sizes
