"""torch.fx.symbolic_trace and torch.jit.trace record what models call."""

from __future__ import annotations

import io
from typing import Any

import pytest

from .door import ROWS, WIDTH, random_bags, rt, torch


class Model(torch.nn.Module):
    """Calls modules, and functions by the names that users write."""

    def __init__(self) -> None:
        super().__init__()
        self.bag = rt.EmbeddingBag(ROWS, WIDTH, mode="sum")
        self.words = rt.Embedding(ROWS, WIDTH)

    def forward(self, ids: Any, offsets: Any) -> Any:
        words = self.words(ids)
        return (
            self.bag(ids, offsets).sum()
            + rt.segment_mean(words, ids, ROWS).sum()
            + rt.index_add(self.bag.weight, 0, ids, words).sum()
            + rt.embedding_bag(ids, self.words.weight, offsets).sum()
        )


def assert_same_results(traced: Any, model: Model) -> None:
    for seed in range(2):  # numbers of ids differ
        ids, offsets, _ = random_bags(seed=seed)
        torch.testing.assert_close(traced(ids, offsets), model(ids, offsets))


def test_symbolic_trace() -> None:
    model = Model()
    assert_same_results(torch.fx.symbolic_trace(model), model)


@pytest.mark.filterwarnings("ignore:.*torch.jit:FutureWarning", "ignore:.*torch.jit:DeprecationWarning")
def test_jit_trace() -> None:
    model, file = Model(), io.BytesIO()
    torch.jit.save(torch.jit.trace(model, random_bags()[:2]), file)
    file.seek(0)
    assert_same_results(torch.jit.load(file), model)
