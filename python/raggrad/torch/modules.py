"""EmbeddingBag and Embedding: torch's modules of these names, with raggrad's gradients."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from torch import Tensor, fx, nn

from ._tables.sparse_gradients import keep_coalesced
from .bags import check_options, embedding, embedding_bag

if TYPE_CHECKING:
    from ..ragged import Ragged

# torch.fx.symbolic_trace records calls of these functions, as it does those of torch's.
fx.wrap("embedding")
fx.wrap("embedding_bag")


class EmbeddingBag(nn.EmbeddingBag):
    """nn.EmbeddingBag whose forward and gradient are raggrad.torch.embedding_bag's.

    Constructors, parameters, state_dict and repr are nn.EmbeddingBag's, so checkpoints load both ways. There is one
    more mode, "sqrtn"; `mode="max"` and `scale_grad_by_freq` are ValueErrors.

    >>> import torch, raggrad.torch as rt
    >>> bag = rt.EmbeddingBag(10, 2, mode="sum", sparse=True, _weight=torch.ones(10, 2))
    >>> bag(torch.tensor([7, 2, 7]), torch.tensor([0, 2])).sum().backward()
    >>> bag.weight.grad.indices(), bag.weight.grad.is_coalesced()
    (tensor([[2, 7]]), True)
    """

    @functools.wraps(nn.EmbeddingBag.__init__)
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        check_options("EmbeddingBag", self.mode, self.scale_grad_by_freq)
        if self.sparse:  # a compiled forward cannot do it
            keep_coalesced(self.weight)

    def forward(
        self, input: Tensor | Ragged, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None
    ) -> Tensor:
        """The pooled rows: raggrad.torch.embedding_bag with the module's table and options."""
        return embedding_bag(
            input,
            self.weight,
            offsets,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
            self.mode,
            self.sparse,
            per_sample_weights,
            self.include_last_offset,
            self.padding_idx,
        )


class Embedding(nn.Embedding):
    """nn.Embedding whose gradient is raggrad.torch.embedding's.

    Constructors, parameters, state_dict and repr are nn.Embedding's, so checkpoints load both ways.
    `scale_grad_by_freq` is a ValueError.

    >>> import torch, raggrad.torch as rt
    >>> rows = rt.Embedding(10, 2, sparse=True, _weight=torch.ones(10, 2))
    >>> rows(torch.tensor([7, 2, 7])).sum().backward()
    >>> rows.weight.grad.values()
    tensor([[1., 1.],
            [2., 2.]])
    """

    @functools.wraps(nn.Embedding.__init__)
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        check_options("Embedding", "sum", self.scale_grad_by_freq)
        if self.sparse:  # a compiled forward cannot do it
            keep_coalesced(self.weight)

    def forward(self, input: Tensor) -> Tensor:
        """Rows of the table: raggrad.torch.embedding with the module's options."""
        return embedding(
            input,
            self.weight,
            self.padding_idx,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
            self.sparse,
        )
