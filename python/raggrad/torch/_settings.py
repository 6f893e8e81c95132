"""The order of sums that a call has."""

from __future__ import annotations

import torch

from ..settings import current_accumulation


def order_of(accumulation: str | None) -> str | None:
    """The word that the caller wrote, or that of raggrad.accumulation(). A compiled function knows only the first."""
    return accumulation if torch.compiler.is_compiling() else order_of_eager(accumulation)


def order_of_eager(accumulation: str | None) -> str | None:
    """order_of where it is known that nothing is compiled."""
    return current_accumulation.get() if accumulation is None else accumulation
