"""A deep learning recommendation model, with embedding bags of torch or of raggrad."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import raggrad.torch as rt
import torch
from torch import Tensor, nn

from clicks import NUMBERS

HIDDEN = 64


class TorchBags(nn.ModuleList):
    """One nn.EmbeddingBag for each feature."""

    def __init__(self, rows: Sequence[int], dim: int) -> None:
        super().__init__([nn.EmbeddingBag(count, dim, mode="sum", sparse=True) for count in rows])

    def forward(self, features: Sequence[tuple[Tensor, Tensor]]) -> list[Tensor]:
        return [bag(*feature) for bag, feature in zip(self, features, strict=True)]


def raggrad_bags(rows: Sequence[int], dim: int) -> rt.EmbeddingBagCollection:
    """All features in one call. The same state_dict, and with the same seed the same weights."""
    return rt.EmbeddingBagCollection([(count, dim) for count in rows], mode="sum", sparse=True)


class Layers(nn.Module):
    """All that is dense: numbers and pooled rows -> the logit of a click."""

    def __init__(self, features: int, dim: int) -> None:
        super().__init__()
        self.numbers = nn.Sequential(nn.Linear(NUMBERS, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, dim))
        pairs = torch.tril_indices(features + 1, features + 1, offset=-1)
        self.register_buffer("pairs", pairs, persistent=False)
        self.score = nn.Sequential(nn.Linear(dim + pairs.shape[1], HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 1))

    def forward(self, numbers: Tensor, pooled: Sequence[Tensor]) -> Tensor:
        mapped = self.numbers(numbers)
        vectors = torch.stack([mapped, *pooled], 1)
        products = torch.bmm(vectors, vectors.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
        return self.score(torch.cat([mapped, products], 1)).squeeze(1)


class DLRM(nn.Module):
    """Tables, and layers on what is looked up there."""

    def __init__(self, bags: Any, rows: Sequence[int], dim: int) -> None:
        super().__init__()
        self.bags, self.layers = bags, Layers(len(rows), dim)
        with torch.no_grad():
            for table in self.bags.parameters():
                table.mul_(0.1)

    def forward(self, numbers: Tensor, features: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
        return self.layers(numbers, self.bags(features))
