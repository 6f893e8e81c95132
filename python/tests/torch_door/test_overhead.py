"""What a step does besides its operators, counted in calls of Python functions, which take their time everywhere."""

from __future__ import annotations

import gc
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .door import ROWS, WIDTH, random_bags, rt, torch

BAGS = random_bags()
TORCH = Path(torch.__file__).parent
every_form = pytest.mark.parametrize("fused", [False, True], ids=["separate", "fused"])


def trained(fused: bool) -> tuple[Any, Callable[[], None]]:
    """An optimizer, and a step of it. Its states are there."""
    bag = rt.EmbeddingBag(ROWS, WIDTH, sparse=True)
    optimizer = rt.optim.SparseAdam(bag.parameters(), fused=fused)
    grad = torch.ones(BAGS.count, WIDTH)

    def step() -> None:
        optimizer.zero_grad()
        bag(BAGS.ids, BAGS.offsets).backward(grad)
        optimizer.step()

    step()
    return optimizer, step


def calls_of(function: Callable[[], None]) -> Counter[Path]:
    """The files whose functions are called."""
    files: Counter[Path] = Counter()

    def note(frame: Any, event: str, _: Any) -> None:
        if event == "call":
            files[Path(frame.f_code.co_filename)] += 1

    gc.disable()  # it would run code of others
    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(None)
        gc.enable()
    return files


@every_form
def test_nothing_of_torch_is_called_in_vain(fused: bool) -> None:
    """Not the gradients that are registered for compiled code."""
    files = calls_of(trained(fused)[1])
    assert not [file for file in files if file.is_relative_to(TORCH / "_library")]
