"""Optimizers on owners, whole tables, checkpoints on another number of ranks."""

from __future__ import annotations

import functools
import io
import os
import signal
from typing import Any

import pytest

from .batches import random_batch, random_cuts, random_table
from .worlds import outcomes_of, packed, rd, rt, run, torch

ROWS, WIDTH, BAGS = 50, 6, 24
OPTIMIZERS = {
    "sgd": functools.partial(rt.optim.SparseSGD, lr=0.1),
    "adagrad": functools.partial(rt.optim.SparseAdagrad, lr=0.1),
    "adam": functools.partial(rt.optim.SparseAdam, lr=0.01),
}


def batches(steps: range, ranks: int) -> Any:
    """(batch, cuts) of every step. A batch does not depend on the number of ranks."""
    for step in steps:
        generator = torch.Generator().manual_seed(step)
        batch = random_batch(generator, ROWS, WIDTH, BAGS, ["hot", "uniform"][step % 2])
        yield batch, random_cuts(generator, BAGS, ranks)


def serial_training(steps: range, make_optimizer: Any, table: Any) -> Any:
    bag = rt.EmbeddingBag(ROWS, WIDTH, mode="mean", sparse=True)
    with torch.no_grad():
        bag.weight.copy_(table)
    optimizer = make_optimizer([bag.weight])
    for batch, _ in batches(steps, 1):
        optimizer.zero_grad()
        pooled = rt.embedding_bag(
            batch.ids, bag.weight, batch.offsets, mode="mean", sparse=True, accumulation="reproducible"
        )
        pooled.backward(batch.grad)
        optimizer.step()
    return bag.weight.detach()


def train(bag: Any, rank: int, ranks: int, steps: range) -> None:
    for batch, cuts in batches(steps, ranks):
        mine = batch.part(cuts[rank], cuts[rank + 1])
        bag(mine.ids, mine.offsets).backward(mine.grad)
        assert bag.weight.grad is None


def train_from_table(rank: int, ranks: int, optimizer: str, table: Any) -> Any:
    bag = rd.ShardedEmbeddingBag(
        ROWS, WIDTH, "mean", optimizer=OPTIMIZERS[optimizer], accumulation="reproducible"
    )
    bag.load_full(table)
    train(bag, rank, ranks, range(4))
    full = bag.full_weight()
    first, end = bag.row_range
    assert torch.equal(full[first:end], bag.weight)
    return full


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_training_has_the_bits_of_one_process(optimizer: str) -> None:
    table = random_table(torch.Generator().manual_seed(5), ROWS, WIDTH)
    want = serial_training(range(4), OPTIMIZERS[optimizer], table)
    assert not torch.equal(want, table)
    for ranks in (1, 2, 3, 4, 8):
        for full in run(ranks, train_from_table, ranks, optimizer, table):
            assert torch.equal(full, want), ranks


def train_with_a_fused_optimizer(rank: int, ranks: int, optimizer: str, table: Any) -> Any:
    """One that the user made: step() is the user's, too."""
    bag = rd.ShardedEmbeddingBag(ROWS, WIDTH, accumulation="reproducible")
    bag.load_full(table)
    rule = OPTIMIZERS[optimizer](bag.parameters(), fused=True)
    for step in range(4):
        train(bag, rank, ranks, range(step, step + 1))
        rule.step()
    return bag.full_weight()


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_users_may_fuse_an_optimizer(optimizer: str) -> None:
    table = random_table(torch.Generator().manual_seed(5), ROWS, WIDTH)
    want = serial_training(range(4), OPTIMIZERS[optimizer], table)
    for full in run(3, train_with_a_fused_optimizer, 3, optimizer, table):
        assert torch.equal(full, want)


def weigh_twice(rank: int) -> None:
    """The first backward pass changes rows that the gradient of the other call's weights needs."""
    bag = rd.ShardedEmbeddingBag(ROWS, WIDTH, optimizer=OPTIMIZERS["sgd"])
    weights = torch.ones(1, 1, requires_grad=True)
    ids = torch.tensor([[0]])  # the other rank has no row that changes
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        (bag(ids, None, weights) + bag(ids, None, weights)).sum().backward()
    (bag(ids) + bag(ids)).sum().backward()


def test_a_table_that_has_changed_gives_no_gradient_of_weights() -> None:
    run(2, weigh_twice)


