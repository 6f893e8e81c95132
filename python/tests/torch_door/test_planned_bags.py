"""Bags whose forward plans the backward, as on a GPU. Their operators work on a CPU too; python/tests/gpu has a GPU."""

from __future__ import annotations

import copy
import gc
from typing import Any

import pytest

from .door import FLOATS, ROWS, WIDTH, random_bags, random_table, rt, torch
from .optimizers import assert_same_bits
from .test_fused import every_optimizer

MODES = ["sum", "mean", "sqrtn"]


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> Any:
    """From its call on, bags are planned."""
    used = []

    def serves(weight: Any) -> bool:
        used.append(weight)
        return weight.requires_grad and torch.is_grad_enabled()

    def plan() -> None:
        monkeypatch.setattr(rt.bags, "serves", serves)

    yield plan
    assert used


def grad_parts(grad: Any) -> Any:
    if not grad.is_sparse:
        return grad
    assert grad.is_coalesced()
    return grad.indices(), grad.values()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("ids", [torch.int32, torch.int64])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("ends", [False, True])
def test_the_bits_of_other_bags(
    planned: Any, dtype: Any, mode: str, ids: Any, weighted: bool, sparse: bool, ends: bool
) -> None:
    bags = random_bags(ids)
    offsets = torch.cat([bags.offsets, torch.tensor([len(bags.ids) - 2])]).to(ids) if ends else bags.offsets
    offsets = offsets.clamp(max=len(bags.ids) - 2) if ends else offsets

    def run() -> Any:
        table = random_table(dtype).requires_grad_()
        weights = torch.linspace(-1, 1, len(bags.ids)).to(dtype).requires_grad_() if weighted else None
        pooled = rt.embedding_bag(
            bags.ids, table, offsets, mode=mode, sparse=sparse, per_sample_weights=weights, include_last_offset=ends
        )
        pooled.tanh().sum().backward()
        return pooled.detach(), grad_parts(table.grad), weights.grad if weighted else torch.zeros(0)

    expected = run()
    planned()
    assert_same_bits(run(), expected)


@every_optimizer
@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_optimizers(planned: Any, make: Any, fused: bool, decay: float) -> None:
    options = {"weight_decay": decay} if decay else {}
    if decay and make in (rt.optim.SparseAdam, rt.optim.RowwiseAdagrad):
        options = {}

    def run() -> Any:
        bag = rt.EmbeddingBag(ROWS, WIDTH, sparse=True, _weight=random_table(torch.float32))
        optimizer = make(bag.parameters(), lr=0.1, fused=fused, **options)
        for step in range(4):
            optimizer.zero_grad()
            bags = random_bags(seed=step)
            bag(bags.ids, bags.offsets).tanh().sum().backward()
            assert (bag.weight.grad is None) == fused
            optimizer.step()
        return bag.weight.detach(), copy.deepcopy(optimizer.state_dict()["state"])

    expected = run()
    planned()
    assert_same_bits(run(), expected)


def test_derivatives_of_derivatives(planned: Any) -> None:
    planned()
    bags = random_bags()
    table = random_table().requires_grad_()
    weights = torch.linspace(-1, 1, len(bags.ids)).double().requires_grad_()

    def pooled(table: Any, weights: Any) -> Any:
        return rt.embedding_bag(bags.ids, table, bags.offsets, mode="mean", per_sample_weights=weights)

    assert torch.autograd.gradcheck(pooled, (table, weights))
    assert torch.autograd.gradgradcheck(pooled, (table, weights))


def test_a_graph_that_is_kept(planned: Any) -> None:
    planned()
    bags, table = random_bags(), random_table().requires_grad_()
    pooled = rt.embedding_bag(bags.ids, table, bags.offsets)
    (first,) = torch.autograd.grad(pooled.sum(), table, retain_graph=True)
    assert_same_bits(torch.autograd.grad(pooled.sum(), table)[0], first)


def test_plans_end_with_their_graph(planned: Any) -> None:
    planned()
    bags, table = random_bags(), random_table().requires_grad_()
    pooled = rt.embedding_bag(bags.ids, table, bags.offsets)
    number = pooled.grad_fn.plan.number
    arguments = torch.zeros_like(pooled.detach()), number, None, "mean", None
    torch.ops.raggrad.embedding_bag_planned_grad(*arguments)
    del pooled
    gc.collect()
    with pytest.raises(RuntimeError, match=rf"plan: there is none with number {number}"):
        torch.ops.raggrad.embedding_bag_planned_grad(*arguments)


def test_ids_that_changed_before_backward_are_noticed(planned: Any) -> None:
    planned()
    bags, table = random_bags(), random_table().requires_grad_()
    pooled = rt.embedding_bag(bags.ids, table, bags.offsets)
    bags.ids[0] = 0
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        pooled.sum().backward()


def test_a_table_that_outlived_its_transform(planned: Any) -> None:
    planned()
    bags, table = random_bags(), random_table()
    left: list[Any] = []
    torch.func.grad(lambda rows: (left.append(rows), rows.sum())[1])(table)
    assert left[0].requires_grad
    pooled = rt.embedding_bag(bags.ids, left[0], bags.offsets)
    assert not pooled.requires_grad
    assert_same_bits(pooled, rt.embedding_bag(bags.ids, table, bags.offsets))


def test_empty_batches(planned: Any) -> None:
    planned()
    table = random_table().requires_grad_()
    none = torch.zeros(0, dtype=torch.int64)
    for count in (0, 3):
        for sparse in (False, True):
            pooled = rt.embedding_bag(none, table, torch.zeros(count, dtype=torch.int64), sparse=sparse)
            assert_same_bits(pooled.detach(), torch.zeros(count, WIDTH, dtype=table.dtype))
            (grad,) = torch.autograd.grad(pooled.sum(), table)
            assert_same_bits(grad.to_dense(), torch.zeros_like(table))


def test_errors(planned: Any) -> None:
    planned()
    table = random_table().requires_grad_()
    with pytest.raises(ValueError, match=rf"embedding_bag: .*Index {ROWS} out of range.*input\[1\]"):
        rt.embedding_bag(torch.tensor([[1, ROWS]]), table)
    with pytest.raises(ValueError, match=r"embedding_bag: .*offsets\[1\]: expected at most 2"):
        rt.embedding_bag(torch.tensor([1, 2]), table, torch.tensor([0, 5]))
    with pytest.raises(ValueError, match=r"embedding_bag: .*offsets\[0\]: expected 0, got 1"):
        rt.embedding_bag(torch.tensor([1, 2]), table, torch.tensor([1, 1]))
