"""fused=True: the update happens in backward."""

from __future__ import annotations

import copy
import gc
import io
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from .door import FLOATS, ROWS, WIDTH, random_bags, random_table, rt, torch
from .optimizers import assert_same_bits, random_grad

OPTIMIZERS = {
    "SGD": rt.optim.SparseSGD,
    "Adagrad": rt.optim.SparseAdagrad,
    "RowwiseAdagrad": rt.optim.RowwiseAdagrad,
    "SparseAdam": rt.optim.SparseAdam,
}
every_optimizer = pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS.keys())


def bag_of(dtype: Any = torch.float32, **options: Any) -> Any:
    return rt.EmbeddingBag(ROWS, WIDTH, sparse=True, _weight=random_table(dtype), **options)


def train(call: Callable[[Any], Any], optimizer: Any, steps: range, kind: Any = torch.int64) -> None:
    for step in steps:
        optimizer.zero_grad()
        call(random_bags(kind, seed=step)).tanh().sum().backward()
        optimizer.step()


def assert_same_training(one: Any, its_optimizer: Any, other: Any, other_optimizer: Any) -> None:
    assert_same_bits(one.detach(), other.detach())
    states, others = (optimizer.state_dict()["state"] for optimizer in (its_optimizer, other_optimizer))
    assert_same_bits(states, others)


@every_optimizer
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("mode", ["sum", "mean", "sqrtn"])
@pytest.mark.parametrize("maximize", [False, True])
def test_the_bits_of_a_separate_optimizer(make: Any, dtype: Any, mode: str, maximize: bool) -> None:
    fused, separate = bag_of(dtype, mode=mode, padding_idx=3), bag_of(dtype, mode=mode, padding_idx=3)
    one = make(fused.parameters(), lr=0.1, maximize=maximize, fused=True)
    other = make(separate.parameters(), lr=0.1, maximize=maximize)
    for kind in (torch.int32, torch.int64):
        train(lambda bags: fused(bags.ids, bags.offsets), one, range(5), kind)
        assert fused.weight.grad is None
        train(lambda bags: separate(bags.ids, bags.offsets), other, range(5), kind)
    assert not torch.equal(fused.weight, random_table(dtype))
    assert_same_training(fused.weight, one, separate.weight, other)


@every_optimizer
def test_embedding(make: Any) -> None:
    fused, separate = (rt.Embedding(ROWS, WIDTH, padding_idx=2, sparse=True) for _ in range(2))
    separate.load_state_dict(fused.state_dict())
    one, other = make(fused.parameters(), lr=0.1, fused=True), make(separate.parameters(), lr=0.1)
    train(lambda bags: fused(bags.ids.reshape(-1, 1)), one, range(5))
    train(lambda bags: separate(bags.ids.reshape(-1, 1)), other, range(5))
    assert_same_training(fused.weight, one, separate.weight, other)


@every_optimizer
def test_collection(make: Any) -> None:
    tables = {"a": (ROWS, 4), "b": (30, 8), "c": (20, 4)}
    fused, separate = (rt.EmbeddingBagCollection(tables, sparse=True) for _ in range(2))
    separate.load_state_dict(fused.state_dict())
    one, other = make(fused.parameters(), lr=0.1, fused=True), make(separate.parameters(), lr=0.1)

    def call(module: Any) -> Callable[[Any], Any]:
        def pooled(bags: Any) -> Any:
            features = {name: (bags.ids % rows, bags.offsets) for name, (rows, _) in tables.items()}
            return torch.cat(list(module(features).values()), dim=1)

        return pooled

    train(call(fused), one, range(4))
    train(call(separate), other, range(4))
    for mine, others in zip(fused.parameters(), separate.parameters(), strict=True):
        assert_same_bits(mine.detach(), others.detach())


@every_optimizer
def test_weights_have_their_gradient_of_the_table_before_the_update(make: Any) -> None:
    fused, separate = bag_of(mode="sum"), bag_of(mode="sum")
    one, other = make(fused.parameters(), lr=0.1, fused=True), make(separate.parameters(), lr=0.1)
    bags = random_bags()
    grads = []
    for bag in (fused, separate):
        weights = torch.linspace(-1, 1, len(bags.ids)).requires_grad_()
        bag(bags.ids, bags.offsets, weights).tanh().sum().backward()
        grads.append(weights.grad)
    one.step()
    other.step()
    assert_same_bits(*grads)
    assert_same_training(fused.weight, one, separate.weight, other)


