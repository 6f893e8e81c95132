"""Sums of gradients over ranks that share one GPU and talk by gloo have the bits of the CPU."""

from __future__ import annotations

from typing import Any

import pytest
from dist.batches import random_batch, random_table
from dist.worlds import rd, rt, run, torch

from .training import MODES, PATIENCE, ROWS, WIDTH, WORLDS, assert_same_bits

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no GPU")


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
