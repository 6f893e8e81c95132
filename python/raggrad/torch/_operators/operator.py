"""Operator: an operator of torch.ops.raggrad together with its derivatives."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from .. import _load as _load

Save = Callable[[Any, tuple[Any, ...], Any], None]
Backward = Callable[..., tuple[Any, ...]]


class Operator:
    """An operator with a derivative.

    It is linear in each of the arguments that `linear` names by position, or, if these are `together`, in all of them
    at once. `save` and `backward` are those of torch.library.register_autograd. Compiled functions use what is
    registered there. It makes calls slower and does not work with torch.func and forward-mode derivatives, so other
    calls go through one of two autograd.Functions made of the same parts: a quick one, and one for transformed
    functions. Of several outputs only the first can be differentiated.
    """

    def __init__(
        self, name: str, save: Save, backward: Backward, linear: tuple[int, ...] = (0,), together: bool = False
    ) -> None:
        self._op = getattr(torch.ops.raggrad, name).default
        self._quick = _quick_function(self._op, save, backward)
        self._transformable = _transformable_function(self._op, save, backward, linear, together)
        torch.library.register_autograd(f"raggrad::{name}", backward, setup_context=save)

    def __call__(self, *arguments: Any) -> Any:
        if torch.compiler.is_compiling() or torch._C._is_tracing():
            return self._op(*arguments)
        if torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0:
            return self._transformable.apply(*arguments)
        return self._quick.apply(*arguments) if torch.is_grad_enabled() else self.without_grad(*arguments)

    def without_grad(self, *arguments: Any) -> Any:
        """The operator alone. What is registered for its derivative is Python, and would be asked in vain."""
        with torch._C._AutoDispatchBelowAutograd():
            return self._op(*arguments)


def once_differentiable(backward: Backward) -> Backward:
    """Torch's decorator of this name, which costs 10 us, around calls whose results might be differentiated."""
    guarded = torch.autograd.function.once_differentiable(backward)

    @functools.wraps(backward)
    def guarded_if_wanted(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        return guarded(ctx, grad) if torch.is_grad_enabled() else backward(ctx, grad)

    return guarded_if_wanted


def _quick_function(op: Any, save: Save, backward: Backward) -> type[torch.autograd.Function]:
    def forward(ctx: Any, *inputs: Any) -> Any:
        with torch._C._AutoDispatchBelowAutograd():
            output = op(*inputs)
        save(ctx, inputs, output)
        return output

    return _make_function(op, forward=forward, backward=backward)


def _transformable_function(
    op: Any, save: Save, backward: Backward, linear: tuple[int, ...], together: bool
) -> type[torch.autograd.Function]:
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        save(ctx, inputs, output)
        ctx.save_for_forward(*(value for value in inputs if isinstance(value, Tensor)))
        ctx.are_tensors = [isinstance(value, Tensor) for value in inputs]
        ctx.others = [None if isinstance(value, Tensor) else value for value in inputs]

    def jvp(ctx: Any, *tangents: Any) -> Any:
        tensors = iter(ctx.saved_tensors)
        others = zip(ctx.others, ctx.are_tensors, strict=True)
        inputs = [next(tensors) if is_tensor else value for value, is_tensor in others]
        known = {place: tangents[place] for place in linear if tangents[place] is not None}
        if together:
            zeros = {place: torch.zeros_like(inputs[place]) for place in linear if place not in known}
            outputs = [op(*_replaced(inputs, {**zeros, **known}))]
        else:
            outputs = [op(*_replaced(inputs, {place: tangent})) for place, tangent in known.items()]
        if isinstance(outputs[0], tuple):
            return (sum(output[0] for output in outputs), *[None] * (len(outputs[0]) - 1))
        return sum(outputs)

    def forward(*inputs: Any) -> Any:
        return op(*inputs)

    function = _make_function(op, forward=forward, setup_context=setup_context, backward=backward, jvp=jvp)
    function.generate_vmap_rule = True
    return function


def _make_function(op: Any, **parts: Callable[..., Any]) -> type[torch.autograd.Function]:
    return type(str(op), (torch.autograd.Function,), {name: staticmethod(part) for name, part in parts.items()})


def _replaced(inputs: list[Any], values: dict[int, Tensor]) -> list[Any]:
    return [values.get(place, value) for place, value in enumerate(inputs)]
