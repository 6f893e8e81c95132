"""Operators that have no kernel of their own for CUDA: other operators and torch's functions stand in."""

from __future__ import annotations

from torch import Tensor
from torch.library import impl

from .. import _load as _load


@impl("raggrad::ascends", "CUDA")
def _(ids: Tensor) -> Tensor:
    return (ids[1:] > ids[:-1]).all()
