"""The code of the pages on raggrad.torch runs, before and after the changes that they show."""

from __future__ import annotations

from typing import Any

import pytest
from pages import notebook, programs, run

from .door import rt, torch

nn, F = torch.nn, torch.nn.functional

PROGRAMS = programs("torch")


@pytest.mark.parametrize("page", PROGRAMS)
def test_the_code_of_a_page_runs(page: str) -> None:
    ids, offsets = torch.tensor([7, 2, 7]), torch.tensor([0, 2])
    shapes = {"user": (100, 8), "words": (50, 8)}
    bag = rt.EmbeddingBag(10, 4, sparse=True)
    reader_has: dict[str, Any] = {
        "F": F,
        "nn": nn,
        "rt": rt,
        "torch": torch,
        "ids": ids,
        "offsets": offsets,
        "shapes": shapes,
        "features": dict.fromkeys(shapes, (ids, offsets)),
        "bag": bag,
        "weight": torch.ones(10, 4, requires_grad=True),
        "weights": torch.ones(3),
        "x": torch.ones(3, 4),
        "n": 10,
        "d": 4,
        "table": torch.ones(10, 4),
        "chosen": ids,
        "ascending": torch.tensor([0, 0, 1]),
    }
    try:
        run(page, PROGRAMS[page], reader_has if page == "docs/torch.md" else {})
    finally:
        rt.uninstall()


def test_the_notebook_on_a_recommender_runs() -> None:
    run("recommender.ipynb", notebook("recommender"), {})
