"""Generated clicks in the shape of Criteo's: 13 numbers and 26 categorical features, each a bag of ids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

NUMBERS, LONGEST_BAG = 13, 8
# How many categories each feature has in Criteo's data set.
CATEGORIES = [1460, 583, 10131227, 2202608, 305, 24, 12517, 633, 3, 93145, 5683, 8351593, 3194]
CATEGORIES += [27, 14992, 5461306, 10, 5652, 2173, 4, 7046547, 18, 15, 286181, 105, 142572]


class Batch(NamedTuple):
    numbers: Tensor  # [samples, NUMBERS]
    features: list[tuple[Tensor, Tensor]]  # ids and offsets of every categorical feature
    clicked: Tensor  # [samples], 0 or 1

    def to(self, device: str) -> Batch:
        features = [(ids.to(device), offsets.to(device)) for ids, offsets in self.features]
        return Batch(self.numbers.to(device), features, self.clicked.to(device))


def make_batch(step: int, samples: int, rows: Sequence[int], seed: int) -> Batch:
    """The batch of a step. `rows` are the tables' sizes; an id of rank r is drawn with a probability of about 1 / r."""
    generator = torch.Generator().manual_seed(1_000_003 * seed + step)
    numbers = torch.randn(samples, NUMBERS, generator=generator)
    score = numbers[:, :3].sum(1) / 2
    features = []
    for table, count in enumerate(rows):
        sizes = torch.randint(1, LONGEST_BAG + 1, (samples,), generator=generator)
        draws = torch.rand(int(sizes.sum()), generator=generator, dtype=torch.float64)
        ids = (torch.exp(draws * torch.log(torch.tensor(count + 1.0))).long() - 1).clamp(0, count - 1)
        features.append((ids, torch.cumsum(sizes, 0) - sizes))
        score += mean_appeal(table, ids, sizes) * 2
    clicked = torch.rand(samples, generator=generator) < torch.sigmoid(score - 0.5)
    return Batch(numbers, features, clicked.float())


def mean_appeal(table: int, ids: Tensor, sizes: Tensor) -> Tensor:
    """The rule that the model has to learn: every category has an appeal, from -1 to 1, that draws clicks or repels."""
    appeal = ((ids + 1) * 2_654_435_761 + table * 40_503) % 65_536 / 32_768 - 1
    return torch.segment_reduce(appeal.float(), "mean", lengths=sizes)
