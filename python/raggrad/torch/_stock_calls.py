"""Calls of torch's functions: which of them raggrad can answer, and its answers."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.overrides import _get_current_function_mode_stack
from torch.utils._device import DeviceContext

from . import bags, sparse
from ._operators.segments import coalesce_rows
from ._settings import order_of

SUBCLASS = "tensor subclasses and __torch_function__"
TRANSFORM = "inside torch.func"
DEVICE = "a device on which raggrad.torch does not work"
DTYPE = "a dtype that raggrad.torch does not have"
NO_GRADIENT = "no gradient is wanted"
MODE = "mode='max'"
SCALED = "scale_grad_by_freq=True"
DIMENSION = "a dim other than the first"
REFUSED = "arguments that raggrad.torch refuses"

_ALWAYS = (SUBCLASS, TRANSFORM, DEVICE, DTYPE, REFUSED)
REASONS = {
    "embedding": (*_ALWAYS, NO_GRADIENT, SCALED),
    "embedding_bag": (*_ALWAYS, MODE, SCALED),
    "index_add": (*_ALWAYS, DIMENSION),
    "index_add_": (*_ALWAYS, DIMENSION),
}

_PLAIN = {Tensor, nn.Parameter, nn.Buffer}
_FLOATS = {torch.float64, torch.float32, torch.bfloat16, torch.float16}
_INTEGERS = {torch.int32, torch.int64}


def why_not_embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> str | None:
    """Why torch answers this call. Only the gradient differs: without one there is nothing to gain."""
    if scale_grad_by_freq:
        return SCALED
    reason = _why_not_tensors([weight], [input])
    if reason is None and weight.dim() != 2:
        return REFUSED
    if reason is None and not (torch.is_grad_enabled() and weight.requires_grad):
        return NO_GRADIENT
    return reason


def why_not_embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> str | None:
    """Why torch answers this call. Calls without gradients are ours too: training and inference have the same bits."""
    if scale_grad_by_freq:
        return SCALED
    if mode == "max":
        return MODE
    if mode not in ("sum", "mean") or (per_sample_weights is not None and mode != "sum"):  # errors of torch
        return REFUSED
    weights = [] if per_sample_weights is None else [per_sample_weights]
    reason = _why_not_tensors([weight, *weights], [input] if offsets is None else [input, offsets])
    if reason is None and (weight.dim() != 2 or any(factors.dtype != weight.dtype for factors in weights)):
        return REFUSED  # errors of torch, too
    return reason


def why_not_index_add(input: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: float = 1) -> str | None:
    """Why torch answers this call. Along another dim ours would copy the source."""
    reason = _why_not_tensors([input, source], [index])
    if reason is not None:
        return reason
    if dim not in (0, -input.dim()):
        return DIMENSION
    if index.dim() != 1 or input.dim() == 0 or source.shape != (index.shape[0], *input.shape[1:]):
        return REFUSED
    return None


def index_add(input: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: float = 1) -> Tensor:
    return sparse.index_add(input, 0, index, source, alpha=alpha)


def add_in_place(
    stock: Callable[..., Tensor], input: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: float = 1
) -> Tensor:
    """Adds up the slices of one place first. Then places are unique, and torch's function leaves nothing to chance."""
    try:
        values, places = coalesce_rows(source, index, input.shape[0], order_of(None))
    except RuntimeError as error:
        raise ValueError(str(error)) from None
    return stock(input, 0, places, values, alpha=alpha)


def _why_not_tensors(values: list[Tensor], ids: list[Tensor]) -> str | None:
    """A reason that lies in the tensors of a call."""
    tensors = [*values, *ids]
    if any(type(tensor) not in _PLAIN for tensor in tensors) or _is_watched():
        return SUBCLASS
    if torch._C._are_functorch_transforms_active():
        return TRANSFORM
    device = values[0].device
    if any(tensor.device != device for tensor in tensors) or not _works_on(device.type):
        return DEVICE
    dtypes_fit = all(tensor.dtype in _FLOATS for tensor in values) and all(tensor.dtype in _INTEGERS for tensor in ids)
    if not dtypes_fit or any(tensor.layout != torch.strided for tensor in tensors):
        return DTYPE
    return None


def _is_watched() -> bool:
    """Whether a mode wants to see calls of torch's functions. That of a default device only looks for new tensors."""
    return any(not isinstance(mode, DeviceContext) for mode in _get_current_function_mode_stack())


@functools.cache
def _works_on(device: str) -> bool:
    """Tries a gradient, once for each kind of device: wheels without CUDA kernels exist."""
    if device not in ("cpu", "cuda"):
        return False
    try:
        with torch.enable_grad():
            weight = torch.ones(2, 1, device=device, requires_grad=True)
            torch.autograd.grad(bags.embedding_bag(torch.zeros(1, 1, dtype=torch.int64, device=device), weight), weight)
    except (RuntimeError, NotImplementedError, ValueError):
        return False
    return True
