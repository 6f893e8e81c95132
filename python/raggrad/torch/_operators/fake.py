"""Results of operators for tensors without numbers: those of torch.compile, torch.export and FakeTensorMode."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.library import register_fake

from .. import _load as _load

Fake = Callable[..., Any]


def fake(name: str) -> Callable[[Fake], Fake]:
    """Registers a function that makes an operator's results, of the right shapes.

    Before, it is checked that all arguments lie on one device, as kernels do. Otherwise the error would come when a
    compiled program runs, and perhaps on another machine.
    """
    names = [argument.name for argument in getattr(torch.ops.raggrad, name).default._schema.arguments]

    def register(function: Fake) -> Fake:
        def checked(*arguments: Any, **others: Any) -> Any:
            _check_devices(name, names, arguments, others)
            return function(*arguments, **others)

        register_fake(f"raggrad::{name}")(checked)
        return function

    return register


def _check_devices(operator: str, names: Sequence[str], arguments: Sequence[Any], others: dict[str, Any]) -> None:
    """The first tensor decides. A result on the meta device goes with ids that lie elsewhere, as in torch."""
    first = None
    for name, value in [*zip(names, arguments, strict=False), *others.items()]:
        if not isinstance(value, Tensor):
            continue
        if first is None:
            if value.is_meta:
                return
            first = name, value.device
        elif value.device != first[1]:
            raise RuntimeError(
                f"INVALID_ARGUMENT: raggrad::{operator}: operands are on different devices "
                f"[{name}: expected that of {first[0]} ({first[1]}), got {value.device}]"
            )
