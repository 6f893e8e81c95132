"""raggrad.dist with tensors on a GPU. Ranks share one GPU and talk by gloo; NCCL has one rank, or one for each GPU.

With accumulation="reproducible", everything has the bits of one process on the CPU.
"""

from __future__ import annotations

import functools
import os
import signal
from collections.abc import Callable
from typing import Any

import pytest
from dist.batches import random_batch, random_cuts, random_table
from dist.worlds import dist, outcomes_of, rd, rt, run, torch
from raggrad.settings import using

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no GPU")

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


# The steps of reproducible sums.


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("weighted", [False, True])
def test_steps_of_reproducible_sums_have_the_bits_of_the_cpu(dtype: Any, weighted: bool) -> None:
    ops = torch.ops.raggrad
    generator = torch.Generator().manual_seed(1)
    data = random_table(generator, 60, WIDTH, dtype)
    data[3, 2], data[5, 2], data[7, 3], data[9] = float("inf"), float("-inf"), float("nan"), data[9] * 0
    indices = torch.randint(0, 60, (5000,), generator=generator)
    rows = torch.randint(0, 90, (5000,), generator=generator)
    rows[torch.rand(5000, generator=generator) < 0.3] = 7
    factors = torch.randn(5000, generator=generator, dtype=torch.float64)
    factors = factors.to(torch.float64 if dtype == torch.float64 else torch.float32)
    results = []
    for device in ("cpu", "cuda"):
        unique, positions, places = ops.order_ids(rows.to(device), 90)
        terms = data.to(device), indices.to(device)[positions], places
        terms = *terms, factors.to(device)[positions] if weighted else None
        largest = ops.split_largest(*terms, len(unique))
        counts = torch.bincount(places, minlength=len(unique))
        sums = ops.split_sums(*terms, largest, counts)
        rounded = [ops.split_round(sums, largest, counts, terms[0], mode) for mode in MODES]
        assert rounded[0].device.type == device
        results.append([tensor.cpu().nan_to_num(nan=1e9) for tensor in (unique, positions, places, sums, *rounded)])
    for one, other in zip(*results, strict=True):
        assert_same_bits(one, other)


# all_reduce.


def gradient(seed: int, dtype: Any) -> Any:
    """Sparse, with unique rows, the same bits on every device."""
    generator = torch.Generator().manual_seed(seed)
    batch = random_batch(generator, ROWS, WIDTH, 10 * (seed % 4), "hot", dtype)
    values = random_table(generator, len(batch.ids), WIDTH, dtype)
    coo = torch.sparse_coo_tensor(batch.ids[None], values, (ROWS, WIDTH), check_invariants=True)
    return rt.coalesce(coo, accumulation="sequential")


def reduce(rank: int, ranks: int) -> None:
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        mine = gradient(rank, dtype)
        for options in ({}, {"average": True}, {"wire": torch.bfloat16}):
            want = rd.all_reduce(mine, **options)
            got = rd.all_reduce(mine.cuda(), **options)
            assert got.is_cuda
            assert got.is_coalesced()
            assert_same_bits(got.indices().cpu(), want.indices())
            assert_same_bits(got.values().cpu(), want.values())
    parameter = torch.nn.Parameter(torch.zeros(ROWS, WIDTH, device="cuda"))
    if rank:  # none on rank 0
        parameter.grad = gradient(rank, torch.float32).cuda()
    several = rd.all_reduce([parameter, gradient(rank, torch.float64).cuda()])
    assert parameter.grad is several[0]
    assert_same_bits(several[1].cpu().to_dense(), rd.all_reduce(gradient(rank, torch.float64)).to_dense())
    large = torch.sparse_coo_tensor(  # too much for one packed message
        torch.arange(50_000, device="cuda")[None], torch.full((50_000, 16), 0.5, device="cuda"), (60_000, 16)
    )
    assert (rd.all_reduce(large).values() == 0.5 * ranks).all()
    assert rd.measure(device="cuda").bandwidth > 0
    with pytest.raises(ValueError, match=r"coo_or_param\[1\]: expected a tensor on cuda:0"):
        rd.all_reduce([mine.cuda(), mine])


