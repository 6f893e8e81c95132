"""Bags of several tables as bags of one table that has all their rows, one table below the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

OUT_OF_RANGE = -1  # an id that the operator refuses
FAR_BELOW = -(2**62)  # an offset that stays negative whatever is added


class Table(NamedTuple):
    """Rows `first` to `first + rows` of the stacked table."""

    first: int
    rows: int
    padding_idx: int | None


class Bags(NamedTuple):
    """Bags of one table."""

    ids: Tensor
    offsets: Tensor
    include_last_offset: bool
    weights: Tensor | None  # one for each id


class StackedBags(NamedTuple):
    """Ids, offsets, padding_idx and weights for the stacked table."""

    ids: Tensor
    offsets: Tensor
    padding_idx: int | None
    weights: Tensor | None


def count_of(bags: Bags) -> int:
    return bags.offsets.shape[0] - int(bags.include_last_offset)


def stack(tables: Sequence[Table], bags: Sequence[Bags], marks: bool) -> StackedBags | None:
    """The bags of all tables, in order; None if an id or an offset is wrong, which the caller explains.

    Bags without weights get ones if others have some. Reads all ids three times and writes them twice. With `marks`,
    for code that cannot look at ids, and on a GPU, a wrong one becomes an id that the operator refuses. Either
    way an id never reaches a row of another table.
    """
    dtype = torch.int32 if _fit_int32(tables, bags) else torch.int64
    padding = _padding_of(tables)
    if not marks and _can_be_placed_together(bags):
        return _placed_together(tables, bags, padding, dtype)
    place = _marked if marks else _checked
    some = next((feature.weights for feature in bags if feature.weights is not None), None)
    ids, offsets, weights, begin = [], [], [], 0
    for table, feature in zip(tables, bags, strict=True):
        placed = place(table, feature, padding, dtype)
        if placed is None:
            return None
        rows, starts = placed
        ids.append(rows)
        offsets.append(starts + begin)
        if some is not None:
            count = rows.shape[0]
            weights.append(some.new_ones(count) if feature.weights is None else feature.weights[:count])
        begin += rows.shape[0]
    return StackedBags(torch.cat(ids), torch.cat(offsets), padding, None if some is None else torch.cat(weights))


def _can_be_placed_together(bags: Sequence[Bags]) -> bool:
    """On a GPU, where every look at an id of a table waits, and every function of torch costs 10 us."""
    together = all(
        feature.ids.is_cuda
        and {feature.ids.dtype, feature.offsets.dtype} <= {torch.int32, torch.int64}
        and feature.offsets.dim() == 1
        and not feature.include_last_offset  # it says how many ids there are
        and feature.weights is None
        for feature in bags
    )
    return together and len({feature.ids.device for feature in bags}) == 1


def _placed_together(
    tables: Sequence[Table], bags: Sequence[Bags], padding: int | None, dtype: torch.dtype
) -> StackedBags:
    """As _marked for every table, with 20 functions of torch for all of them."""
    device = bags[0].ids.device
    places = []
    begin = bags_before = 0
    for table, feature in zip(tables, bags, strict=True):
        count = count_of(feature)
        ids = len(feature.ids) if count else 0
        no_row = table.rows if table.padding_idx is None else table.padding_idx
        places.append([ids, count, table.first, table.rows, no_row, begin, bags_before])
        begin += ids
        bags_before += count
    described = torch.tensor(places, dtype=torch.int64, device="cpu").t().contiguous()
    if device.type == "cuda":  # pinned memory is copied without a wait
        described = described.pin_memory()
    ids_in, bags_in, first, rows, no_row, begins, first_bag = described.to(device, non_blocking=True)

    ids = torch.cat([feature.ids if count_of(feature) else feature.ids[:0] for feature in bags]).to(dtype)
    of_id = torch.repeat_interleave(ids_in, output_size=begin)
    placed = torch.where((ids >= 0) & (ids < rows[of_id]), ids + first[of_id], OUT_OF_RANGE).to(dtype)
    if padding is not None:
        placed = torch.where(ids == no_row[of_id], padding, placed).to(dtype)

    offsets = torch.cat([feature.offsets for feature in bags]).to(torch.int64)
    of_bag = torch.repeat_interleave(bags_in, output_size=bags_before)
    starts = torch.where(offsets[first_bag[of_bag]] == 0, offsets + begins[of_bag], FAR_BELOW)
    return StackedBags(placed, starts, padding, None)


def _padding_of(tables: Sequence[Table]) -> int | None:
    """The row that stands for the padding of all tables: that of the first."""
    first = tables[0]
    return None if first.padding_idx is None else first.first + first.padding_idx


def _fit_int32(tables: Sequence[Table], bags: Sequence[Bags]) -> bool:
    fit = all(table.first + table.rows <= torch.iinfo(torch.int32).max for table in tables)
    return fit and all(feature.ids.dtype == torch.int32 for feature in bags)


def _checked(table: Table, bags: Bags, padding: int | None, dtype: torch.dtype) -> tuple[Tensor, Tensor] | None:
    """Rows of the stacked table and where bags start; None if an id is out of range or an offset would move ids to a
    bag of another table. The operator checks that offsets ascend.
    """
    ids, offsets = bags.ids, bags.offsets
    if not {ids.dtype, offsets.dtype} <= {torch.int32, torch.int64} or offsets.dim() != 1 or count_of(bags) < 0:
        return None
    if count_of(bags) == 0:
        ids = ids[:0]
    elif int(offsets[0]) != 0 or (end := int(offsets[-1])) > len(ids) or end < 0:
        return None
    elif bags.include_last_offset:
        ids = ids[:end]
    if len(ids):
        low, high = torch.aminmax(ids)
        if int(low) < 0 or int(high) >= table.rows:
            return None
    rows = ids.to(dtype) + table.first
    if table.padding_idx is not None:
        rows.masked_fill_(ids == table.padding_idx, padding)
    return rows, offsets[: count_of(bags)].to(torch.int64)


def _marked(table: Table, bags: Bags, padding: int | None, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """As _checked, with OUT_OF_RANGE and FAR_BELOW for wrong ids and offsets. Ids after the last bag are wrong, too."""
    ids, offsets = bags.ids, bags.offsets.to(torch.int64)
    if count_of(bags) == 0:
        return ids[:0].to(dtype), offsets[:0]
    rows = torch.where((ids >= 0) & (ids < table.rows), ids.to(dtype) + table.first, OUT_OF_RANGE)
    if table.padding_idx is not None:
        rows = torch.where(ids == table.padding_idx, padding, rows)
    if bags.include_last_offset:
        positions = torch.arange(ids.shape[0], device=ids.device)
        rows = torch.where(positions < offsets[-1], rows, OUT_OF_RANGE)
    starts = torch.where(offsets[:1] == 0, offsets, FAR_BELOW)
    return rows, starts[: count_of(bags)]
