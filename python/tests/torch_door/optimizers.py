"""Pairs of optimizers, raggrad's and torch's, and gradients for both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from .door import random_table, rt, torch


class Pair(NamedTuple):
    ours: Callable[..., Any]
    theirs: Callable[..., Any]


PAIRS = {
    "SGD": Pair(rt.optim.SparseSGD, torch.optim.SGD),
    "Adagrad": Pair(rt.optim.SparseAdagrad, torch.optim.Adagrad),
    "SparseAdam": Pair(rt.optim.SparseAdam, torch.optim.SparseAdam),
}
every_optimizer = pytest.mark.parametrize("name", PAIRS)


def parameter(dtype: Any = torch.float32, seed: int = 1) -> Any:
    return torch.nn.Parameter(random_table(dtype, seed=seed))


def coo(rows: Any, values: Any, table: Any) -> Any:
    return torch.sparse_coo_tensor(torch.as_tensor(rows).reshape(1, -1), values, table.shape)


def random_grad(table: Any, seed: int, count: int = 40) -> Any:
    """As torch's embeddings make it: rows repeat and come in any order."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randint(0, table.shape[0], (count,), generator=generator)
    values = torch.randn(count, *table.shape[1:], generator=generator, dtype=torch.float64)
    return coo(rows, values.to(table.dtype), table)


def train(optimizer: Any, table: Any, steps: range = range(50)) -> Any:
    for step in steps:
        table.grad = random_grad(table, step)
        optimizer.step()
    return table.detach()


def states_of(optimizer: Any) -> list[dict[str, Any]]:
    return list(optimizer.state_dict()["state"].values())


def assert_same_bits(ours: Any, theirs: Any) -> None:
    torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