@pytest.mark.parametrize("ranks", WORLDS)
def test_all_reduce_has_the_bits_of_the_cpu(ranks: int) -> None:
    run(ranks, reduce, ranks, timeout=PATIENCE)


def reduce_on_a_stream(rank: int, ranks: int) -> None:
    """The gradient is there late, on another stream."""
    values = torch.zeros(ROWS, WIDTH, device="cuda")
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(300_000_000)
        values.fill_(rank + 1)
        rows = torch.arange(ROWS, device="cuda")
        grad = torch.sparse_coo_tensor(rows[None], values, (ROWS, WIDTH), is_coalesced=True, check_invariants=False)
        total = rd.all_reduce(grad).values().sum().item()
    assert total == ROWS * WIDTH * ranks * (ranks + 1) / 2


def test_exchanges_are_ordered_on_the_current_stream() -> None:
    run(2, reduce_on_a_stream, 2, timeout=PATIENCE)


# Tables divided among ranks.


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


# Tables on every rank.


def make_tables(sparse: bool) -> Any:
    model = torch.nn.ModuleDict(
        {
            "bag": rt.EmbeddingBag(ROWS, WIDTH, sparse=True),
            "one": rt.Embedding(ROWS, WIDTH, sparse=True),
            "other": rt.EmbeddingBag(ROWS, WIDTH, mode="sum", sparse=sparse),
            "tables": rt.EmbeddingBagCollection({"a": (ROWS, WIDTH), "b": (ROWS, 4)}, sparse=True),
        }
    )
    with torch.no_grad():
        for seed, parameter in enumerate(model.parameters()):
            parameter.copy_(random_table(torch.Generator().manual_seed(seed), *parameter.shape))
    return model


def train_registered(rank: int, ranks: int, rule: Any, fused: bool) -> list[Any]:
    model = make_tables(sparse=not fused).cuda()
    if rank:
        torch.nn.init.zeros_(model["bag"].weight)  # it becomes that of rank 0
    rd.register(model, accumulation="reproducible")
    optimizer = rule(model.parameters(), fused=fused)
    for step in range(STEPS):
        train_step(model, optimizer, part_of(step, rank, ranks))
    return [parameter.detach().cpu() for parameter in model.parameters()]


def train_step(model: Any, optimizer: Any, mine: Any) -> None:
    optimizer.zero_grad()
    pooled = model["tables"]({"a": (mine.ids, mine.offsets), "b": (mine.ids, mine.offsets, mine.weights)})
    outputs = [
        model["bag"](mine.ids, mine.offsets, mine.weights),
        model["other"](mine.ids, mine.offsets),
        pooled["a"],
        pooled["b"],
        model["one"](mine.ids),
    ]
    grads = [mine.grad, mine.grad, mine.grad, mine.grad[:, :4].contiguous(), mine.weights[:, None].expand(-1, WIDTH)]
    torch.autograd.backward(outputs, [grad.contiguous() for grad in grads])
    optimizer.step()


def serial_registered(rule: Any) -> list[Any]:
    """The same in one process on the CPU."""
    model = make_tables(sparse=True)
    optimizer = rule(model.parameters())
    for step in range(STEPS):
        with using("reproducible"):
            train_step(model, optimizer, batch_of(step))
    return [parameter.detach() for parameter in model.parameters()]


