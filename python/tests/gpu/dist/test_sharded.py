"""Tables divided among ranks that share one GPU: the bits of one process on the CPU."""

from __future__ import annotations

import functools
from typing import Any

import pytest
from dist.batches import random_batch
from dist.worlds import rd, run, torch

from .training import (
    BAGS,
    MODES,
    OPTIMIZERS,
    PATIENCE,
    ROWS,
    STEPS,
    WIDTH,
    WORLDS,
    assert_same_bits,
    part_of,
    serial_training,
    start_table,
)

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no GPU")


def train_sharded(
    rank: int, ranks: int, mode: str, rule: Any, weighted: bool, dtype: Any, replicate: bool
) -> tuple[Any, int]:
    bag = rd.ShardedEmbeddingBag(
        ROWS,
        WIDTH,
        mode,
        optimizer=rule,
        accumulation="reproducible",
        replicate=replicate,
        network=rd.Network(latency=0.0),  # so that small batches have hot rows, too
        device="cuda",
        dtype=dtype,
    )
    bag.load_full(start_table(dtype))
    for step in range(STEPS):
        mine = part_of(step, rank, ranks, dtype)
        bag(mine.ids, mine.offsets, mine.weights if weighted else None).backward(mine.grad)
        assert bag.weight.grad is None
    full = bag.full_weight()
    assert full.is_cuda
    return full.cpu(), len(bag.hot_rows)


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("fused", [False, True])
def test_sharded_training_has_the_bits_of_one_process_on_the_cpu(name: str, fused: bool) -> None:
    rule = functools.partial(OPTIMIZERS[name], fused=fused)
    want = serial_training("mean", OPTIMIZERS[name], False, torch.float32)
    assert not torch.equal(want, start_table())
    for ranks in WORLDS:
        for full, _ in run(ranks, train_sharded, ranks, "mean", rule, False, torch.float32, True, timeout=PATIENCE):
            assert torch.equal(full, want), ranks


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("mode", MODES)
def test_sharded_training_with_weights(dtype: Any, mode: str) -> None:
    want = serial_training(mode, OPTIMIZERS["adagrad"], True, dtype)
    for ranks in (1, 3):
        for full, _ in run(
            ranks, train_sharded, ranks, mode, OPTIMIZERS["adagrad"], True, dtype, False, timeout=PATIENCE
        ):
            assert torch.equal(full, want), ranks


def train_sharded_by_default(rank: int, ranks: int) -> tuple[Any, Any, int]:
    """The default order: weights, gradients of weights of samples, and hot rows."""
    slopes, found = [], []
    for device, replicate in (("cpu", True), ("cuda", True), ("cuda", False)):
        bag = rd.ShardedEmbeddingBag(
            ROWS, WIDTH, optimizer=OPTIMIZERS["adagrad"], replicate=replicate, network=rd.Network(latency=0.0),
            accumulation="sequential", device=device,
        )  # fmt: skip
        bag.load_full(start_table())
        for step in range(STEPS):
            batch = random_batch(torch.Generator().manual_seed(step), ROWS, WIDTH, 4 * BAGS, "hot")
            mine = batch.part(4 * BAGS * rank // ranks, 4 * BAGS * (rank + 1) // ranks)
            mine = type(mine)(*(tensor.to(device) for tensor in mine))
            weights = mine.weights.requires_grad_()
            bag(mine.ids, mine.offsets, weights).backward(mine.grad)
        slopes.append(weights.grad.cpu())
        found.append((bag.full_weight().cpu(), len(bag.hot_rows)))
    (on_cpu, _), (ahead, hot), (plain, none) = found
    assert not none
    assert_same_bits(ahead, plain)
    assert_same_bits(slopes[1], slopes[2])
    assert_same_bits(ahead, on_cpu)
    torch.testing.assert_close(slopes[1], slopes[0])
    return ahead, plain, hot


@pytest.mark.parametrize("ranks", WORLDS[1:])
def test_the_default_order_has_the_bits_of_the_cpu_with_hot_rows_or_without(ranks: int) -> None:
    first, *others = run(ranks, train_sharded_by_default, ranks, timeout=PATIENCE)
    assert all(torch.equal(first[0], other[0]) for other in others)
    assert first[2] + sum(other[2] for other in others) > 0


def move_and_resume(rank: int, ranks: int) -> None:
    """A table that is moved to the GPU in the middle, and one that is loaded there from shards."""
    rule, options = OPTIMIZERS["adagrad"], {"accumulation": "reproducible", "network": rd.Network(latency=0.0)}
    moved = rd.ShardedEmbeddingBag(ROWS, WIDTH, **options)
    moved.load_full(start_table())
    for _ in range(2):
        mine = part_of(0, rank, ranks)
        mine = type(mine)(*(tensor.cpu() for tensor in mine))
        moved(mine.ids, mine.offsets)
    pooled = moved(mine.ids, mine.offsets)
    moved.cuda()
    assert_same_bits(moved(mine.ids.cuda(), mine.offsets.cuda()), pooled)
    bags = [rd.ShardedEmbeddingBag(ROWS, WIDTH, optimizer=rule, device=device, **options) for device in ("cpu", "cuda")]
    for bag in bags:
        bag.load_full(start_table())
        bag(mine.ids.to(bag.weight.device), mine.offsets.to(bag.weight.device)).sum().backward()
    host, gpu = (bag.state_dict() for bag in bags)
    for name, value in host.items():
        assert_same_bits(torch.as_tensor(gpu[name]), torch.as_tensor(value))
    bags[1].load_state_dict(host)
    assert bags[1].weight.is_cuda
    bags[1].load_shards([{"first_row": 0, "rows": {"weight": start_table()}}])
    assert_same_bits(bags[1].full_weight(), start_table())


def test_tables_move_between_devices() -> None:
    run(2, move_and_resume, 2, timeout=PATIENCE)
