"""The cost model against bytes that were counted, and documentation."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
from typing import Any

import pytest

from .worlds import rd, rt, run, torch

ROWS, WIDTH, BAGS, LENGTH = 30_000, 24, 1500, 4


def draw(rank: int, skewed: bool) -> Any:
    generator = torch.Generator().manual_seed(rank)
    if skewed:
        return (ROWS * torch.rand(BAGS, LENGTH, generator=generator) ** 3).long()
    return torch.randint(0, ROWS, (BAGS, LENGTH), generator=generator)


def count_bytes(rank: int, skewed: bool, accumulation: str | None) -> tuple[int, int]:
    """The traffic of this rank for a registered and for a sharded bag."""
    ids = draw(rank, skewed)
    sent = []
    registered = rt.EmbeddingBag(ROWS, WIDTH, sparse=True)
    rd.register(registered, accumulation=accumulation)
    sharded = rd.ShardedEmbeddingBag(ROWS, WIDTH, accumulation=accumulation)
    for bag in (registered, sharded):
        with rd.traffic() as traffic:
            bag(ids).sum().backward()
        sent.append(traffic.bytes)
    return sent[0], sent[1]


@pytest.mark.parametrize("accumulation", [None, "reproducible"])
@pytest.mark.parametrize("ranks", [2, 4])
def test_bytes_are_those_of_the_model(ranks: int, accumulation: str | None) -> None:
    counted = torch.tensor(run(ranks, count_bytes, False, accumulation), dtype=torch.float64).mean(0).tolist()
    costs = rd.explain(ROWS, WIDTH, BAGS * LENGTH, ranks, bags=BAGS, accumulation=accumulation)
    *_, reduced, sharded = costs.ways
    assert counted == pytest.approx([reduced.bytes, sharded.bytes], rel=0.02)


def test_bytes_of_skewed_ids_are_those_of_the_model() -> None:
    """Hot rows have the smallest ids, and still all ranks send about as much."""
    ranks = 4
    counted = [reduced for reduced, _ in run(ranks, count_bytes, True, None)]
    unique = [torch.unique(draw(rank, True)) for rank in range(ranks)]
    costs = rd.explain(
        ROWS,
        WIDTH,
        BAGS * LENGTH,
        ranks,
        bags=BAGS,
        unique_rows=sum(len(rows) for rows in unique) / ranks,
        all_rows=len(torch.unique(torch.cat(unique))),
    )
    expected = costs.ways[2].bytes
    assert sum(counted) / ranks == pytest.approx(expected, rel=0.02)
    assert counted == pytest.approx([expected] * ranks, rel=0.05)


def count_shared_rows(rank: int, rows: int) -> int:
    """The traffic of one rank for a gradient of every third row, on all ranks."""
    named = torch.arange(0, rows, 3)
    values = torch.ones(len(named), WIDTH)
    grad = torch.sparse_coo_tensor(named[None], values, (rows, WIDTH), is_coalesced=True, check_invariants=True)
    with rd.traffic() as traffic:
        rd.all_reduce(grad)
    return traffic.bytes


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_every_rank_sends_its_part_of_the_rows_twice(ranks: int) -> None:
    rows = ROWS // 3 * 3
    expected = rows // 3 * (4 * WIDTH + 4) * 2 * (ranks - 1) / ranks
    assert run(ranks, count_shared_rows, rows) == pytest.approx([expected] * ranks, rel=0.05)


def count_rows_of_a_huge_table(rank: int, rows: int, count: int) -> int:
    named = torch.arange(count) * (rows // count) + rank
    grad = torch.sparse_coo_tensor(named[None], torch.ones(count, 1), (rows, 1), check_invariants=True)
    with rd.traffic() as traffic:
        rd.all_reduce(grad)
    return traffic.bytes


def test_ids_of_huge_tables_take_eight_bytes() -> None:
    rows, count = 2**31, 10_000
    counted = run(2, count_rows_of_a_huge_table, rows, count)
    reduced = rd.explain(rows, 1, count, 2, unique_rows=count, all_rows=2 * count).ways[2]
    assert counted == pytest.approx([reduced.bytes] * 2, rel=0.02)


def measure(rank: int) -> Any:
    network = rd.measure()
    assert "fastest" in str(rd.explain(1000, 8, 100, 2, **network._asdict()))
    return network


def test_all_ranks_measure_the_same_network() -> None:
    first, *others = run(3, measure)
    assert all(other == first for other in others)
    assert first.bandwidth > 0
    assert first.latency > 0
    assert run(1, measure) == [rd.Network()]


def test_the_choice_is_one_of_three() -> None:
    assert rd.explain(1_000, 64, 100_000, 8).best.name.startswith("dense all-reduce")
    assert rd.explain(10_000_000, 64, 20_000, 8, bags=1_000).best.name.startswith("sharding")
    shared = rd.explain(10_000_000, 64, 100_000, 64, bags=100_000, unique_rows=2_000, all_rows=2_100)
    assert shared.best.name.startswith("sparse all-reduce")
    few = rd.explain(10_000_000, 64, 10, 2, 1e12)  # where a gather is fastest, it is not the choice
    assert few.ways[1].seconds == min(way.seconds for way in few.ways)
    assert not few.best.name.startswith("gather")


def test_one_rank_sends_nothing() -> None:
    assert [way.bytes for way in rd.explain(100, 4, 50, 1).ways] == [0] * 4
    with pytest.raises(ValueError, match=r"expected rows, width and ranks of at least 1"):
        rd.explain(0, 4, 50, 1)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"accumulation": "exact"}, "accumulation: expected one of"),
        ({"bags": -1}, "bags: expected at least 0, got -1"),
        ({"latency": float("nan")}, "latency: expected at least 0, got nan"),
        ({"element_bytes": 0}, "element_bytes: expected at least 1, got 0"),
        ({"unique_rows": 101}, "unique_rows: expected 0 to 100, got 101"),
        ({"all_rows": -1}, "all_rows: expected 0 to 100, got -1"),
        ({"frequencies": [1.0] * 101}, "frequencies: expected up to 100 numbers of at least 0"),
        ({"frequencies": ["often"]}, "frequencies: expected up to 100 numbers of at least 0"),
        ({"frequencies": [-1.0]}, "frequencies: expected up to 100 numbers of at least 0"),
        ({"bandwidth": float("nan")}, "bandwidth above 0"),
    ],
)
def test_numbers_that_make_no_sense_are_refused(options: dict[str, Any], expected: str) -> None:
    with pytest.raises(ValueError, match=rf"raggrad\.dist\.explain: .*{expected}"):
        rd.explain(100, 4, 50, 2, **options)


@pytest.mark.parametrize("argument", ["rows", "width", "ids", "ranks", "bandwidth", "bags", "all_rows"])
def test_what_is_no_number_is_refused(argument: str) -> None:
    numbers = {"rows": 100, "width": 4, "ids": 50, "ranks": 2, argument: "many"}
    with pytest.raises(TypeError, match=rf"raggrad\.dist\.explain: {argument}: expected a number, got 'many'"):
        rd.explain(**numbers)


MODULES = [module.name for module in pkgutil.iter_modules(rd.__path__)]


@pytest.mark.parametrize("module", ["", *MODULES])
def test_doctests(module: str) -> None:
    assert doctest.testmod(importlib.import_module(f"raggrad.dist.{module}".rstrip("."))).failed == 0


def test_everything_public_has_a_docstring() -> None:
    assert all(getattr(rd, name).__doc__ for name in rd.__all__)
