"""Rows that go ahead of a call: the bits of the table without them, fewer bytes, chosen by the cost model."""

from __future__ import annotations

from typing import Any

import pytest
from raggrad.dist import _hot_rows

from .batches import random_batch, random_cuts, random_table
from .worlds import rd, rt, run, torch

ROWS, WIDTH, BAGS = 300, 7, 360
AT_ONCE = rd.Network(latency=0.0)  # a message costs nothing, so that small batches have hot rows, too


def batch_of(step: int, short: bool) -> Any:
    """Bags of 0 to 6 ids or of 1, most of them of a few rows all over the table."""
    generator = torch.Generator().manual_seed(step)
    batch = random_batch(generator, ROWS, WIDTH, BAGS, "uniform")
    hot = torch.rand(len(batch.ids), generator=generator) < 0.9
    ids = torch.where(hot, (batch.ids % 12) * 25, batch.ids)
    batch = batch._replace(ids=ids)
    if short:
        ones = torch.ones(BAGS, dtype=torch.int64)
        return batch._replace(ids=ids[:BAGS], sizes=ones, weights=batch.weights[:BAGS])
    return batch


def train(rank: int, ranks: int, mode: str, accumulation: str | None, replicate: bool, dtype: Any) -> Any:
    """Everything that bags, weights and tables become, the bytes sent behind the first step, and the hot rows."""
    bag = rd.ShardedEmbeddingBag(
        ROWS,
        WIDTH,
        mode,
        optimizer=lambda weights: rt.optim.SparseAdagrad(weights, lr=0.1),
        accumulation=accumulation,
        replicate=replicate,
        network=AT_ONCE,
        dtype=dtype,
    )
    bag.load_full(random_table(torch.Generator().manual_seed(1), ROWS, WIDTH, dtype))
    seen, sent = [], 0
    for step in range(4):
        batch = batch_of(step, short=mode == "sum")
        cuts = random_cuts(torch.Generator().manual_seed(step), BAGS, ranks) if step == 2 else None
        begin, end = (BAGS * rank // ranks, BAGS * (rank + 1) // ranks) if cuts is None else cuts[rank : rank + 2]
        mine = batch.part(begin, end)
        weights = mine.weights.to(dtype).requires_grad_() if step % 2 else None
        with rd.traffic() as traffic:
            pooled = bag(mine.ids, mine.offsets, weights)
            pooled.backward(mine.grad.to(dtype))
        sent += traffic.bytes if step else 0
        seen += [pooled.detach(), weights.grad if weights is not None else None]
    return [*seen, bag.full_weight()], sent, bag.hot_rows


@pytest.mark.parametrize("accumulation", [None, "reproducible"])
@pytest.mark.parametrize("mode", ["sum", "mean", "sqrtn"])
@pytest.mark.parametrize("ranks", [2, 3])
def test_bits_are_those_without_hot_rows(ranks: int, mode: str, accumulation: str | None) -> None:
    dtype = torch.bfloat16 if ranks == 3 and mode == "sum" else torch.float32
    plain = run(ranks, train, ranks, mode, accumulation, False, dtype)
    ahead = run(ranks, train, ranks, mode, accumulation, True, dtype)
    for (want, _, none), (got, _, _) in zip(plain, ahead, strict=True):
        assert not len(none)
        assert all(a is b is None or torch.equal(a, b) for a, b in zip(want, got, strict=True))
    assert sum(len(hot) for *_, hot in ahead) > 6
    assert set(torch.cat([hot for *_, hot in ahead]).tolist()) <= set(range(0, ROWS, 25))
    assert sum(sent for _, sent, _ in ahead) < sum(sent for _, sent, _ in plain)


def pieces(*of_ids: list[int]) -> Any:
    lengths = torch.tensor([len(ids) for ids in of_ids])
    return _hot_rows.Pieces(torch.tensor([one for ids in of_ids for one in ids]), lengths, None)


def chosen(asked: Any, others: int, network: Any = AT_ONCE) -> list[int]:
    return _hot_rows.choose(asked, others, 100, 100, network).tolist()


def test_rows_that_pay_are_chosen() -> None:
    asked = pieces(*[[5]] * 9, *[[2]] * 6, [1])
    assert chosen(asked, 1) == [2, 5]  # 104 bytes ahead instead of 108 for every time; 1 may be chance
    assert chosen(asked, 3) == [5]
    assert chosen(asked, 9) == []  # 936 bytes ahead, 972 saved: too close
    assert chosen(asked, 1, rd.Network(1e9, 1e-3)) == []  # the message costs more


def test_pieces_are_saved_whole_or_not_at_all() -> None:
    mixed = [[5, cold] for cold in range(10, 40)]
    assert chosen(pieces(*[[5, 6]] * 20), 3) == [5, 6]
    assert chosen(pieces(*mixed), 3) == []  # 5 alone saves nothing
    assert chosen(pieces(*mixed, *[[5]] * 9), 3) == [5]


def cool_down(rank: int) -> list[list[int]]:
    _hot_rows._CALLS_PER_COUNT, before = 3, _hot_rows._CALLS_PER_COUNT
    try:
        bag = rd.ShardedEmbeddingBag(40, 4, network=AT_ONCE)
        found = []
        for step in range(7):
            row = 3 if step < 3 else 30
            bag(torch.full((20,), row), torch.arange(20))
            found.append(bag.hot_rows.tolist())
        return found
    finally:
        _hot_rows._CALLS_PER_COUNT = before


def test_rows_are_counted_again() -> None:
    first, second = run(2, cool_down)
    assert first == [[3], [3], [3], [], [], [], []]
    assert second == [[], [], [], [30], [30], [30], [30]]


HOT, COLD, PER_RANK, LENGTH = 64, 30_000, 3000, 2


def draw(rank: int, step: int) -> Any:
    """Half of the ids name 64 rows, at even distances; half any row."""
    generator = torch.Generator().manual_seed(10 * step + rank)
    ids = torch.randint(0, COLD, (PER_RANK // LENGTH, LENGTH), generator=generator)
    hot = torch.rand(ids.shape, generator=generator) < 0.5
    return torch.where(hot, ids % HOT * (COLD // HOT), ids)


def count_bytes(rank: int, accumulation: str | None) -> tuple[int, int]:
    bag = rd.ShardedEmbeddingBag(COLD, 24, network=AT_ONCE, accumulation=accumulation)
    for step in range(2):
        with rd.traffic() as traffic:
            bag(draw(rank, step)).sum().backward()
    return traffic.bytes, len(bag.hot_rows)


@pytest.mark.parametrize("accumulation", [None, "reproducible"])
@pytest.mark.parametrize("ranks", [2, 4])
def test_bytes_are_those_of_the_model(ranks: int, accumulation: str | None) -> None:
    counted = torch.tensor(run(ranks, count_bytes, accumulation), dtype=torch.float64)
    frequencies = torch.full((COLD,), PER_RANK / 2 / COLD)
    frequencies[torch.arange(HOT) * (COLD // HOT)] += PER_RANK / 2 / HOT
    costs = rd.explain(
        COLD,
        24,
        PER_RANK,
        ranks,
        latency=0,
        bags=PER_RANK / LENGTH,
        frequencies=frequencies,
        accumulation=accumulation,
    )
    *_, plain, ahead = costs.ways
    assert ahead.name == "sharding, 64 hot rows ahead"
    assert ahead.name in str(costs)
    assert counted[:, 1].sum() == HOT
    assert float(counted[:, 0].mean()) == pytest.approx(ahead.bytes, rel=0.02)
    assert ahead.bytes < plain.bytes


def test_explain_sends_nothing_ahead_without_reason() -> None:
    assert len(rd.explain(1000, 8, 100, 4, frequencies=[0.1] * 1000).ways) == 4
    assert len(rd.explain(1000, 8, 100, 1, frequencies=[100.0]).ways) == 4
