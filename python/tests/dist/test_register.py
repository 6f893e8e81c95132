"""Gradients of registered modules are those of one process with all bags."""

from __future__ import annotations

import functools
import warnings
from typing import Any

import pytest
import raggrad
from raggrad.settings import using

from .batches import random_batch, random_cuts, random_table
from .worlds import dist, rd, rt, run, torch

ROWS, WIDTH, BAGS = 90, 5, 30


def make_bag(table: Any, mode: str, sparse: bool, padding_idx: int | None = None) -> Any:
    bag = rt.EmbeddingBag(*table.shape, mode=mode, sparse=sparse, padding_idx=padding_idx, dtype=table.dtype)
    with torch.no_grad():
        bag.weight.copy_(table)
    return bag


def train_bags(rank: int, ranks: int, accumulation: str | None, dtype: Any) -> list[Any]:
    results = []
    for number, mode in enumerate(["sum", "mean", "sqrtn", "sum", "mean"]):
        generator = torch.Generator().manual_seed(number)
        table = random_table(generator, ROWS, WIDTH, dtype)
        batch = random_batch(generator, ROWS, WIDTH, BAGS, ["uniform", "hot"][number % 2], dtype)
        cuts = random_cuts(generator, BAGS, ranks)
        sparse, padding = number % 2 == 0, 3 if number == 4 else None
        one = make_bag(table, mode, sparse, padding)
        weighted = number >= 3
        with using(accumulation):
            want = one(batch.ids, batch.offsets, batch.weights if weighted else None)
        want.backward(batch.grad)
        many = make_bag(table if rank == 0 else torch.zeros_like(table), mode, sparse, padding)
        rd.register(many, accumulation=accumulation)
        assert torch.equal(many.weight, one.weight)  # from rank 0
        mine = batch.part(cuts[rank], cuts[rank + 1])
        for passes in (1, 2):
            pooled = many(mine.ids, mine.offsets, mine.weights if weighted else None)
            pooled.backward(mine.grad)
            if passes == 1:
                grad, wanted = many.weight.grad, one.weight.grad
                assert grad.is_sparse == sparse
                if sparse:
                    assert grad.is_coalesced()
                    assert torch.equal(grad.indices(), wanted.indices())
                    grad, wanted = grad.to_dense(), wanted.to_dense()
                if accumulation == "reproducible":
                    assert torch.equal(pooled, want[cuts[rank] : cuts[rank + 1]])
                    assert torch.equal(grad, wanted), (number, (grad - wanted).abs().max())
                else:
                    torch.testing.assert_close(grad, wanted, rtol=1e-4, atol=1e-5 * float(wanted.abs().max()))
                results.append(grad.clone())
        dense = many.weight.grad.to_dense() if sparse else many.weight.grad
        assert torch.equal(dense, 2 * results[-1])  # a second pass adds up
    return results


@pytest.mark.parametrize("accumulation", [None, "reproducible"])
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_bags_have_the_gradient_of_one_process(ranks: int, accumulation: str | None) -> None:
    first, *others = run(ranks, train_bags, ranks, accumulation, torch.float32)
    assert all(torch.equal(a, b) for other in others for a, b in zip(first, other, strict=True))


def test_bags_of_float64_have_the_bits_of_one_process() -> None:
    run(3, train_bags, 3, "reproducible", torch.float64)


def train_others(rank: int, ranks: int) -> None:
    generator = torch.Generator().manual_seed(7)
    shapes = {"user": (40, 4), "word": (70, 4), "tag": (9, 2)}
    batches = {name: random_batch(generator, rows, width, BAGS, "hot") for name, (rows, width) in shapes.items()}
    cuts = random_cuts(generator, BAGS, ranks)
    torch.manual_seed(0)
    one = torch.nn.ModuleDict(
        {
            "tables": rt.EmbeddingBagCollection(shapes, sparse=True),
            "one": rt.Embedding(40, 4, sparse=True),
            "weighted": rt.EmbeddingBag(40, 4, mode="sum"),
        }
    )
    torch.manual_seed(rank)
    many = torch.nn.ModuleDict(
        {
            "tables": rt.EmbeddingBagCollection(shapes, sparse=True),
            "one": rt.Embedding(40, 4, sparse=True),
            "weighted": rt.EmbeddingBag(40, 4, mode="sum"),
        }
    )
    if rank == 0:
        many.load_state_dict(one.state_dict())
    rd.register(many)

    def loss_of(model: Any, parts: Any) -> Any:
        pooled = model["tables"]({name: (part.ids, part.offsets) for name, part in parts.items()})
        loss = sum((pooled[name] * part.grad).sum() for name, part in parts.items())
        user = parts["user"]
        weights = user.weights.clone().requires_grad_()
        weighted = model["weighted"](user.ids, user.offsets, weights)
        return loss + (weighted * user.grad).sum() + model["one"](user.ids).square().sum(), weights

    loss, weights = loss_of(one, batches)
    loss.backward()
    parts = {name: batch.part(cuts[rank], cuts[rank + 1]) for name, batch in batches.items()}
    loss, my_weights = loss_of(many, parts)
    loss.backward()
    for (name, a), (_, b) in zip(one.named_parameters(), many.named_parameters(), strict=True):
        assert torch.equal(a, b), name
        want = a.grad.to_dense()
        torch.testing.assert_close(b.grad.to_dense(), want, rtol=1e-4, atol=1e-5 * float(want.abs().max()))
    begin = int(batches["user"].sizes[: cuts[rank]].sum())
    torch.testing.assert_close(my_weights.grad, weights.grad[begin : begin + len(my_weights)])


