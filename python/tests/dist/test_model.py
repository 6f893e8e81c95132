"""Random worlds against one process: empty ranks, empty batches, equal ids, one owner, tables of one row."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from .batches import random_batch, random_cuts, random_table
from .worlds import rd, rt, run, torch

KINDS = ["uniform", "hot", "equal", "first"]
MODES = ["sum", "mean", "sqrtn"]
WORLDS = [1, 2, 3, 4, 8]


def cases(seed: int, count: int) -> Any:
    """(generator, rows, width, bags, kind, mode), the same on every rank."""
    generator = torch.Generator().manual_seed(seed)
    for number in range(count):
        rows = [1, 2, 7, 60, 1000][int(torch.randint(5, (), generator=generator))]
        width = [1, 3, 8][int(torch.randint(3, (), generator=generator))]
        bags = [0, 1, 5, 40][int(torch.randint(4, (), generator=generator))]
        yield generator, rows, width, bags, KINDS[number % 4], MODES[number % 3]


def reduce_random(rank: int, ranks: int) -> list[Any]:
    """Sums of random sparse gradients, also several at once; compared with the serial sum in the order of ranks."""
    results = []
    for generator, rows, width, _, kind, _ in cases(1, 16):
        grads = []
        for _ in range(ranks):
            bags = int(torch.randint(0, 30, (), generator=generator))
            batch = random_batch(generator, rows, width, bags, kind)
            values = random_table(generator, len(batch.ids), width)
            grads.append(
                torch.sparse_coo_tensor(batch.ids[None], values, (rows, width), check_invariants=True)
            )
        reduced = rd.all_reduce(grads[rank])
        joined = [rt.coalesce(grad) for grad in grads]
        want = rt.coalesce(
            torch.sparse_coo_tensor(
                torch.cat([one._indices() for one in joined], 1),
                torch.cat([one._values() for one in joined]),
                (rows, width),
                check_invariants=True,
            ),
            accumulation="sequential",
        )
        assert reduced.is_coalesced()
        assert torch.equal(reduced.indices(), want.indices())
        assert torch.equal(reduced.values(), want.values())
        twice = rd.all_reduce([grads[rank], grads[rank].double()], average=True)
        assert torch.equal(twice[0].values(), want.values() / ranks)
        assert twice[1].dtype == torch.float64
        torch.testing.assert_close(twice[1].values().float(), want.values() / ranks, rtol=1e-4, atol=1e-2)
        results.append(reduced.values())
    return results


@pytest.mark.parametrize("ranks", WORLDS)
def test_all_reduce_is_the_serial_sum_in_the_order_of_ranks(ranks: int) -> None:
    first, *others = run(ranks, reduce_random, ranks)
    for other in others:
        assert all(torch.equal(one, two) for one, two in zip(first, other, strict=True))


def reduce_parameters(rank: int) -> None:
    """Those of a module, which come one by one."""
    model = torch.nn.ModuleList([rt.Embedding(4, 2, sparse=True), rt.EmbeddingBag(3, 1, sparse=True)])
    (model[0](torch.tensor([rank])).sum() + model[1](torch.tensor([[rank]])).sum()).backward()
    sums = rd.all_reduce(model.parameters())
    assert [grad.to_dense()[:, 0].tolist() for grad in sums] == [[1, 1, 0, 0], [1, 1, 0]]
    assert all(parameter.grad is grad for parameter, grad in zip(model.parameters(), sums, strict=True))
    assert rd.all_reduce(parameter for parameter in []) == []
    with pytest.raises(TypeError, match=r"all_reduce: coo_or_param\[1\]: expected a sparse tensor or a parameter"):
        rd.all_reduce(iter([sums[0], 7]))


def test_all_reduce_of_parameters_that_come_one_by_one() -> None:
    run(2, reduce_parameters)


def serial(table: Any, batch: Any, mode: str, weighted: bool, accumulation: str) -> tuple[Any, ...]:
    """Pooled bags, the gradient of the table and that of the weights, in one process."""
    weight = table.clone().requires_grad_()
    weights = batch.weights.clone().requires_grad_() if weighted else None
    pooled = rt.embedding_bag(
        batch.ids,
        weight,
        batch.offsets,
        mode=mode,
        sparse=True,
        per_sample_weights=weights,
        accumulation=accumulation,
    )
    pooled.backward(batch.grad)
    return pooled.detach(), weight.grad.to_dense(), None if weights is None else weights.grad


def tolerance(want: Any) -> dict[str, float]:
    """Sums of a few numbers in another order; those of 16 bits are rounded more often."""
    eps = max(torch.finfo(want.dtype).eps, 1e-6)
    return {"rtol": 100 * eps, "atol": 16 * eps * max(float(want.abs().max()) if want.numel() else 0.0, 1e-30)}


def shard_random(rank: int, ranks: int, accumulation: str, dtype: Any) -> None:
    exact = accumulation == "reproducible"
    for number, (generator, rows, width, bags, kind, mode) in enumerate(cases(2, 16)):
        table = random_table(generator, rows, width, dtype)
        batch = random_batch(generator, rows, width, bags, kind, dtype)
        cuts = random_cuts(generator, bags, ranks)
        sizes = random_cuts(generator, rows, ranks)
        divided = [end - begin for begin, end in pairwise(sizes)]
        weighted = number % 2 == 1
        want, want_grad, want_weights = serial(table, batch, mode, weighted, accumulation)
        bag = rd.ShardedEmbeddingBag(
            rows, width, mode, rows=divided if number % 3 else None, accumulation=accumulation, dtype=dtype
        )
        bag.load_full(table)
        mine = batch.part(cuts[rank], cuts[rank + 1])
        weights = mine.weights.clone().requires_grad_() if weighted else None
        pooled = bag(mine.ids, mine.offsets, weights)
        pooled.backward(mine.grad)
        first, end = bag.row_range
        grad = bag.weight.grad
        assert grad.is_coalesced() or grad._nnz() == 0
        if exact:
            assert torch.equal(pooled, want[cuts[rank] : cuts[rank + 1]]), number
            assert torch.equal(grad.to_dense(), want_grad[first:end]), number
        else:
            torch.testing.assert_close(pooled, want[cuts[rank] : cuts[rank + 1]], **tolerance(want))
            torch.testing.assert_close(grad.to_dense(), want_grad[first:end], **tolerance(want_grad))
        if weighted:
            begin = int(batch.sizes[: cuts[rank]].sum())
            part = want_weights[begin : begin + len(mine.ids)]
            torch.testing.assert_close(weights.grad, part, **tolerance(want_weights))


@pytest.mark.parametrize("ranks", WORLDS[:-1])
def test_sharded_bags_are_close_to_one_process(ranks: int) -> None:
    run(ranks, shard_random, ranks, "sequential", torch.float32)


def pool_large_halves(rank: int) -> None:
    """Sums of 500 rows of 200 are beyond float16; means are not, and sums / sqrt(500) are 4472."""
    table = torch.full((40, 3), 200.0, dtype=torch.float16)
    ids, offsets = torch.arange(1000) % 40, torch.tensor([0, 500])
    for mode in ("mean", "sqrtn"):
        bag = rd.ShardedEmbeddingBag(40, 3, mode, dtype=torch.float16, network=rd.Network(latency=0.0))
        bag.load_full(table)
        want = rt.embedding_bag(ids, table, offsets, mode=mode)
        for _ in range(2):  # the second time some rows may have come ahead
            assert torch.equal(bag(ids, offsets), want)


def test_sums_beyond_float16_have_a_mean() -> None:
    run(2, pool_large_halves)


@pytest.mark.parametrize("ranks", WORLDS)
def test_sharded_bags_have_the_bits_of_one_process(ranks: int) -> None:
    run(ranks, shard_random, ranks, "reproducible", torch.float32)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_sharded_bags_of_other_types_have_the_bits_of_one_process(dtype: Any) -> None:
    run(3, shard_random, 3, "reproducible", dtype)
