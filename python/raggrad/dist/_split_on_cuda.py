"""The steps of reproducible sums (raggrad/ops/sparse_segment/split_sums.h) for CUDA, made of torch's functions.

The engine has these steps for host memory only. Each of them is exact or rounds once, without fused multiply-add, so
that torch gives the engine's bits; the functions run on any device, and tests compare them with the engine on a CPU.
Sums are exact, so that no order of additions shows. They take about five passes over an array of 8 bytes for every
value of every id, a strip of columns at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.library import impl

from ..torch import _load as _load

_ops = torch.ops.raggrad
_VALUES_AT_ONCE = 1 << 24  # of a strip: 128 MB in double, a few times


def order_ids(ids: Tensor, table_rows: int) -> tuple[Tensor, Tensor, Tensor]:
    """The unique ids, ascending; of every id, in that order, its position, and its place among the unique ones."""
    ascending, positions = torch.sort(ids.to(torch.int64), stable=True)
    unique, places = torch.unique_consecutive(ascending, return_inverse=True)
    if unique.shape[0] and not 0 <= int(unique[0]) <= int(unique[-1]) < table_rows:
        raise ValueError(f"raggrad.dist: an id is out of range: expected 0 to {table_rows - 1}")
    return unique, positions, places


def split_largest(
    data: Tensor, indices: Tensor, segment_ids: Tensor, factors: Tensor | None, num_segments: int
) -> Tensor:
    """The largest finite magnitude of each sum's terms."""
    segment_ids = segment_ids.to(torch.int64)
    largest = torch.zeros(num_segments, dtype=_sum_type(data), device=data.device)
    for strip in _strips(data, indices):
        terms = _terms(strip, indices, factors).abs()
        largest.scatter_reduce_(0, segment_ids, terms.masked_fill(~terms.isfinite(), 0).amax(1), "amax")
    return largest


def split_sums(
    data: Tensor, indices: Tensor, segment_ids: Tensor, factors: Tensor | None, largest: Tensor, counts: Tensor
) -> Tensor:
    """Exact sums of terms on their grids: first those of all columns; for float64, then those of what these leave."""
    grid = _grid_of(largest, counts).of(segment_ids)
    places = torch.arange(indices.shape[0], device=data.device)

    def added(values: Tensor) -> Tensor:
        return _ops.sparse_segment(values, places, segment_ids, counts.shape[0], "sum", "fast")

    first, second = [], []
    for strip in _strips(data, indices):
        terms = _terms(strip, indices, factors).to(torch.float64)
        if data.dtype == torch.float64:
            terms = terms * grid.scale
        rounded = (terms + grid.magic) - grid.magic
        first.append(added(rounded))
        if data.dtype == torch.float64:
            second.append(added(((terms - rounded) + grid.magic2) - grid.magic2))
    if not first:
        return torch.zeros(counts.shape[0], 0, dtype=torch.float64, device=data.device)
    return torch.cat([*first, *second], 1)


def split_round(sums: Tensor, largest: Tensor, counts: Tensor, like: Tensor, combiner: str) -> Tensor:
    """Divides and rounds once."""
    divisors = divisors_of(counts, combiner)[:, None]
    if like.dtype != torch.float64:
        smallest = torch.finfo(torch.float32).tiny
        return _without_subnormals(sums / divisors, smallest, smallest - 2.0**-150).to(torch.float32).to(like.dtype)
    grid = _grid_of(largest, counts)
    total, rest = sums.chunk(2, 1)
    total = total + torch.where(total.isfinite(), rest, 0.0)  # remainders of infinities are NaN
    smallest = torch.finfo(torch.float64).tiny / grid.shrink
    return _without_subnormals(total * grid.growth / divisors, smallest, smallest * (1 - 2.0**-53)) * grid.shrink


def divisors_of(counts: Tensor, combiner: str) -> Tensor:
    """1, n or the root of n, in float64. By NumPy, whose roots are exact to the last bit; torch's are not."""
    if combiner == "sum":
        return torch.ones_like(counts, dtype=torch.float64)
    numbers = np.maximum(counts.cpu().numpy(), 1).astype(np.float64)
    return torch.from_numpy(numbers if combiner == "mean" else np.sqrt(numbers)).to(counts.device)


class _Grid(NamedTuple):
    """core/sum_grid.h, for every sum or every term: [n, 1]."""

    magic: Tensor
    magic2: Tensor
    scale: Tensor
    growth: Tensor
    shrink: Tensor

    def of(self, segment_ids: Tensor) -> _Grid:
        return _Grid(*(numbers.index_select(0, segment_ids) for numbers in self))


def _grid_of(largest: Tensor, counts: Tensor) -> _Grid:
    bits = torch.frexp(counts.clamp(min=1).to(torch.float64)).exponent.to(torch.int64)
    if largest.dtype == torch.float64:
        biased = largest.view(torch.int64) >> 52
        exponent = biased - 1023
        scale = 600 * ((exponent < -900).to(torch.int64) - (exponent > 900).to(torch.int64)) * (biased > 0)
        exponent = torch.where(biased > 0, exponent + scale, 0)
    else:
        exponent = (largest.view(torch.int32) >> 23).to(torch.int64) - 127
        scale = torch.zeros_like(exponent)
    numbers = (
        1.5 * _power_of_two(exponent + 1 + bits),
        1.5 * _power_of_two(exponent + 2 * bits - 51),
        _power_of_two(scale),
        _power_of_two(-scale.clamp(max=0)),
        _power_of_two(-scale.clamp(min=0)),
    )
    return _Grid(*(number[:, None] for number in numbers))


def _power_of_two(exponent: Tensor) -> Tensor:
    return ((exponent + 1023) << 52).view(torch.float64)


def _sum_type(data: Tensor) -> torch.dtype:
    return torch.float64 if data.dtype == torch.float64 else torch.float32


def _strips(data: Tensor, indices: Tensor) -> Iterator[Tensor]:
    """The data, cut by columns."""
    columns = max(_VALUES_AT_ONCE // max(indices.shape[0], 1), 1)
    return iter(data.split(columns, 1) if data.shape[1] else ())


def _terms(strip: Tensor, indices: Tensor, factors: Tensor | None) -> Tensor:
    rows = _flushed(strip.index_select(0, indices).to(_sum_type(strip)))
    return rows if factors is None else _flushed(rows * _flushed(factors)[:, None])


def _flushed(values: Tensor) -> Tensor:
    """Without subnormal numbers, as in the engine's environment."""
    return values.masked_fill(values.abs() < torch.finfo(values.dtype).tiny, 0)


def _without_subnormals(values: Tensor, smallest: Tensor | float, limit: Tensor | float) -> Tensor:
    magnitudes = values.abs()
    normal = torch.where(magnitudes < smallest, values.sign() * smallest, values)
    return torch.where(magnitudes < limit, 0.0, normal)


for _function in (order_ids, split_largest, split_sums, split_round):
    impl(f"raggrad::{_function.__name__}", "CUDA")(_function)