def test_collections_embeddings_and_weights() -> None:
    run(3, train_others, 3)


class Model(torch.nn.Module):
    """An embedding and a dense layer, in float64 so that the ways to divide a batch differ by little."""

    def __init__(self, sharded: bool = False) -> None:
        super().__init__()
        self.bag = rt.EmbeddingBag(ROWS, WIDTH, sparse=True, dtype=torch.float64)
        self.shards = (
            rd.ShardedEmbeddingBag(ROWS, WIDTH, dtype=torch.float64)
            if sharded
            else rt.EmbeddingBag(ROWS, WIDTH, sparse=True, dtype=torch.float64)
        )
        self.dense = torch.nn.Linear(WIDTH, 1, dtype=torch.float64)

    def forward(self, ids: Any, offsets: Any) -> Any:
        return self.dense(torch.tanh(self.bag(ids, offsets) + self.shards(ids, offsets))).squeeze(1)


def train_beside_ddp(rank: int, ranks: int) -> None:
    generator = torch.Generator().manual_seed(3)
    torch.manual_seed(1)
    one = Model()
    table = one.shards.weight.detach().clone()
    model = Model(sharded=True)
    model.load_state_dict({**one.state_dict(), "shards.weight": table})
    if rank != 0:
        torch.nn.init.zeros_(model.bag.weight)
        torch.nn.init.zeros_(model.dense.weight)
    rd.register(model, average=True)
    assert set(model._ddp_params_and_buffers_to_ignore) == {"bag.weight", "shards.weight"}
    parallel = torch.nn.parallel.DistributedDataParallel(model)
    rates = {"one": torch.optim.SGD(one.parameters(), lr=0.1), "many": torch.optim.SGD(model.parameters(), lr=0.1)}
    for _ in range(3):
        batch = random_batch(generator, ROWS, WIDTH, 8 * ranks, "hot", torch.float64)
        # Ranks have as many bags each: the mean over ranks of means over bags is the mean over all bags.
        mine = batch.part(8 * rank, 8 * rank + 8)
        (one(batch.ids, batch.offsets) - 1).square().mean().backward()
        (parallel(mine.ids, mine.offsets) - 1).square().mean().backward()
        model.shards.weight.grad = model.shards.weight.grad / ranks
        for optimizer in rates.values():
            optimizer.step()
            optimizer.zero_grad()
    torch.testing.assert_close(model.bag.weight, one.bag.weight, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(model.dense.weight, one.dense.weight, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(model.shards.full_weight(), one.shards.weight.detach(), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("ranks", [2, 3])
def test_training_beside_distributed_data_parallel(ranks: int) -> None:
    run(ranks, train_beside_ddp, ranks)


OPTIMIZERS = {
    "sgd": functools.partial(rt.optim.SparseSGD, lr=0.1),
    "adagrad": functools.partial(rt.optim.SparseAdagrad, lr=0.1),
    "rowwise": functools.partial(rt.optim.RowwiseAdagrad, lr=0.1),
    "adam": functools.partial(rt.optim.SparseAdam, lr=0.01),
}


def train_fused(rank: int, ranks: int, optimizer: str, fused: bool, average: bool) -> list[Any]:
    """A bag with weights and an embedding, updated in backward or in step()."""
    generator = torch.Generator().manual_seed(11)
    model = torch.nn.ModuleList(
        [
            make_bag(random_table(generator, ROWS, WIDTH), "sum", True),
            rt.Embedding(ROWS, WIDTH, sparse=not fused, _weight=random_table(generator, ROWS, WIDTH)),
        ]
    )
    rd.register(model, average=average, accumulation="reproducible")
    rule = OPTIMIZERS[optimizer](model.parameters(), fused=fused)
    slopes = []
    for step in range(3):
        batch = random_batch(generator, ROWS, WIDTH, BAGS, ["hot", "uniform"][step % 2])
        cuts = random_cuts(generator, BAGS, ranks)
        mine = batch.part(cuts[rank], cuts[rank + 1])
        weights = mine.weights.clone().requires_grad_()
        bag, embedding = model
        loss = (bag(mine.ids, mine.offsets, weights) * mine.grad).sum()
        (loss + (embedding(mine.ids) * mine.weights[:, None]).sum()).backward()
        assert (bag.weight.grad is None) == fused
        assert (embedding.weight.grad is None) == fused
        slopes.append(weights.grad)
        rule.step()
        rule.zero_grad()
    return [bag.weight.detach(), embedding.weight.detach(), *slopes]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_fused_optimizers_have_the_bits_of_separate_ones(optimizer: str) -> None:
    average = optimizer == "adagrad"
    separate = run(3, train_fused, 3, optimizer, False, average)
    fused = run(3, train_fused, 3, optimizer, True, average)
    for one, other in zip(separate, fused, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
    assert torch.equal(fused[0][0], fused[2][0])
    assert not average or torch.equal(fused[0][0], run(3, train_fused, 3, optimizer, True, True)[1][0])


def resume(rank: int, ranks: int, steps: range, saved: Any) -> Any:
    """Trains a registered bag, from a checkpoint if there is one; returns a checkpoint."""
    torch.manual_seed(rank)
    bag = rt.EmbeddingBag(ROWS, WIDTH, sparse=True)
    rd.register(bag, accumulation="reproducible")
    optimizer = OPTIMIZERS["adam"](bag.parameters())
    if saved is not None:
        bag.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
    else:
        with torch.no_grad():
            bag.weight.copy_(random_table(torch.Generator().manual_seed(1), ROWS, WIDTH))
    for step in steps:
        generator = torch.Generator().manual_seed(step)
        batch = random_batch(generator, ROWS, WIDTH, BAGS, "hot")
        cuts = random_cuts(generator, BAGS, ranks)
        mine = batch.part(cuts[rank], cuts[rank + 1])
        bag(mine.ids, mine.offsets).backward(mine.grad)
        optimizer.step()
        optimizer.zero_grad()
    return {"model": bag.state_dict(), "optimizer": optimizer.state_dict()}


def test_a_restarted_job_has_the_same_bits_on_any_number_of_ranks() -> None:
    want = run(1, resume, 1, range(4), None)[0]
    middle = run(3, resume, 3, range(2), None)[1]
    for ranks in (2, 4):
        for end in run(ranks, resume, ranks, range(2, 4), middle):
            assert torch.equal(end["model"]["weight"], want["model"]["weight"])
            for name, state in end["optimizer"]["state"][0].items():
                assert torch.equal(torch.as_tensor(state), torch.as_tensor(want["optimizer"]["state"][0][name]))


def register_again(rank: int) -> None:
    """A module that is registered twice sums once, has the last options, and leaves no setting behind."""
    model = torch.nn.Sequential(rt.EmbeddingBag(5, 2, sparse=True))
    rd.register(model[0], average=True, accumulation="fast")
    rd.register(model, accumulation="reproducible")
    model[0](torch.tensor([[0, 1]])).sum().backward()
    assert raggrad.settings.current_accumulation.get() is None
    assert torch.equal(model[0].weight.grad.to_dense()[:2], torch.full((2, 2), 1.0))
    assert model._ddp_params_and_buffers_to_ignore == ["0.weight"]


def test_a_module_is_registered_again() -> None:
    run(2, register_again)


class Sparse(torch.nn.Module):
    """One embedding that is not registered, and a dense layer."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.bags = {
            "collection": lambda: rt.EmbeddingBagCollection([(ROWS, WIDTH)], sparse=True),
            "fused": lambda: rt.EmbeddingBag(ROWS, WIDTH),
            "sharded": lambda: rd.ShardedEmbeddingBag(ROWS, WIDTH),
            "sparse": lambda: rt.EmbeddingBag(ROWS, WIDTH, sparse=True),
        }[kind]()
        self.dense = torch.nn.Linear(WIDTH, 1)

    def forward(self, ids: Any) -> Any:
        pooled = self.bags([ids])[0] if isinstance(self.bags, rt.EmbeddingBagCollection) else self.bags(ids)
        return self.dense(pooled)


def forget_to_register(rank: int) -> None:
    ids = torch.tensor([[rank, 5]])
    for kind, what in {
        "collection": r"torch\.EmbeddingBagCollection: .* its sparse gradients: call raggrad\.dist\.register",
        "fused": r"torch\.optim\.SparseSGD: .* what fused=True updates: call raggrad\.dist\.register",
        "sharded": r"dist\.ShardedEmbeddingBag: .* other rows on every rank: call raggrad\.dist\.register",
    }.items():
        model = Sparse(kind)
        optimizer = rt.optim.SparseSGD([*model.bags.parameters()], lr=0.1, fused=True) if kind == "fused" else None
        parallel = torch.nn.parallel.DistributedDataParallel(model)
        with pytest.raises(RuntimeError, match=what):
            parallel(ids)
        if kind != "sharded":
            with torch.no_grad():
                assert parallel(ids).shape == (1, 1)
        del optimizer
        model = Sparse(kind)
        rd.register(model)
        parallel = torch.nn.parallel.DistributedDataParallel(model)
        parallel(ids).sum().backward()
    model = Sparse("sparse")  # torch knows that nn.EmbeddingBag has sparse gradients
    parallel = torch.nn.parallel.DistributedDataParallel(model)
    parallel(ids).sum().backward()
    assert model.bags.weight.grad.to_dense()[:, 0].count_nonzero() == 3


def test_a_table_that_is_not_registered_is_named() -> None:
    run(2, forget_to_register)


def sum_twice(rank: int) -> None:
    """DistributedDataParallel looks for names to leave alone in the module that it wraps, and nowhere else."""
    model = Sparse("sparse")
    rd.register(model.bags)
    ids = torch.tensor([[rank, 5]])
    parallel = torch.nn.parallel.DistributedDataParallel(model)
    with pytest.warns(UserWarning, match="EmbeddingBag: weight is summed once more by DistributedDataParallel"):
        parallel(ids)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model(ids)
        rd.register(model)
        torch.nn.parallel.DistributedDataParallel(model)(ids)


def test_a_table_that_is_summed_twice_is_named() -> None:
    run(2, sum_twice)


def refuse(rank: int) -> None:
    bag = rt.EmbeddingBag(5, 2, sparse=True)
    rd.register(bag)
    ids = torch.tensor([[0, 1]])
    shards = rd.ShardedEmbeddingBag(5, 2)
    with rt.without_waiting():
        with pytest.raises(RuntimeError, match=r"summed over processes .* not inside raggrad.torch.without_waiting"):
            bag(ids)
        with pytest.raises(RuntimeError, match=r"raggrad.dist.ShardedEmbeddingBag: ranks wait for each other"):
            shards(ids)
        with torch.no_grad():
            assert bag(ids).shape == (1, 2)  # without a gradient there is nothing to sum
    with pytest.raises(RuntimeError, match=r"torch\.func cannot do"):
        torch.func.grad(lambda weight: torch.func.functional_call(bag, {"weight": weight}, (ids,)).sum())(
            bag.weight.detach()
        )
    with pytest.raises(Exception, match=r"torch\.compile"):
        torch.compile(bag, fullgraph=True, backend="eager")(ids)
    assert dist.get_world_size() == 1


def refuse_tables(rank: int) -> None:
    """Tables of ranks would differ."""
    with pytest.raises(ValueError, match=r"register: 1: max_norm is not supported: each rank would scale"):
        rd.register(torch.nn.Sequential(torch.nn.Linear(1, 1), rt.EmbeddingBag(5, 2, max_norm=1.0)))
    tied = torch.nn.Sequential(rt.Embedding(5, 2), torch.nn.Linear(2, 5))
    tied[1].weight = tied[0].weight
    with pytest.raises(ValueError, match=r"register: 1\.weight is the table of an embedding, too"):
        rd.register(tied)
    bag = rt.EmbeddingBag(5, 2)
    rd.register(torch.nn.Sequential(bag, bag))  # one module with two names


def test_what_cannot_be_summed_is_refused() -> None:
    run(1, refuse)
    run(1, refuse_tables)
    with pytest.raises(ValueError, match="register: accumulation: expected one of"):
        rd.register(rt.EmbeddingBag(5, 2), accumulation="exact")
    with pytest.raises(TypeError, match="register: module: expected a module, got list"):
        rd.register([rt.EmbeddingBag(5, 2)])
    with pytest.raises(RuntimeError, match="init_process_group first"):
        rd.register(rt.EmbeddingBag(5, 2))
