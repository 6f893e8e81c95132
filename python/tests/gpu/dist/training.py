"""Batches and tables of the tests of raggrad.dist on a GPU, and the training of one process on the CPU."""

from __future__ import annotations

import functools
from typing import Any

from dist.batches import random_batch, random_cuts, random_table
from dist.worlds import rt, torch
from raggrad.settings import using

ROWS, WIDTH, BAGS, STEPS = 200, 12, 48, 4
WORLDS = [1, 2, 3, 4]
PATIENCE = 60  # seconds
MODES = ["sum", "mean", "sqrtn"]
OPTIMIZERS = {
    "sgd": functools.partial(rt.optim.SparseSGD, lr=0.1),
    "adagrad": functools.partial(rt.optim.SparseAdagrad, lr=0.1),
    "rowwise": functools.partial(rt.optim.RowwiseAdagrad, lr=0.1),
    "adam": functools.partial(rt.optim.SparseAdam, lr=0.01),
}


def assert_same_bits(one: Any, other: Any) -> None:
    torch.testing.assert_close(one, other, rtol=0, atol=0, check_device=False)


def on_gpu(batch: Any) -> Any:
    return type(batch)(*(tensor.cuda() for tensor in batch))


def batch_of(step: int, dtype: Any = torch.float32) -> Any:
    kind = ["hot", "uniform", "equal", "first"][step % 4]
    return random_batch(torch.Generator().manual_seed(step), ROWS, WIDTH, BAGS, kind, dtype)


def part_of(step: int, rank: int, ranks: int, dtype: Any = torch.float32) -> Any:
    """The part of a batch that a rank has; sometimes nothing."""
    cuts = random_cuts(torch.Generator().manual_seed(100 * ranks + step), BAGS, ranks)
    return on_gpu(batch_of(step, dtype).part(cuts[rank], cuts[rank + 1]))


def start_table(dtype: Any = torch.float32) -> Any:
    return random_table(torch.Generator().manual_seed(5), ROWS, WIDTH, dtype)


def serial_training(mode: str, rule: Any, weighted: bool, dtype: Any) -> Any:
    """One process, on the CPU, with all bags."""
    bag = rt.EmbeddingBag(ROWS, WIDTH, mode=mode, sparse=True, dtype=dtype, _weight=start_table(dtype))
    optimizer = rule(bag.parameters())
    for step in range(STEPS):
        batch = batch_of(step, dtype)
        optimizer.zero_grad()
        with using("reproducible"):
            bag(batch.ids, batch.offsets, batch.weights if weighted else None).backward(batch.grad)
        optimizer.step()
    return bag.weight.detach()
