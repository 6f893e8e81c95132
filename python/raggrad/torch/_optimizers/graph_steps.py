"""Steps whose rates depend on their number, in CUDA graphs: Adam's, and Adagrad's with lr_decay.

A graph repeats kernels, not the Python code that counts steps and computes rates. So it counts in device memory, and
looks Adam's rates up in a table that has the bits of those that the host computes.
"""

from __future__ import annotations

import ctypes
import math
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from .. import _load
from .._errors import has_numbers

MAX_RATES = 2**20  # of one pair of betas: 8 MB
LARGEST_BETA = 0.99996  # whose rates these are

_NOT_COUNTED = -1  # on the device, so far

_fill_adam_rates = ctypes.CDLL(str(_load.LIBRARY)).raggrad_torch_adam_rates
_fill_adam_rates.argtypes = [ctypes.c_double, ctypes.c_double, ctypes.c_int64, ctypes.c_void_p]
_fill_adam_rates.restype = None

_rates_in_use: WeakValueDictionary[tuple[torch.device, float, float], Tensor] = WeakValueDictionary()


def can_be_captured(table: Tensor) -> bool:
    return table.is_cuda and has_numbers(table)


def being_captured(table: Tensor) -> bool:
    return table.is_cuda and torch.cuda.is_current_stream_capturing()


class GraphSteps:
    """Counts the steps of a table on its device. Made before the first capture, and then never moved: graphs hold the
    addresses.

    From the first capture on this count is the one that matters, in graphs and outside. It begins in the first replay,
    with the number of steps that there were when the graph was captured.
    """

    def __init__(self, table: Tensor, step: int | Tensor, betas: tuple[float, float] | None) -> None:
        self.captured = False
        self._betas = None if betas is None else tuple(betas)
        self._rates = None if betas is None else adam_rates(float(betas[0]), float(betas[1]), table.device)
        # Adagrad's number of steps is a float32, which at some time stops growing.
        self._count = torch.full((1,), _NOT_COUNTED, dtype=torch.as_tensor(step).dtype, device=table.device)
        self._next = self._count.clone()  # the count after this step

    def begin(self, step: int | Tensor) -> Tensor:
        """Begins a step, or goes on with it. Returns how many there were before; `step` if nothing counted yet."""
        self.captured = True
        torch.threshold_(self._count, _NOT_COUNTED, int(step))
        torch.add(self._count, 1, out=self._next)
        return self._count

    def end(self) -> None:
        """Counts the step, if one was begun."""
        self._count.copy_(self._next)

    def adam_rate(self, step: int | Tensor, betas: tuple[float, float]) -> Tensor:
        """Begins a step, and returns Adam's rate of it for a learning rate of 1."""
        name = "raggrad.torch.optim.SparseAdam: betas: expected"
        if self._rates is None:
            raise RuntimeError(
                f"{name} at most {LARGEST_BETA} in a CUDA graph, which has a table of rates until they stay the same, "
                f"got {betas}"
            )
        if tuple(betas) != self._betas:
            raise RuntimeError(f"{name} those of the step before the first capture, {self._betas}, got {betas}")
        return self._rates.index_select(0, self.begin(step).long().clamp(max=self._rates.shape[0] - 1))

    def restart(self, step: int | Tensor) -> None:
        """Goes on from another number of steps."""
        self._count.fill_(int(step))
        self._next.fill_(int(step))

    def read_into(self, state: dict[str, Any]) -> None:
        """Writes the number of steps into the state, if a graph has counted. Waits for the device."""
        if self.captured and (count := self._count.item()) != _NOT_COUNTED:
            step = state["step"]
            state["step"] = torch.full_like(step, count) if isinstance(step, Tensor) else int(count)


def adam_rates(beta1: float, beta2: float, device: torch.device) -> Tensor | None:
    """Adam's rates of steps 1, 2, ... for a learning rate of 1, until they stay the same. None if that takes too
    long.
    """
    key = device, beta1, beta2
    if (rates := _rates_in_use.get(key)) is not None:
        return rates
    # Powers up to 2^-54 vanish beside 1.
    beta = max(beta1, beta2, 2.0**-54)
    length = math.ceil(-54 * math.log(2) / math.log(beta)) + 1
    if length > MAX_RATES:
        return None
    on_host = torch.empty(length, dtype=torch.float64, device="cpu")
    _fill_adam_rates(beta1, beta2, length, on_host.data_ptr())
    rates = _rates_in_use[key] = on_host.to(device)
    return rates
