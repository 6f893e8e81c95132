"""Errors of operators, in the words of the function that the user called."""

from __future__ import annotations

import operator
import re
from numbers import Real
from typing import Any

import torch
from torch import Tensor
from torch._C import _functorch
from torch._subclasses import FakeTensor

_TEXT = re.compile(r"([A-Z_]+): raggrad::\w+: (.*)", re.DOTALL)
# Torch's own, about the schema of an operator, and about tensors for which there is no kernel.
_TYPE = re.compile(r"raggrad::\w+\(\) Expected a value of type '(.*?)' for argument '(\w+)' .* found type '(.*?)'")
_LAYOUT = re.compile(r"Could not run 'raggrad::\w+' with arguments from the '(\w+)' backend|raggrad\.\w+\.default$")
_VMAP = re.compile(r"Batching rule not implemented for raggrad::")
_STACKED_BY_AUTOGRAD = torch._C._dispatch_key_parse("Batched")
_CLASSES: dict[str, type[Exception]] = {"INVALID_ARGUMENT": ValueError, "UNIMPLEMENTED": NotImplementedError}


def check_tensor(function: str, argument: str, value: Any) -> None:
    """Refuses an argument of the user's function that is no tensor."""
    if not isinstance(value, Tensor):
        raise TypeError(f"raggrad.torch.{function}: {argument}: expected a tensor, got {type(value).__name__}")


def check_number(where: str, value: Any) -> None:
    """Refuses an argument that is no real number. `where` names function and argument."""
    if not isinstance(value, (Real, Tensor)):
        raise TypeError(f"{where}: expected a number, got {type(value).__name__}")


def whole_number(where: str, value: Any) -> int:
    """An argument that must be a whole number. `where` names function and argument."""
    if isinstance(value, int):  # the one that torch.compile follows
        return value
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{where}: expected a whole number, got {value!r}") from None


def has_numbers(tensor: Tensor) -> bool:
    """Whether there is memory behind a tensor. A fake one may say that it lies on a GPU that is not there."""
    return not (tensor.is_meta or isinstance(tensor, FakeTensor))


def check_no_vmap(where: str, *values: Any) -> None:
    """Refuses to make a sparse tensor of tensors that torch.vmap has stacked, or to read one. `where` names function
    and argument.
    """
    if torch._C._are_functorch_transforms_active() and any(is_stacked(value) for value in values):
        raise NotImplementedError(f"{where}: torch.vmap cannot stack sparse tensors")


def is_stacked(value: Any) -> bool:
    """Whether torch.vmap has made a tensor of several, or torch.autograd.grad(is_grads_batched=True) in its own way."""
    if isinstance(value, Tensor) and torch._C._dispatch_keys(value).has(_STACKED_BY_AUTOGRAD):
        return True
    while isinstance(value, Tensor) and _functorch.is_functorch_wrapped_tensor(value):
        if _functorch.is_batchedtensor(value):
            return True
        value = _functorch.get_unwrapped(value)
    return False


def check_range(function: str, argument: str, ids: Tensor, rows: int) -> None:
    """Refuses ids that are no rows, where torch would write elsewhere or stop the program on a GPU. Waits for a GPU.

    Not where a tensor has no numbers to look at.
    """
    if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active() or not has_numbers(ids):
        return
    for number in torch.aminmax(ids) if ids.numel() else ():
        if not 0 <= number < rows:
            expected = f"0 to {rows - 1}" if rows else "none, because there are no rows"
            raise ValueError(f"raggrad.torch.{function}: {argument}: expected {expected}, got {number}")


def named(error: RuntimeError, function: str, **arguments: str) -> Exception:
    """The error that `function` raises when an operator raised `error`.

    `arguments` has the user's names of the operator's arguments, where they differ. An error that is not ours is
    returned as it is.
    """
    message = str(error)
    if found := _TYPE.match(message):
        expected, argument, got = found.groups()
        where = f"raggrad.torch.{function}: {arguments.get(argument, argument)}"
        if (expected, got) in (("int", "int"), ("List[int]", "list")):
            return ValueError(f"{where}: expected at most {2**63 - 1}, got more")
        return TypeError(f"{where}: expected {expected}, got {got}")
    if found := _LAYOUT.match(message):
        got = found[1] or "a nested one"
        return NotImplementedError(f"raggrad.torch.{function}: expected dense tensors on a CPU or a GPU, got {got}")
    if _VMAP.match(message):
        return NotImplementedError(f"raggrad.torch.{function}: torch.vmap cannot stack updates of a table")
    found = _TEXT.match(message)
    if found is None:
        return error
    code, text = found.groups()
    for ours, theirs in arguments.items():
        text = re.sub(rf"\b{ours}\b", theirs, text)
    return _CLASSES.get(code, RuntimeError)(f"raggrad.torch.{function}: {text}")
