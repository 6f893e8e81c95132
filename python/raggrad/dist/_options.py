"""Options and limits that several functions of raggrad.dist have."""

from __future__ import annotations

from ..settings import ACCUMULATIONS

MOST_ROWS = 2**32  # of a table: the engine's limit

_ACCUMULATIONS = (None, *ACCUMULATIONS)


def check_accumulation(name: str, accumulation: str | None) -> None:
    if accumulation not in _ACCUMULATIONS:
        raise ValueError(f"raggrad.dist.{name}: accumulation: expected one of {_ACCUMULATIONS}, got {accumulation!r}")