def train_fused(rank: int, ranks: int, optimizer: Any, average: bool) -> Any:
    bag = rd.ShardedEmbeddingBag(
        ROWS, WIDTH, optimizer=optimizer, average=average, accumulation="reproducible"
    )
    bag.load_full(random_table(torch.Generator().manual_seed(5), ROWS, WIDTH))
    train(bag, rank, ranks, range(3))
    return bag.full_weight(), bag.shard_state()


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_optimizers_may_be_fused(optimizer: str) -> None:
    """Owners update in backward either way."""
    rule = OPTIMIZERS[optimizer]
    separate, fused = (run(2, train_fused, 2, functools.partial(rule, fused=fused), False) for fused in (False, True))
    for (want, state), (got, its) in zip(separate, fused, strict=True):
        assert torch.equal(got, want)
        assert state.pop("rows").keys() == its["rows"].keys()
        assert all(value == its[name] for name, value in state.items())


def average_gradients(rank: int, ranks: int) -> tuple[Any, Any]:
    """The gradient of a shard, as a sum and as an average; and what a step of each gives."""
    (batch, cuts) = next(batches(range(1), ranks))
    mine = batch.part(cuts[rank], cuts[rank + 1])
    grads = []
    for average in (False, True):
        bag = rd.ShardedEmbeddingBag(ROWS, WIDTH, average=average)
        bag(mine.ids, mine.offsets).backward(mine.grad)
        grads.append(bag.weight.grad)
    assert all(grad.is_coalesced() for grad in grads)
    assert torch.equal(grads[1].values(), grads[0].values() / ranks)
    plain, averaged = (
        rd.ShardedEmbeddingBag(ROWS, WIDTH, optimizer=functools.partial(OPTIMIZERS["sgd"], lr=lr), average=average)
        for lr, average in ((0.25, False), (0.5, True))
    )
    for bag in (plain, averaged):
        bag.load_full(torch.zeros(ROWS, WIDTH))
        bag(mine.ids, mine.offsets).backward(mine.grad)
    assert ranks != 2 or torch.equal(plain.weight, averaged.weight)
    return grads[0].to_dense(), grads[1].to_dense()


def test_averages() -> None:
    run(2, average_gradients, 2)
    run(3, average_gradients, 3)


def loaded(data: bytes) -> Any:
    return torch.load(io.BytesIO(data), weights_only=True)


def make(**options: Any) -> Any:
    return rd.ShardedEmbeddingBag(
        ROWS, WIDTH, optimizer=OPTIMIZERS["adam"], accumulation="reproducible", padding_idx=0, **options
    )


def train_and_save(rank: int, ranks: int) -> tuple[bytes, bytes, Any]:
    torch.manual_seed(rank)  # the weights are drawn by rank 0
    bag = make()
    assert rank != 0 or not bag.weight[0].any()
    train(bag, rank, ranks, range(3))
    state, shard = packed(bag.state_dict()), packed(bag.shard_state())
    train(bag, rank, ranks, range(3, 6))
    return state, shard, bag.full_weight()


def load_and_train(rank: int, ranks: int, state: bytes | None, shards: list[bytes]) -> Any:
    rows = [ROWS, *[0] * (ranks - 1)] if shards and ranks > 2 else None  # all rows on one rank
    bag = make(rows=rows)
    if state is not None:
        bag.load_state_dict(loaded(state))
    else:
        bag.load_shards(loaded(shard) for shard in shards)
    train(bag, rank, ranks, range(3, 6))
    return bag.full_weight()


def test_a_checkpoint_resumes_with_the_same_bits_on_any_number_of_ranks() -> None:
    results = run(4, train_and_save, 4)
    (state, _, want), shards = results[0], [shard for _, shard, _ in results]
    assert loaded(state)["weight"].shape == (ROWS, WIDTH)
    for ranks in (1, 2, 3, 4):
        for full in run(ranks, load_and_train, ranks, state, []):
            assert torch.equal(full, want), f"state_dict on {ranks} ranks"
        for full in run(ranks, load_and_train, ranks, None, shards):
            assert torch.equal(full, want), f"shards on {ranks} ranks"


def train_until_killed(rank: int, ranks: int, folder: str) -> None:
    """Saves shards after every step; rank 1 dies in the fourth."""
    bag = make()
    bag.load_full(random_table(torch.Generator().manual_seed(5), ROWS, WIDTH))
    for step in range(6):
        train(bag, rank, ranks, range(step, step + 1))
        torch.save(bag.shard_state(), f"{folder}/{step}-{rank}")
        if rank == 1 and step == 3:
            os.kill(os.getpid(), signal.SIGKILL)


