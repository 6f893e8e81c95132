"""rt.without_waiting(): the forms for CUDA graphs, which work on a CPU too. python/tests/gpu captures them."""

from __future__ import annotations

from typing import Any

import pytest

from .door import FLOATS, ROWS, WIDTH, random_bags, random_table, rt, torch
from .optimizers import assert_same_bits
from .test_fused import every_optimizer

MODES = ["sum", "mean", "sqrtn"]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("ids", [torch.int32, torch.int64])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_bits_of_calls_that_wait(dtype: Any, mode: str, ids: Any, weighted: bool) -> None:
    bags = random_bags(ids)
    weights = torch.linspace(-1, 1, len(bags.ids)).to(dtype) if weighted else None

    def run() -> Any:
        table = random_table(dtype).requires_grad_()
        pooled = rt.embedding_bag(bags.ids, table, bags.offsets, mode=mode, per_sample_weights=weights)
        pooled.tanh().sum().backward()
        return pooled.detach(), table.grad

    expected = run()
    with rt.without_waiting():
        assert_same_bits(run(), expected)
    rt.check()


@every_optimizer
@pytest.mark.parametrize("dtype", FLOATS)
def test_fused_optimizers(make: Any, dtype: Any) -> None:
    def run() -> Any:
        bag = rt.EmbeddingBag(ROWS, WIDTH, sparse=True, _weight=random_table(dtype))
        lookup = rt.Embedding(ROWS, WIDTH, sparse=True, _weight=random_table(dtype))
        optimizer = make([*bag.parameters(), *lookup.parameters()], lr=0.1, fused=True)
        for step in range(3):
            bags = random_bags(seed=step)
            (bag(bags.ids, bags.offsets).tanh().sum() + lookup(bags.ids[:4].reshape(2, 2)).tanh().sum()).backward()
            optimizer.step()
        return bag.weight.detach(), lookup.weight.detach()

    expected = run()
    with rt.without_waiting():
        assert_same_bits(run(), expected)


def test_collections_and_last_offsets() -> None:
    tables = {"a": (ROWS, 4), "b": (30, 8), "c": (20, 4)}
    collection = rt.EmbeddingBagCollection(tables, include_last_offset=True)
    bags = random_bags()
    ends = torch.cat([bags.offsets, torch.tensor([len(bags.ids)])])
    features = {name: (bags.ids % rows, ends) for name, (rows, _) in tables.items()}
    expected = collection(features)
    with rt.without_waiting():
        assert_same_bits(collection(features), expected)
        table = random_table()
        pooled = rt.embedding_bag(bags.ids, table, ends, include_last_offset=True)
    assert_same_bits(pooled, rt.embedding_bag(bags.ids, table, bags.offsets))


def test_empty_batches() -> None:
    table = random_table().requires_grad_()
    none = torch.zeros(0, dtype=torch.int64)
    with rt.without_waiting():
        for bags in (0, 3):
            pooled = rt.embedding_bag(none, table, torch.zeros(bags, dtype=torch.int64))
            assert_same_bits(pooled.detach(), torch.zeros(bags, WIDTH, dtype=table.dtype))
            (grad,) = torch.autograd.grad(pooled.sum(), table)
            assert_same_bits(grad, torch.zeros_like(table))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"padding_idx": 1}, "padding_idx: expected None"),
        ({"sparse": True}, "use sparse=False or an optimizer with fused=True"),
        ({"per_sample_weights": torch.ones(2, 2).double().requires_grad_()}, "cannot have a gradient"),
    ],
)
def test_refused(options: dict[str, Any], message: str) -> None:
    table = random_table().requires_grad_()
    with rt.without_waiting(), pytest.raises(ValueError, match=message):
        rt.embedding_bag(torch.tensor([[1, 2], [3, 4]]), table, mode="sum", **options)


@pytest.mark.parametrize("module", [rt.EmbeddingBag, rt.Embedding], ids=lambda module: module.__name__)
def test_a_frozen_table_needs_no_gradient_whatever_its_kind(module: Any) -> None:
    frozen = module.from_pretrained(random_table(), freeze=True, sparse=True)
    ids = torch.tensor([[1, 2], [3, 4]])
    with rt.without_waiting():
        assert_same_bits(frozen(ids), module.from_pretrained(random_table())(ids))
        frozen.requires_grad_()
        with pytest.raises(ValueError, match="use sparse=False or an optimizer with fused=True"):
            frozen(ids)


@pytest.mark.parametrize("transform", [torch.func.jacrev, torch.func.vmap], ids=lambda transform: transform.__name__)
def test_transforms_are_refused(transform: Any) -> None:
    function = transform(lambda table: rt.embedding(torch.tensor([1, 2]), table))
    with rt.without_waiting(), pytest.raises(NotImplementedError, match=r"embedding: torch\.func is not supported"):
        function(random_table()[None] if transform is torch.func.vmap else random_table())


def test_max_norm_is_refused_before_it_changes_the_table() -> None:
    table, ids = random_table(), torch.tensor([[1, 2]])
    with rt.without_waiting():
        for function in (rt.embedding_bag, rt.embedding):
            with pytest.raises(ValueError, match=rf"{function.__name__}: max_norm: expected None where calls must not"):
                function(ids, table, max_norm=0.1)
    assert torch.equal(table, random_table())


def test_bad_ids_on_a_cpu_raise_at_the_call() -> None:
    with rt.without_waiting():
        with pytest.raises(ValueError, match=r"embedding_bag: .*Index 50 out of range"):
            rt.embedding_bag(torch.tensor([[1, ROWS]]), random_table())
        with pytest.raises(ValueError, match=r"embedding_bag: .*offsets"):
            rt.embedding_bag(torch.tensor([1, 2]), random_table(), torch.tensor([0, 5]))
        with pytest.raises(ValueError, match=r"embedding_bag: .*offsets"):
            rt.embedding_bag(torch.tensor([1, 2]), random_table(), torch.tensor([0, 1]), include_last_offset=True)
    rt.check()
