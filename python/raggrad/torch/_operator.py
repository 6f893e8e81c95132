"""Operator: an operator of torch.ops.raggrad together with its derivatives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from . import _load as _load

Save = Callable[[Any, tuple[Any, ...], Any], None]
Backward = Callable[..., tuple[Any, ...]]


class Operator:
    """An operator that is linear in its first arguments together, `linear` of them, and constant in the others.

    `save` and `backward` are those of torch.library.register_autograd. torch.func and forward-mode derivatives do not
    work with what is registered there: inside of them a call goes through an autograd.Function made of the same parts.
    Of several outputs only the first can be differentiated.
    """

    def __init__(self, name: str, save: Save, backward: Backward, linear: int = 1) -> None:
        self._op = getattr(torch.ops.raggrad, name).default
        self._function = _function_of(self._op, save, backward, linear)
        torch.library.register_autograd(f"raggrad::{name}", backward, setup_context=save)

    def __call__(self, *arguments: Any) -> Any:
        if not torch.compiler.is_compiling() and _is_transformed():
            return self._function.apply(*arguments)
        return self._op(*arguments)


def _is_transformed() -> bool:
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0


def _function_of(op: Any, save: Save, backward: Backward, linear: int) -> type[torch.autograd.Function]:
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        save(ctx, inputs, output)
        constants = inputs[linear:]
        ctx.save_for_forward(*(value for value in constants if isinstance(value, Tensor)))
        ctx.are_tensors = [isinstance(value, Tensor) for value in constants]
        ctx.others = [None if isinstance(value, Tensor) else value for value in constants]
        ctx.shapes = [value.shape for value in inputs[:linear]]

    def jvp(ctx: Any, *tangents: Any) -> Any:
        known = next(tangent for tangent in tangents[:linear] if tangent is not None)
        directions = [
            known.new_zeros(shape) if tangent is None else tangent
            for tangent, shape in zip(tangents[:linear], ctx.shapes, strict=True)
        ]
        tensors = iter(ctx.saved_tensors)
        others = zip(ctx.others, ctx.are_tensors, strict=True)
        output = op(*directions, *(next(tensors) if is_tensor else value for value, is_tensor in others))
        return (output[0], *[None] * (len(output) - 1)) if isinstance(output, tuple) else output

    parts = {"forward": lambda *inputs: op(*inputs), "setup_context": setup_context, "backward": backward, "jvp": jvp}
    members: dict[str, Any] = {name: staticmethod(part) for name, part in parts.items()}
    return type(str(op), (torch.autograd.Function,), {**members, "generate_vmap_rule": True})
