"""Tables on every rank, in the memory of one GPU: the bits of one process on the CPU."""

from __future__ import annotations

from typing import Any

import pytest
from dist.batches import random_table
from dist.worlds import rd, rt, run, torch
from raggrad.settings import using

from .training import BAGS, OPTIMIZERS, PATIENCE, ROWS, STEPS, WIDTH, WORLDS, batch_of, on_gpu, part_of

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no GPU")


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
