"""Sums that have the same bits on any number of ranks.

Terms are rounded to a grid that depends on the largest term and the number of terms of a sum, on all ranks together.
What is rounded like that adds up exactly in double, in any order, and is rounded once more at the end
(raggrad/ops/sparse_segment/split_sums.h). So owners first learn about the terms of every row, then answer with the
grid, and then get sums in double: besides ids, 12 bytes a row each way, and twice the bytes of float32 rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ..torch._operators.segments import coalesce_rows
from ._bags import Bags
from ._cuts import slices_of
from ._messages import Ranks
from ._routes import Routes, short_ids
from ._split_on_cuda import divisors_of
from ._sums import Rows, sum_type

MOST_EXACT_ROWS = 2**31 - 1  # of a table
_ops = torch.ops.raggrad


class Terms(NamedTuple):
    """data[indices[i]] * factors[i] belongs to sum segment_ids[i]. These ascend."""

    data: Tensor  # [.., width]
    indices: Tensor
    segment_ids: Tensor
    factors: Tensor | None

    def largest(self, sums: int) -> Tensor:
        return _ops.split_largest(self.data, self.indices, self.segment_ids, self.factors, sums)

    def add(self, largest: Tensor, counts: Tensor) -> Tensor:
        """Exact sums in float64; two in a row for float64 data."""
        return _ops.split_sums(self.data, self.indices, self.segment_ids, self.factors, largest, counts)


def rounded(sums: Tensor, largest: Tensor, counts: Tensor, like: Tensor, mode: str) -> Tensor:
    return _ops.split_round(sums, largest, counts, like, mode)


def _factors_of(bags: Bags, mode: str, dtype: torch.dtype) -> Tensor | None:
    """The factor of every id in the gradient of its row: 1, 1 / n or 1 / sqrt(n) for bags of n, times its weight.

    Rounded as the engine does: without weights the quotient is computed in float64, with weights in the type of sums.
    """
    if bags.weights is None and mode == "sum":
        return None
    divisors = divisors_of(bags.sizes, mode)
    if bags.weights is None:
        return (1.0 / divisors).to(sum_type(dtype))[bags.bags]
    return bags.weights.detach().to(sum_type(dtype)) / divisors.to(sum_type(dtype))[bags.bags]


def gradient_terms(grad: Tensor, bags: Bags, mode: str, rows: int) -> tuple[Tensor, Terms]:
    """The rows of a table that ids name, ascending, and the terms of their gradients. `grad` is that of pooled bags."""
    unique, positions, places = _ops.order_ids(bags.ids, rows)
    factors = _factors_of(bags, mode, grad.dtype)
    data = grad.flatten(1)
    return unique, Terms(data, bags.bags[positions], places, None if factors is None else factors[positions])


def sum_at_owners(ranks: Ranks, rows: Tensor, terms: Terms, table_rows: int, bounds: Sequence[int]) -> Rows:
    """Rows of this rank's range, summed over all ranks."""
    count = rows.shape[0]
    routes = Routes(ranks, [slices_of(rows, bounds)])
    mine = terms.largest(count), torch.bincount(terms.segment_ids, minlength=count)
    ((ids, largest, counts),) = routes.forth("magnitudes", [[short_ids(rows, table_rows), *mine]])
    unique, positions, places = _ops.order_ids(ids, table_rows)
    row_of = torch.empty_like(places).scatter_(0, positions, places)  # of every entry that came, its unique row
    largest = largest.new_zeros(unique.shape[0]).scatter_reduce_(0, row_of, largest, "amax")
    counts = counts.new_zeros(unique.shape[0]).index_add_(0, row_of, counts)
    ((row_largest, row_counts),) = routes.back("grids", [[largest[row_of], counts[row_of]]])
    ((sums,),) = routes.forth("exact sums", [[terms.add(row_largest, row_counts)]])
    total, _ = coalesce_rows(sums, ids.to(torch.int64), table_rows, "sequential")
    return Rows(rounded(total, largest, counts, terms.data, "sum"), unique, table_rows)
