"""Options that several functions of raggrad.dist have."""

from __future__ import annotations

from ..settings import ACCUMULATIONS
from ..torch._errors import whole_number

_ACCUMULATIONS = (None, *ACCUMULATIONS)


def check_accumulation(name: str, accumulation: str | None) -> None:
    if accumulation not in _ACCUMULATIONS:
        raise ValueError(f"raggrad.dist.{name}: accumulation: expected one of {_ACCUMULATIONS}, got {accumulation!r}")


def padding_row(name: str, padding_idx: int | None, rows: int) -> int | None:
    """The row that padding_idx names, which may count from the end."""
    if padding_idx is None:
        return None
    if not -rows <= whole_number(f"raggrad.dist.{name}: padding_idx", padding_idx) < rows:
        raise ValueError(f"raggrad.dist.{name}: padding_idx: expected -{rows} to {rows - 1}, got {padding_idx}")
    return padding_idx % rows