def train_on(rank: int, ranks: int, folder: str, step: int, old_ranks: int) -> Any:
    bag = make()
    if old_ranks:
        bag.load_shards(torch.load(f"{folder}/{step}-{old}") for old in range(old_ranks))
    else:
        bag.load_full(random_table(torch.Generator().manual_seed(5), ROWS, WIDTH))
    train(bag, rank, ranks, range(step + 1, 6))
    return bag.full_weight()


def test_a_job_that_lost_a_rank_is_resumed_with_the_same_bits(tmp_path: Any) -> None:
    outcomes = outcomes_of(3, train_until_killed, 3, str(tmp_path), timeout=10.0)
    assert outcomes[1] is None
    assert all("rank 1 (" in outcome.error for outcome in (outcomes[0], outcomes[2]))
    want = run(1, train_on, 1, "", -1, 0)[0]
    assert torch.equal(run(2, train_on, 2, str(tmp_path), 3, 3)[1], want)


def test_state_dict_loads_into_torchs_module() -> None:
    state, _, _ = run(2, train_and_save, 2)[0]
    bag = torch.nn.EmbeddingBag(ROWS, WIDTH)
    bag.load_state_dict({"weight": loaded(state)["weight"]})


def draw(rank: int) -> Any:
    torch.manual_seed(3 if rank == 0 else 4)
    return rd.ShardedEmbeddingBag(9000, 2).full_weight()


def test_weights_are_drawn_alike_on_any_number_of_ranks() -> None:
    tables = [table for ranks in (1, 2, 3) for table in run(ranks, draw)]
    assert all(torch.equal(tables[0], table) for table in tables)
    assert abs(float(tables[0].mean())) < 0.05
    assert abs(float(tables[0].std()) - 1) < 0.05


def checkpoint(rank: int, ranks: int, folder: str, rows: int, seed: int) -> Any:
    """Saves in the middle with seed 0, and begins there with others: nothing was trained before."""
    import torch.distributed.checkpoint as dcp

    torch.manual_seed(seed)
    bag = make(rows=[rows, *[0] * (ranks - 2), ROWS - rows])
    if seed == 0:
        train(bag, rank, ranks, range(2))
    state = {"bag": bag.state_dict()}
    if seed == 0:
        dcp.save(state, checkpoint_id=folder)
    else:
        dcp.load(state, checkpoint_id=folder)
        bag.load_state_dict(state["bag"])
    train(bag, rank, ranks, range(2, 4))
    return bag.full_weight()