@every_optimizer
def test_a_dense_table(make: Any) -> None:
    """sparse=False makes no difference: only rows of the batch change."""
    dense, sparse = rt.EmbeddingBag(ROWS, WIDTH, _weight=random_table()), bag_of(torch.float64)
    one, other = (make(bag.parameters(), lr=0.1, fused=True) for bag in (dense, sparse))
    train(lambda bags: dense(bags.ids, bags.offsets), one, range(3))
    train(lambda bags: sparse(bags.ids, bags.offsets), other, range(3))
    assert_same_training(dense.weight, one, sparse.weight, other)


@every_optimizer
def test_every_backward_is_an_update(make: Any) -> None:
    """Two passes before step(): two updates with the same step number, as two separate ones would have."""
    fused, separate = bag_of(), bag_of()
    one, other = make(fused.parameters(), lr=0.1, fused=True), make(separate.parameters(), lr=0.1)
    for seed in (0, 1):
        bags = random_bags(seed=seed)
        fused(bags.ids, bags.offsets).sum().backward()
        separate.weight.grad = None
        separate(bags.ids, bags.offsets).sum().backward()
        other.step()
        for state in other.state.values():
            if "step" in state:
                state["step"] = state["step"] * 0
    assert_same_bits(fused.weight.detach(), separate.weight.detach())
    one.step()
    assert all(state.get("step", 1) == 1 for state in one.state.values())


def test_two_calls_in_one_graph_are_two_updates() -> None:
    bag = bag_of(mode="sum")
    optimizer = rt.optim.SparseSGD(bag.parameters(), lr=1.0, fused=True)
    (bag(torch.tensor([[1]])).sum() + bag(torch.tensor([[1, 2]])).sum()).backward()
    optimizer.step()
    moved = random_table(torch.float32) - bag.weight.detach()
    torch.testing.assert_close(moved[:4, 0], torch.tensor([0.0, 2.0, 1.0, 0.0]))


@every_optimizer
def test_groups_schedulers_and_groups_that_come_later(make: Any) -> None:
    def run(fused: bool) -> list[Any]:
        bags = [rt.EmbeddingBag(ROWS, WIDTH, sparse=True, _weight=random_table(seed=seed)) for seed in range(3)]
        optimizer = make([{"params": bags[0].parameters()}, {"params": bags[1].parameters(), "lr": 0.02}], lr=0.1,
                         fused=fused)  # fmt: skip
        optimizer.add_param_group({"params": bags[2].parameters(), "maximize": True})
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)
        for step in range(7):
            optimizer.zero_grad()
            batch = random_bags(seed=step)
            sum(bag(batch.ids, batch.offsets).tanh().sum() for bag in bags).backward()
            optimizer.step()
            schedule.step()
        return [bag.weight.detach() for bag in bags]

    assert_same_bits(run(True), run(False))


@every_optimizer
def test_checkpoints(make: Any) -> None:
    """A checkpoint of either kind continues as either kind."""
    start = bag_of()
    optimizer = make(start.parameters(), lr=0.1, fused=True)
    train(lambda bags: start(bags.ids, bags.offsets), optimizer, range(4))
    file = io.BytesIO()
    torch.save({"bag": start.state_dict(), "optimizer": optimizer.state_dict()}, file)
    results = []
    for fused in (True, False):
        file.seek(0)
        saved = torch.load(file, weights_only=True)
        bag = bag_of()
        bag.load_state_dict(saved["bag"])
        other = make(bag.parameters(), lr=1.0, fused=fused)
        other.load_state_dict(saved["optimizer"])
        train(lambda bags, bag=bag: bag(bags.ids, bags.offsets), other, range(4, 8))
        results.append(bag.weight.detach())
    train(lambda bags: start(bags.ids, bags.offsets), optimizer, range(4, 8))
    for result in results:
        assert_same_bits(result, start.weight.detach())


@every_optimizer
@pytest.mark.parametrize("kind", ["deepcopy", "pickle"])
def test_copies_of_module_and_optimizer(make: Any, kind: str) -> None:
    bag = bag_of()
    optimizer = make(bag.parameters(), lr=0.1, fused=True)
    train(lambda bags: bag(bags.ids, bags.offsets), optimizer, range(2))
    both = bag, optimizer
    other_bag, other = copy.deepcopy(both) if kind == "deepcopy" else pickle.loads(pickle.dumps(both))
    train(lambda bags: bag(bags.ids, bags.offsets), optimizer, range(2, 4))
    train(lambda bags: other_bag(bags.ids, bags.offsets), other, range(2, 4))
    assert other_bag.weight is not bag.weight and other_bag.weight.grad is None
    assert_same_training(other_bag.weight, other, bag.weight, optimizer)


