"""Faults of ranks that share one GPU."""

from __future__ import annotations

import os
import signal

import pytest
from dist.worlds import outcomes_of, rd, run, torch

from .training import OPTIMIZERS, PATIENCE, ROWS, WIDTH, batch_of, on_gpu

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no GPU")


def be_wrong(rank: int) -> list[str]:
    bag = rd.ShardedEmbeddingBag(ROWS, WIDTH, device="cuda")
    before = bag.weight.detach().clone()
    texts = []
    for wrong in (torch.tensor([1, ROWS], device="cuda"), torch.tensor([1, 2])):
        with pytest.raises((RuntimeError, ValueError)) as caught:
            bag(wrong if rank == 1 else torch.tensor([1, 2], device="cuda"), torch.tensor([0], device="cuda"))
        texts.append(str(caught.value))
    assert torch.equal(bag.weight, before)
    one = torch.tensor([rank], device="cuda")
    assert bag(one, one * 0).shape == (1, WIDTH)  # the group still works
    return texts


def test_a_fault_of_one_rank_is_an_error_on_all() -> None:
    for rank, (corrupt, elsewhere) in enumerate(run(3, be_wrong, timeout=PATIENCE)):
        assert f"input[1]: expected 0 to {ROWS - 1}, got {ROWS}" in corrupt
        assert "input: expected a tensor on cuda:0, got cpu" in elsewhere
        assert rank == 1 or "rank 1 has a fault" in corrupt


def die_in_backward(rank: int) -> None:
    bag = rd.ShardedEmbeddingBag(ROWS, WIDTH, optimizer=OPTIMIZERS["sgd"], device="cuda")
    before = bag.weight.detach().clone()
    mine = on_gpu(batch_of(1))
    pooled = bag(mine.ids, mine.offsets)
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        pooled.backward(mine.grad)
    finally:
        assert torch.equal(bag.weight, before)


def test_a_rank_dies() -> None:
    outcomes = outcomes_of(3, die_in_backward, timeout=10.0)
    assert outcomes[1] is None
    for outcome in (outcomes[0], outcomes[2]):
        assert "ShardedEmbeddingBag.backward: agreement:" in outcome.error
        assert "rank 1 (" in outcome.error
        assert outcome.took < PATIENCE
