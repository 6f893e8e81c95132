"""Sparse gradients stay coalesced: unique, ascending rows, and marked so."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from ._operators import coalesce_rows, coo

# The rows of the gradient that a backward pass made last for a weight, until its hook has seen them.
_made_rows = WeakIdKeyDictionary()


def keep_coalesced(weight: Tensor) -> None:
    """Makes weight.grad coalesced after every backward pass from now on, if it is sparse.

    Torch drops the mark when a backward pass stores a gradient, and it appends rows when it adds a second one. Without
    the mark its optimizers sort all rows again. The hook knows gradients of make_grad() by their memory. It reads the
    rows' numbers of others once, 8 bytes a row, and adds up rows only where some occur twice. On a GPU that reading
    would take 50 us and a wait.
    """
    if not (weight.is_leaf and weight.requires_grad) or torch.compiler.is_compiling():
        return
    hooks = weight._post_accumulate_grad_hooks
    if not hooks or _coalesce_grad not in hooks.values():
        weight.register_post_accumulate_grad_hook(_coalesce_grad)


def make_grad(weight: Tensor | None, values: Tensor, rows: Tensor, shape: Any) -> Tensor:
    """A sparse gradient of `weight`, if that still exists, with these rows, which are unique and ascending."""
    rows = rows.to(torch.int64)
    if weight is not None and weight._post_accumulate_grad_hooks:
        _made_rows[weight] = rows  # as long as it is here, no other tensor can have its memory
    return coo(values, rows, shape)


def is_known(grad: Tensor) -> bool:
    """Whether the hook has seen these rows. Somebody else may have marked other gradients, whatever their rows are."""
    return grad.is_coalesced() and getattr(grad, "_raggrad_rows", None) == grad._indices().data_ptr()


def _coalesce_grad(weight: Tensor) -> None:
    made = _made_rows.pop(weight, None)
    grad = weight.grad
    if grad is None or not grad.is_sparse or grad.is_coalesced() or grad.sparse_dim() != 1:
        return
    rows = grad._indices()[0]
    as_made = made is not None and made.data_ptr() == rows.data_ptr() and made.shape == rows.shape
    if as_made or torch.ops.raggrad.ascends(rows):
        grad._coalesced_(True)
        grad._raggrad_rows = rows.data_ptr()
    else:
        weight.grad = coo(*coalesce_rows(grad._values(), rows, grad.shape[0], None), grad.shape)
