"""Rows that several ranks have, added up by the ranks that own them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ..torch._operators.segments import coalesce_rows
from ._cuts import balanced_bounds, sample, slices_of
from ._messages import HEADER_NUMBERS, Ranks
from ._routes import Routes, gather, short_ids


class Rows(NamedTuple):
    """Some rows of a table: unique, ascending."""

    values: Tensor  # [n, inner...]
    rows: Tensor  # [n], int64
    table_rows: int


def facts_of(tables: Sequence[Rows], **others: object) -> dict[str, object]:
    """All that ranks must agree on before they exchange rows."""
    facts = {
        f"table {number}:": f"{table.table_rows} rows of shape {tuple(table.values.shape[1:])}, {table.values.dtype}"
        for number, table in enumerate(tables)
    }
    return {**facts, **{f"{name} =": value for name, value in others.items()}}


def agree_on_bounds(
    ranks: Ranks, tables: Sequence[Rows], facts: dict[str, object], fault: Exception | None = None
) -> list[list[int]]:
    """The ranges of rows that ranks own during one exchange, for every table."""
    size = max(HEADER_NUMBERS // max(len(tables), 1) - 1, 0)
    numbers: list[int] = []
    if size and fault is None:
        for table in tables:
            numbers += [table.rows.shape[0], *sample(table.rows, size)]
    headers = ranks.agree(facts, fault, numbers)
    bounds = []
    for number, table in enumerate(tables):
        begin = number * (size + 1)
        counts = [header[begin] for header in headers] if size else [0] * ranks.count
        samples = [header[begin + 1 : begin + 1 + size] for header in headers]
        bounds.append(balanced_bounds(table.table_rows, counts, samples))
    return bounds


def sum_at_owners(
    ranks: Ranks, tables: Sequence[Rows], bounds: Sequence[Sequence[int]], wire: torch.dtype | None
) -> list[Rows]:
    """Rows of this rank's ranges, summed over all ranks in the order of the ranks."""
    routes = Routes(ranks, [slices_of(table.rows, cut) for table, cut in zip(tables, bounds, strict=True)])
    arrays = [[short_ids(table.rows, table.table_rows), _on_wire(table.values, wire)] for table in tables]
    summed = []
    for table, (rows, values) in zip(tables, routes.forth("rows", arrays), strict=True):
        values = values.to(table.values.dtype)
        sums, unique = coalesce_rows(values, rows.to(torch.int64), table.table_rows, "sequential")
        summed.append(Rows(sums, unique, table.table_rows))
    return summed


def spread(ranks: Ranks, tables: Sequence[Rows], wire: torch.dtype | None) -> list[Rows]:
    """The rows that owners have, on every rank."""
    arrays = [[short_ids(table.rows, table.table_rows), _on_wire(table.values, wire)] for table in tables]
    return [
        Rows(values.to(table.values.dtype), rows.to(torch.int64), table.table_rows)
        for table, (rows, values) in zip(tables, gather(ranks, "sums", arrays), strict=True)
    ]


def sum_type(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


def divided(values: Tensor, count: int) -> Tensor:
    """values / count, with the same bits on every device: by a number, torch's GPU multiplies by 1 / count."""
    wide = values.to(sum_type(values.dtype))
    return (wide / torch.full((), count, dtype=wide.dtype, device=wide.device)).to(values.dtype)


def _on_wire(values: Tensor, wire: torch.dtype | None) -> Tensor:
    values = values.contiguous()
    return values if wire is None else values.to(wire)
