"""Operators that change rows of a table in place: one step of an optimizer."""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd.graph import increment_version
from torch.library import Library

from .. import _load as _load
from .fake import fake

_library = Library("raggrad", "IMPL")

_BUMPS = torch._C.DispatchKey.ADInplaceOrView


class Update:
    """An operator that changes some of its arguments, and lets autograd notice.

    Torch bumps the versions of changed tensors for its own operators only, whatever a schema says. A kernel like that
    of torch.library.custom_op does it for callers of torch.ops.raggrad, in Python. Calls of this object go past it.
    """

    def __init__(self, name: str) -> None:
        self._op = getattr(torch.ops.raggrad, name).default
        self._changed = sum(argument.is_write for argument in self._op._schema.arguments)  # the first ones
        fake(name)(lambda *_, **__: None)
        _library.impl(self._op, self._bump_and_go_on, "ADInplaceOrView", with_keyset=True)

    def __call__(self, *arguments: Any, **rate: Any) -> None:
        if torch.compiler.is_compiling():
            self._op(*arguments, **rate)
            return
        self._bump(arguments)
        # As in _AutoDispatchBelowADInplaceOrView, whose entry and exit take longer. Gradients are off around updates.
        before = torch._C._dispatch_tls_is_dispatch_key_excluded(_BUMPS)
        torch._C._dispatch_tls_set_dispatch_key_excluded(_BUMPS, True)
        try:
            self._op(*arguments, **rate)
        finally:
            torch._C._dispatch_tls_set_dispatch_key_excluded(_BUMPS, before)

    def _bump(self, arguments: tuple[Any, ...]) -> None:
        increment_version([argument for argument in arguments[: self._changed] if argument is not None])

    def _bump_and_go_on(self, keyset: Any, *arguments: Any, **rate: Any) -> None:
        self._bump(arguments)
        with torch._C._AutoDispatchBelowADInplaceOrView():
            self._op.redispatch(keyset & torch._C._after_ADInplaceOrView_keyset, *arguments, **rate)


apply_rows_ = Update("apply_rows_")
sparse_segment_grad_apply_ = Update("sparse_segment_grad_apply_")
embedding_bag_grad_apply_ = Update("embedding_bag_grad_apply_")
embedding_bag_planned_grad_apply_ = Update("embedding_bag_planned_grad_apply_")
