"""torch.autograd.Function without the Python that torch.func needs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

_in_cpp = torch._C._FunctionBase.__dict__["apply"]


class QuickFunction(torch.autograd.Function):
    """A torch.autograd.Function of a table, of weights or None, and of arguments without gradients.

    In older versions of torch, 2.11 is one, Function.apply is Python that looks at the signature of forward, and at all
    arguments for tensors that outlived a transform: 2 us of 7.6 in a call whose forward does nothing.
    """

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if torch.autograd.Function.__dict__["apply"] is not _in_cpp:
            cls.apply = staticmethod(_past_python(cls))


def _past_python(function: type[QuickFunction]) -> Callable[..., Any]:
    apply, stock_apply = super(torch.autograd.Function, function).apply, super(QuickFunction, function).apply
    unwrapped = torch._C._functorch.unwrap_if_dead

    def quick_apply(table: Tensor, weights: Tensor | None, *others: Any) -> Any:
        if torch._C._are_functorch_transforms_active():
            return stock_apply(table, weights, *others)  # an error that says what is missing
        return apply(unwrapped(table), None if weights is None else unwrapped(weights), *others)

    return quick_apply
