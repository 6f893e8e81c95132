"""The order of sums that a call has."""

from __future__ import annotations

import torch

from ..settings import current_accumulation


def order_of(accumulation: str | None) -> str | None:
    """The word that the caller wrote, or that of raggrad.accumulation(). A compiled function knows only the first."""
    if accumulation is not None or torch.compiler.is_compiling():
        return accumulation
    return current_accumulation.get()