def test_a_pickled_module_does_not_carry_its_optimizer() -> None:
    bag = bag_of()
    optimizer = rt.optim.SparseSGD(bag.parameters(), lr=0.1, fused=True)
    other = pickle.loads(pickle.dumps(bag))
    other(torch.tensor([[1]])).sum().backward()
    assert other.weight.grad is not None and optimizer is not None


def test_the_optimizer_may_go() -> None:
    bag = bag_of()
    optimizer = rt.optim.SparseSGD(bag.parameters(), lr=0.1, fused=True)
    del optimizer
    gc.collect()
    bag(torch.tensor([[1]])).sum().backward()
    assert torch.equal(bag.weight.detach(), random_table(torch.float32))
    assert bag.weight.grad.is_coalesced()


def test_nothing_is_updated_without_a_gradient() -> None:
    bag = bag_of()
    optimizer = rt.optim.SparseAdam(bag.parameters(), fused=True)
    with torch.no_grad():
        bag(torch.tensor([[1]]))
    bag(torch.tensor([[1]])).sum()
    optimizer.step()
    assert torch.equal(bag.weight, random_table(torch.float32))
    assert optimizer.state_dict()["state"] == {}


@every_optimizer
def test_a_gradient_from_elsewhere_is_refused(make: Any) -> None:
    bag = bag_of()
    optimizer = make(bag.parameters(), fused=True)
    bag.weight.grad = random_grad(bag.weight, 0)
    with pytest.raises(RuntimeError, match=r"grad: expected None with fused=True"):
        optimizer.step()


def test_bad_ids_change_nothing() -> None:
    bag = bag_of()
    rt.optim.SparseSGD(bag.parameters(), lr=0.1, fused=True)
    with pytest.raises(ValueError, match=r"embedding_bag: .*out of range"):
        bag(torch.tensor([[1, ROWS]]))
    assert torch.equal(bag.weight, random_table(torch.float32))


def test_a_graph_that_saved_the_table_notices_the_update() -> None:
    bag = bag_of()
    optimizer = rt.optim.SparseSGD(bag.parameters(), lr=0.1, fused=True)
    loss = (bag.weight * bag.weight).sum()
    bag(torch.tensor([[1]])).sum().backward()
    optimizer.step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.parametrize("count", [1, 2, 7])
@every_optimizer
def test_the_same_bits_with_any_threads(make: Any, count: int, threads: None) -> None:
    def run(count: int) -> Any:
        torch.set_num_threads(count)
        bag = rt.EmbeddingBag(3000, 33, sparse=True, _weight=random_table(torch.float32, rows=3000, width=33))
        optimizer = make(bag.parameters(), lr=0.1, fused=True)
        bags = random_bags(bags=8000, rows=3000)
        bag(bags.ids.fmod(2000), bags.offsets).tanh().sum().backward()
        optimizer.step()
        return bag.weight.detach()

    assert_same_bits(run(count), run(1))


def test_gradients_of_weights_are_differentiated_once() -> None:
    bags, bag = random_bags(), bag_of(mode="sum")
    optimizer = rt.optim.SparseSGD(bag.parameters(), fused=True)
    weights = torch.ones(len(bags.ids), requires_grad=True)
    loss = bag(bags.ids, bags.offsets, weights).pow(2).sum()
    (grad,) = torch.autograd.grad(loss, weights, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        grad.sum().backward()
    del optimizer


def test_a_scaler_of_gradients_says_why_it_cannot_be() -> None:
    bag = bag_of()
    optimizer, scaler = rt.optim.SparseAdam(bag.parameters(), fused=True), torch.amp.GradScaler("cpu")
    scaler.scale(bag(torch.tensor([[1, 2]])).sum()).backward()
    with pytest.raises(RuntimeError, match=r"optim\.SparseAdam: fused: expected False with a GradScaler"):
        scaler.step(optimizer)
    del optimizer
    separate = rt.optim.SparseAdam([table := rt.EmbeddingBag(4, 2, sparse=True).weight])
    scaler.scale(rt.embedding(torch.tensor([1, 2]), table, sparse=True).sum()).backward()
    scaler.step(separate)
    assert separate.state[table]["step"] == 1
