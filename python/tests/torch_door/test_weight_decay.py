"""weight_decay of SparseSGD and SparseAdagrad: torch's, on the rows that a gradient has."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from .door import FLOATS, ROWS, WIDTH, random_bags, random_table, rt, torch
from .optimizers import PAIRS, assert_same_bits, coo, parameter, random_grad

DECAY = {"lr": 0.1, "weight_decay": 0.05}
both = pytest.mark.parametrize("name", ["SGD", "Adagrad"])


@both
@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_against_torch_where_every_row_has_a_gradient(name: str, maximize: bool, dtype: Any) -> None:
    """Torch takes weight_decay with dense gradients only."""
    mine, stock = parameter(dtype), parameter(dtype)
    options = {"maximize": maximize, **DECAY}
    ours, theirs = PAIRS[name].ours([mine], **options), PAIRS[name].theirs([stock], **options)
    for step in range(20):
        rows = torch.cat([torch.randperm(ROWS), torch.arange(0, ROWS, 3)])
        values = random_table(dtype, rows=len(rows), seed=step)
        mine.grad = coo(rows, values, mine)
        stock.grad = mine.grad.to_dense()
        ours.step()
        theirs.step()
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(mine, stock, rtol=64 * eps, atol=64 * eps)


@both
def test_other_rows_do_not_decay(name: str) -> None:
    table = parameter()
    optimizer = PAIRS[name].ours([table], **DECAY)
    table.grad = coo([7, 3, 7], torch.zeros(3, WIDTH), table)
    optimizer.step()
    changed = (table != random_table(torch.float32)).any(1).nonzero().flatten()
    assert changed.tolist() == [3, 7]


@both
@pytest.mark.parametrize("dtype", FLOATS)
def test_coalesced_and_uncoalesced_gradients(name: str, dtype: Any) -> None:
    one, other = parameter(dtype), parameter(dtype)
    optimizers = [PAIRS[name].ours([table], **DECAY) for table in (one, other)]
    for step in range(3):
        one.grad = random_grad(one, step)
        other.grad = rt.coalesce(random_grad(one, step))
        for optimizer in optimizers:
            optimizer.step()
    assert_same_bits(one.detach(), other.detach())


@both
@pytest.mark.parametrize("dtype", FLOATS)
def test_fused(name: str, dtype: Any) -> None:
    bags = [rt.EmbeddingBag(ROWS, WIDTH, padding_idx=2, sparse=True, _weight=random_table(dtype)) for _ in range(2)]
    lookups = [rt.Embedding(ROWS, WIDTH, sparse=True, _weight=random_table(dtype, seed=2)) for _ in range(2)]
    for bag, lookup, fused in zip(bags, lookups, (True, False), strict=True):
        tables = [{"params": bag.parameters()}, {"params": lookup.parameters(), "weight_decay": 0.5}]
        optimizer = PAIRS[name].ours(tables, fused=fused, **DECAY)
        for step in range(3):
            optimizer.zero_grad()
            batch = random_bags(seed=step)
            (bag(batch.ids, batch.offsets).tanh().sum() + lookup(batch.ids).tanh().sum()).backward()
            assert (bag.weight.grad is None) == fused
            optimizer.step()
    for modules in (bags, lookups):
        assert_same_bits(modules[0].weight.detach(), modules[1].weight.detach())


@both
def test_fused_where_processes_make_the_gradient(name: str) -> None:
    """As raggrad.dist.register does; here there is one process."""

    def reducer(grad: Any, ids: Any, offsets: Any, weights: Any, *options: Any) -> Any:
        return torch.ops.raggrad.embedding_bag_grad_rows(grad, ids, offsets, weights, ROWS, *options[:4])

    shared, alone = (rt.EmbeddingBag(ROWS, WIDTH, sparse=True, _weight=random_table()) for _ in range(2))
    rt._tables.shared.share(shared.weight, reducer)
    for bag in (shared, alone):
        optimizer = PAIRS[name].ours(bag.parameters(), fused=True, **DECAY)
        batch = random_bags()
        bag(batch.ids, batch.offsets).tanh().sum().backward()
        optimizer.step()
    assert_same_bits(shared.weight.detach(), alone.weight.detach())


@both
def test_refused_where_calls_must_not_wait(name: str) -> None:
    bag = rt.EmbeddingBag(ROWS, WIDTH)
    optimizer = PAIRS[name].ours(bag.parameters(), fused=True, **DECAY)
    expected = rf"{type(optimizer).__name__}: weight_decay: expected 0 where calls must"
    with rt.without_waiting(), pytest.raises(RuntimeError, match=expected):
        bag(torch.tensor([[1, 2]]))


@both
def test_a_negative_one_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"weight_decay: expected at least 0.0, got -1"):
        PAIRS[name].ours([parameter()], weight_decay=-1)


@both
def test_rows_out_of_range_change_nothing(name: str) -> None:
    table = parameter()
    optimizer = PAIRS[name].ours([table], **DECAY)
    table.grad = torch.sparse_coo_tensor([[1, ROWS]], torch.ones(2, WIDTH), table.shape, check_invariants=False)
    with pytest.raises(ValueError, match=rf"optim.{type(optimizer).__name__}: Index {ROWS} out of range"):
        optimizer.step()
    assert torch.equal(table, random_table(torch.float32))


@pytest.mark.parametrize("name", ["Adagrad", "SparseAdam"])
def test_arguments_are_in_torchs_order(name: str) -> None:
    """But for `foreach` and others that choose an implementation."""
    ours, theirs = (list(inspect.signature(make).parameters) for make in PAIRS[name])
    positional = [argument for argument in theirs if argument in ours]
    assert [argument for argument in ours if argument != "fused"] == [a for a in positional if a != "fused"]
