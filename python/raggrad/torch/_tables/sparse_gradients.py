"""Sparse gradients stay coalesced: unique, ascending rows, and marked so."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .._operators.segments import coalesce_rows, coo

NAME_OF_GRADIENT = "raggrad.torch: the gradient of an embedding with sparse=True"


class _Hook:
    """Makes the gradient of one weight coalesced after a backward pass."""

    def __init__(self, weight: Tensor) -> None:
        self.made_rows: Tensor | None = None  # those of the gradient that the pass made last
        self.remove = weight.register_post_accumulate_grad_hook(self).remove

    def __call__(self, weight: Tensor) -> None:
        made, self.made_rows = self.made_rows, None
        grad = weight.grad
        if grad is None or not grad.is_sparse:
            return
        rows = grad._indices()
        as_made = made is not None and made.data_ptr() == rows.data_ptr() and made.numel() == rows.numel()
        if not as_made and (grad.is_coalesced() or grad.sparse_dim() != 1):
            return
        if as_made or torch.ops.raggrad.ascends(rows[0]):
            grad._coalesced_(True)
            grad._raggrad_rows = rows.data_ptr()
        else:
            weight.grad = coo(*coalesce_rows(grad._values(), rows[0], grad.shape[0], None), grad.shape)


def keep_coalesced(weight: Tensor) -> _Hook | None:
    """Makes weight.grad coalesced after every backward pass from now on, if it is sparse.

    Torch drops the mark when a backward pass stores a gradient, and it appends rows when it adds a second one. Without
    the mark its optimizers sort all rows again. The hook knows gradients of make_grad() by their memory. It reads the
    rows' numbers of others once, 8 bytes a row, and adds up rows only where some occur twice. On a GPU that reading
    would take 50 us and a wait.
    """
    if not (weight.is_leaf and weight.requires_grad):
        return None
    return _hook_of(weight) or _Hook(weight)


def leave_alone(weight: Tensor) -> None:
    """Undoes keep_coalesced(): a hook costs 5 us, even if no gradient comes."""
    if (hook := _hook_of(weight)) is not None:
        hook.remove()


def make_grad(weight: Tensor | None, values: Tensor, rows: Tensor, shape: Any) -> Tensor:
    """A sparse gradient of `weight`, if that still exists, with these rows, which are unique and ascending."""
    rows = rows.long()
    if weight is not None and (hook := keep_coalesced(weight)) is not None:
        hook.made_rows = rows  # as long as it is there, no other tensor can have its memory
    try:
        return coo(values, rows, shape)
    except NotImplementedError:  # of what torch.autograd.grad(is_grads_batched=True) has stacked
        raise NotImplementedError(f"{NAME_OF_GRADIENT}: torch.vmap cannot stack sparse tensors") from None


def is_known(grad: Tensor, rows: Tensor) -> bool:
    """Whether the hook has seen these rows of the gradient, grad._indices().

    Somebody else may have marked other gradients, whatever their rows are.
    """
    return grad.is_coalesced() and getattr(grad, "_raggrad_rows", None) == rows.data_ptr()


def _hook_of(weight: Tensor) -> _Hook | None:
    for hook in (weight._post_accumulate_grad_hooks or {}).values():
        if isinstance(hook, _Hook):
            return hook
    return None
