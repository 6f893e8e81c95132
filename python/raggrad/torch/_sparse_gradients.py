"""Sparse gradients stay coalesced: unique, ascending rows, and marked so."""

from __future__ import annotations

import torch
from torch import Tensor

from ._operators import coalesce_rows, coo


def keep_coalesced(weight: Tensor) -> None:
    """Makes weight.grad coalesced after every backward pass from now on, if it is sparse.

    Torch drops the mark when a backward pass stores a gradient, and it appends rows when it adds a second one. Without
    the mark its optimizers sort all rows again. The hook reads the rows' numbers once, 8 bytes a row, and adds up rows
    only where some occur twice.
    """
    if not (weight.is_leaf and weight.requires_grad) or torch.compiler.is_compiling():
        return
    hooks = weight._post_accumulate_grad_hooks
    if not hooks or _coalesce_grad not in hooks.values():
        weight.register_post_accumulate_grad_hook(_coalesce_grad)


def _coalesce_grad(weight: Tensor) -> None:
    grad = weight.grad
    if grad is None or not grad.is_sparse or grad.is_coalesced() or grad.sparse_dim() != 1:
        return
    rows = grad._indices()[0]
    if torch.ops.raggrad.ascends(rows):
        grad._coalesced_(True)
    else:
        weight.grad = coo(*coalesce_rows(grad._values(), rows, grad.shape[0], None), grad.shape)
