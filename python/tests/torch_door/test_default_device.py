"""Numbers that the host computes with stay there, whatever torch.set_default_device says."""

from __future__ import annotations

from typing import Any

import pytest

from .door import random_bags, random_table, rt, torch
from .optimizers import PAIRS, assert_same_bits, every_optimizer, random_grad

graph_steps = pytest.importorskip("raggrad.torch._optimizers.graph_steps")

ELSEWHERE = torch.device("meta")
CPU = torch.device("cpu")


@every_optimizer
def test_steps(name: str) -> None:
    def stepped(default: Any) -> Any:
        table = torch.nn.Parameter(random_table(torch.float32))
        optimizer = PAIRS[name].ours([table], lr=0.1)
        for seed in range(3):
            table.grad = random_grad(table, seed)
            with default:
                optimizer.step()
        return table.detach(), list(optimizer.state[table].values())

    assert_same_bits(stepped(ELSEWHERE), stepped(CPU))


def test_rates_for_cuda_graphs() -> None:
    """A function in C writes them."""
    with ELSEWHERE:
        rates = graph_steps.adam_rates(0.25, 0.75, CPU)
    assert rates[0] == 0.5 / 0.75


def test_bags_that_are_placed_together() -> None:
    stacked = rt._pooling.stacked
    ids, offsets, _ = random_bags(rows=20)
    tables, bags = [stacked.Table(0, 20, None)], [stacked.Bags(ids, offsets, False, None)]
    with ELSEWHERE:
        placed = stacked._placed_together(tables, bags, None, torch.int64)
    assert torch.equal(placed.ids, ids)