def test_torch_distributed_checkpoint_takes_the_state_dict(tmp_path: Any) -> None:
    want = run(3, checkpoint, 3, str(tmp_path), ROWS // 2, 0)[0]
    assert torch.equal(run(2, checkpoint, 2, str(tmp_path), ROWS // 3, 1)[0], want)


def misuse(rank: int) -> None:
    bag = rd.ShardedEmbeddingBag(10, 2)
    with pytest.raises(ValueError, match=r"load_full: weight: expected shape \(10, 2\), got \(9, 2\)"):
        bag.load_full(torch.zeros(9, 2))
    with pytest.raises(TypeError, match=r"load_full: weight: expected a tensor, got list"):
        bag.load_full([[0.0, 0.0]])
    for rows, got in (([9], r"\[9\]"), ([10.0], r"\[10\.0\]"), (10, "10")):
        with pytest.raises(ValueError, match=rf"rows: expected 1 numbers that add up to 10, got {got}"):
            rd.ShardedEmbeddingBag(10, 2, rows=rows)
    for options in ({"num_embeddings": 9.5}, {"dim": 2.0}, {"padding_idx": "1"}):
        (argument,) = options
        with pytest.raises(TypeError, match=rf"ShardedEmbeddingBag: {argument}: expected a whole number, got "):
            rd.ShardedEmbeddingBag(**{"num_embeddings": 10, "dim": 2, **options})
    with pytest.raises(TypeError, match=r"ShardedEmbeddingBag: optimizer: expected a function that makes one, got str"):
        rd.ShardedEmbeddingBag(10, 2, optimizer="adam")
    with pytest.raises(ValueError, match=r"ShardedEmbeddingBag: group: Group one is not registered"):
        rd.ShardedEmbeddingBag(10, 2, group="one")
    with pytest.raises(ValueError, match=r"ShardedEmbeddingBag: mode: expected 'sum', 'mean' or 'sqrtn', got 'max'"):
        rd.ShardedEmbeddingBag(10, 2, mode="max")
    with pytest.raises(ValueError, match=r"ShardedEmbeddingBag: num_embeddings: expected at least 0, got -1"):
        rd.ShardedEmbeddingBag(-1, 2)
    with pytest.raises(ValueError, match=r"num_embeddings: expected at most 4294967296, got 8589934592"):
        rd.ShardedEmbeddingBag(2**33, 2)
    with pytest.raises(ValueError, match=r"ShardedEmbeddingBag: dim: expected at least 1, got 0"):
        rd.ShardedEmbeddingBag(10, 0)
    with pytest.raises(ValueError, match=r"ShardedEmbeddingBag: accumulation: expected one of .* got 'exact'"):
        rd.ShardedEmbeddingBag(10, 2, accumulation="exact")
    with pytest.raises(ValueError, match="padding_idx: expected -10 to 9, got 10"):
        rd.ShardedEmbeddingBag(10, 2, padding_idx=10)
    with pytest.raises(ValueError, match="offsets"):
        bag(torch.tensor([1, 2]), torch.tensor([0, 3]))
    with pytest.raises(ValueError, match="ShardedEmbeddingBag: offsets: expected 1 dimension, got 2"):
        bag(torch.tensor([1, 2]), torch.tensor([[0]]))
    with pytest.raises(ValueError, match=r"input\[1\]: expected 0 to 9, got 10"):
        bag(torch.tensor([1, 10]), torch.tensor([0]))
    with pytest.raises(ValueError, match=r"input\[0\]: expected none, as the table has no rows, got 1"):
        rd.ShardedEmbeddingBag(0, 2)(torch.tensor([1]), torch.tensor([0]))
    with pytest.raises(ValueError, match=r"dist.*per_sample_weights: expected the shape of input, \(2,\), got \(1,\)"):
        bag(torch.tensor([1, 2]), torch.tensor([0]), torch.ones(1))
    with pytest.raises(TypeError, match="ShardedEmbeddingBag: offsets: expected a tensor, got list"):
        bag(torch.tensor([1, 2]), [0])
    with pytest.raises(ValueError, match=r"dist.*per_sample_weights: expected torch.float32, got torch.float64"):
        bag(torch.tensor([[1, 2]]), None, torch.ones(1, 2).double())
    with pytest.raises(ValueError, match=r"ShardedEmbeddingBag: input: expected int32 or int64, got torch.float32"):
        bag(torch.tensor([[1.5]]))
    with pytest.raises(ValueError, match=r"ShardedEmbeddingBag: offsets: expected int32 or int64, got torch.bool"):
        bag(torch.tensor([1]), torch.tensor([False]))
    for weight, got in ((torch.zeros(3, 2), "3"), (torch.tensor(4.0), "4"), ("five", "five")):
        with pytest.raises(RuntimeError, match=f"size mismatch for weight: expected 10 rows, got {got}"):
            bag.load_state_dict({"weight": weight})
    with pytest.raises(RuntimeError, match=r"weight: expected rows of shape \(2,\), got \(1,\)"):
        bag.load_state_dict({"weight": torch.zeros(10, 1)})
    with pytest.raises(ValueError, match=r"weight: expected rows of shape \(2,\), got \(1,\)"):
        bag.load_shards([{"first_row": 0, "rows": {"weight": torch.zeros(10, 1)}}])
    with pytest.raises(RuntimeError, match=r'Unexpected key.*"other"'):
        bag.load_state_dict({"weight": torch.zeros(10, 2), "other": torch.zeros(1)})
    with pytest.raises(ValueError, match="load_shards: weight: expected rows 0 to 9, each once, got none"):
        bag.load_shards([])


def test_misuse_is_named() -> None:
    run(1, misuse)


def show(rank: int) -> str:
    return repr(rd.ShardedEmbeddingBag(1, 2))


def test_repr_shows_the_rows_of_a_rank() -> None:
    assert run(2, show) == [
        f"ShardedEmbeddingBag(1, 2, mode='mean', {rows} of this rank)" for rows in ("rows 0 to 0", "no rows")
    ]
