"""Copies of modules, and tables that take another's place."""

from __future__ import annotations

import copy
import functools
from typing import Any

from .worlds import dist, rd, rt, run, torch

ROWS, WIDTH = 7, 3
ADAM = functools.partial(rt.optim.SparseAdam, lr=0.1)


def lay_out_differently(rank: int) -> Any:
    bag = rt.EmbeddingBag(ROWS, WIDTH)
    table = torch.arange(float(ROWS * WIDTH)).reshape(ROWS, WIDTH) + 100 * rank
    bag.weight = torch.nn.Parameter(table if rank == 0 else table.t().contiguous().t())
    rd.register(bag)
    return bag.weight.detach()


def test_weights_are_those_of_rank_0_however_they_lie() -> None:
    first, second = run(2, lay_out_differently)
    assert torch.equal(first, second)


def copy_shards(rank: int) -> None:
    """A copy has its own rows and optimizer, and the same group."""
    group = dist.new_group([0, 1])
    bag = rd.ShardedEmbeddingBag(ROWS, WIDTH, group=group, optimizer=ADAM)
    ids = torch.tensor([[rank, 5]])
    bag(ids).sum().backward()
    before = bag.full_weight()
    copied = copy.deepcopy(bag)
    assert copied.group is group
    copied(ids).sum().backward()
    assert torch.equal(bag.full_weight(), before)
    bag(ids).sum().backward()
    assert torch.equal(bag.full_weight(), copied.full_weight())
    assert not torch.equal(bag.full_weight(), before)


def test_a_divided_table_can_be_copied() -> None:
    run(2, copy_shards)


def compile_model(rank: int) -> None:
    model = torch.nn.Sequential(rd.ShardedEmbeddingBag(ROWS, WIDTH, optimizer=ADAM), torch.nn.Linear(WIDTH, 1))
    ids = torch.tensor([[rank, 5]])
    want = model(ids)
    before = model[0].full_weight()
    pooled = torch.compile(model, backend="eager")(ids)
    assert torch.equal(pooled, want)
    pooled.sum().backward()
    assert not torch.equal(model[0].full_weight(), before)


def test_compiled_models_leave_divided_tables_as_they_are() -> None:
    run(2, compile_model)
