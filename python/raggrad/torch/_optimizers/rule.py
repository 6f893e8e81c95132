"""One step of one table: its arguments, their checks, and its states."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .._errors import check_number


class Rule(NamedTuple):
    """The arguments of the operators that describe one step of one table."""

    optimizer: str
    learning_rate: float | Tensor  # a tensor in a CUDA graph, if replays can have different ones
    epsilon: float = 0.0
    beta1: float = 0.0
    beta2: float = 0.0
    step: int = 1


def state_type(table: Tensor) -> torch.dtype:
    return torch.float64 if table.dtype == torch.float64 else torch.float32


def new_state(table: Tensor, value: float) -> Tensor:
    return torch.full_like(table, value, dtype=state_type(table), memory_format=torch.contiguous_format)


def check_option(
    name: str,
    argument: str,
    value: float | Tensor,
    *,
    at_least: float | None = None,
    above: float | None = None,
    below: float | None = None,
) -> None:
    """Refuses numbers out of range, and NaN."""
    where = f"raggrad.torch.optim.{name}: {argument}"
    check_number(where, value)
    if isinstance(value, Tensor) and value.numel() != 1:
        raise ValueError(f"{where}: expected one number, got {value.numel()}")
    if at_least is not None and not value >= at_least:
        raise ValueError(f"{where}: expected at least {at_least}, got {value}")
    if above is not None and not value > above:
        raise ValueError(f"{where}: expected more than {above}, got {value}")
    if below is not None and not value < below:
        raise ValueError(f"{where}: expected less than {below}, got {value}")