@pytest.mark.parametrize("name", ["sgd", "adagrad"])
def test_registered_tables_have_the_bits_of_one_process_on_the_cpu(name: str) -> None:
    want = serial_registered(OPTIMIZERS[name])
    for ranks, fused in [(2, False), *((ranks, True) for ranks in WORLDS)]:
        for tables in run(ranks, train_registered, ranks, OPTIMIZERS[name], fused, timeout=PATIENCE):
            for one, other in zip(tables, want, strict=True):
                assert torch.equal(one, other), ranks


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        options = {"dtype": torch.float64}
        self.bag = rt.EmbeddingBag(ROWS, WIDTH, sparse=True, **options)
        self.shards = rd.ShardedEmbeddingBag(ROWS, WIDTH, average=True, device="cuda", **options)
        self.dense = torch.nn.Linear(WIDTH, 1, **options)

    def forward(self, ids: Any, offsets: Any) -> Any:
        return self.dense(torch.tanh(self.bag(ids, offsets) + self.shards(ids, offsets))).squeeze(1)


def train_beside_ddp(rank: int, ranks: int) -> list[Any]:
    """Every rank has as many bags, so that the mean of means is the mean over all bags."""
    torch.manual_seed(0)
    model = Model().cuda()
    rd.register(model, average=True)
    parallel = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(STEPS):
        share = BAGS // ranks
        mine = on_gpu(batch_of(step, torch.float64).part(rank * share, (rank + 1) * share))
        optimizer.zero_grad()
        (parallel(mine.ids, mine.offsets) - 1).square().mean().backward()
        optimizer.step()
    return [tensor.detach().cpu() for tensor in (model.bag.weight, model.dense.weight, model.shards.full_weight())]


def test_training_beside_distributed_data_parallel() -> None:
    want = run(1, train_beside_ddp, 1, timeout=PATIENCE)[0]
    for ranks in (2, 4):
        for got in run(ranks, train_beside_ddp, ranks, timeout=PATIENCE):
            torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-11)


# Faults.


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


# NCCL: one rank for each GPU.


def nccl(rank: int, ranks: int, backend: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """Runs a test's function in a group of NCCL, which takes the place of all ranks' group of gloo."""
    torch.cuda.set_device(rank)
    group = dist.new_group(backend=backend)
    world, dist.group.WORLD = dist.group.WORLD, group
    try:
        return function(rank, ranks, *arguments)
    finally:
        dist.group.WORLD = world


def send_to_itself(rank: int) -> None:
    """Messages of NCCL as ranks exchange them, though there is but one rank."""
    from raggrad.dist._messages import Ranks

    torch.cuda.set_device(0)
    ranks = Ranks("test", dist.new_group(backend="nccl"), torch.device("cuda", 0))
    parts = [torch.arange(1000, device="cuda"), torch.randn(50_000, 16, device="cuda")]
    received = [torch.empty_like(part) for part in parts]
    ranks.others = [0]
    ranks._transfer("rows", {0: parts}, {0: received})
    for part, came in zip(parts, received, strict=True):
        assert torch.equal(part, came)
    with pytest.raises(RuntimeError, match=r"group: expected a backend for tensors on cpu, got .*nccl"):
        rd.all_reduce(gradient(0, torch.float32), ranks.group)


def test_messages_of_nccl() -> None:
    run(1, send_to_itself, timeout=PATIENCE)


@pytest.mark.parametrize("backend", ["nccl", "cpu:gloo,cuda:nccl"])
@pytest.mark.parametrize("ranks", [1, 2])
def test_nccl(ranks: int, backend: str) -> None:
    if torch.cuda.device_count() < ranks:
        pytest.skip(f"NCCL wants a GPU for each rank, and there is {torch.cuda.device_count()}")
    rule = OPTIMIZERS["adagrad"]
    want = serial_training("mean", rule, False, torch.float32)
    arguments = "mean", rule, False, torch.float32, True
    for full, _ in run(ranks, nccl, ranks, backend, train_sharded, *arguments, timeout=PATIENCE):
        assert torch.equal(full, want)
    tables = serial_registered(rule)
    for got in run(ranks, nccl, ranks, backend, train_registered, rule, True, timeout=PATIENCE):
        assert all(torch.equal(one, other) for one, other in zip(got, tables, strict=True))
    run(ranks, nccl, ranks, backend, reduce_on_a_stream, timeout=PATIENCE)
