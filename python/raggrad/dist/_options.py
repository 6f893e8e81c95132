"""Options that several functions of raggrad.dist have."""

from __future__ import annotations

from ..settings import ACCUMULATIONS

_ACCUMULATIONS = (None, *ACCUMULATIONS)


def check_accumulation(name: str, accumulation: str | None) -> None:
    if accumulation not in _ACCUMULATIONS:
        raise ValueError(f"raggrad.dist.{name}: accumulation: expected one of {_ACCUMULATIONS}, got {accumulation!r}")
