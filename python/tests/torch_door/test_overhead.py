"""What a step does besides its operators, counted in calls of Python functions, which take their time everywhere."""

from __future__ import annotations

import gc
import sys
from collections import Counter
from collections.abc import Callable, Iterator
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


@pytest.mark.parametrize(("fused", "most"), [(False, 110), (True, 85)], ids=["separate", "fused"])
def test_a_step_calls_few_functions(fused: bool, most: int) -> None:
    """40 of them are torch's backward() and the call of a module."""
    files = calls_of(trained(fused)[1])
    assert files.total() <= most, files


@every_form
def test_nothing_of_torch_is_called_in_vain(fused: bool) -> None:
    """Neither the gradients that are registered for compiled code, nor hooks of optimizers that nobody asked for."""
    files = calls_of(trained(fused)[1])
    assert not [file for file in files if any(file.is_relative_to(TORCH / part) for part in ("_library", "optim"))]


@pytest.fixture
def seen_by_all() -> Iterator[list[Any]]:
    """The optimizers whose step a hook for all optimizers has seen."""
    from torch.optim.optimizer import register_optimizer_step_post_hook

    seen: list[Any] = []
    handle = register_optimizer_step_post_hook(lambda optimizer, *_: seen.append(optimizer))
    yield seen
    handle.remove()


@every_form
def test_hooks_of_a_step(fused: bool, seen_by_all: list[Any]) -> None:
    optimizer, step = trained(fused)
    calls: list[str] = []
    seen_by_all.clear()
    optimizer.register_step_pre_hook(lambda *_: calls.append("before"))
    optimizer.register_step_post_hook(lambda *_: calls.append("after"))
    step()
    assert calls == ["before", "after"]
    assert seen_by_all == [optimizer]


@every_form
def test_a_profiler_sees_the_step(fused: bool) -> None:
    _, step = trained(fused)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        step()
    assert "Optimizer.step#SparseAdam.step" in {event.name for event in profile.events()}
