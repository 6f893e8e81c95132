"""The steps of reproducible sums that CUDA has, run on a CPU: the engine's bits."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from raggrad.dist import _split_on_cuda as split

from .worlds import torch

ops = torch.ops.raggrad
FLOATS = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
ROWS, WIDTH, IDS, SUMS = 40, 7, 300, 26


def random_terms(seed: int, dtype: Any, magnitudes: str) -> tuple[Any, ...]:
    """data, indices, segment ids, factors. Some sums have no terms."""
    generator = torch.Generator().manual_seed(seed)
    exponents = {"even": (0, 1), "mixed": (-40, 40), "huge": (60, 128), "tiny": (-160, -100)}[magnitudes]
    if dtype == torch.float64:
        exponents = tuple(8 * exponent - (exponent == 128) for exponent in exponents)
    scale = torch.exp2(torch.randint(*exponents, (ROWS, 1), generator=generator).double())
    data = (torch.randn(ROWS, WIDTH, generator=generator, dtype=torch.float64) * scale).to(dtype)
    indices = torch.randint(0, ROWS, (IDS,), generator=generator)
    segments = torch.randint(0, SUMS, (IDS,), generator=generator) // 3 * 3
    factors = torch.randn(IDS, generator=generator, dtype=torch.float64).to(split._sum_type(data))
    return data, indices, segments.sort().values, factors


def assert_same_bits(one: Any, other: Any) -> None:
    torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)
    assert torch.equal(one.signbit() & ~one.isnan(), other.signbit() & ~other.isnan())


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("magnitudes", ["even", "mixed", "huge", "tiny"])
@pytest.mark.parametrize("weighted", [False, True])
def test_steps_have_the_engines_bits(dtype: Any, magnitudes: str, weighted: bool) -> None:
    for seed, strip in itertools.product(range(4), (1, IDS * 2, 1 << 24)):
        split._VALUES_AT_ONCE, before = strip, split._VALUES_AT_ONCE
        try:
            check_steps(seed, dtype, magnitudes, weighted)
        finally:
            split._VALUES_AT_ONCE = before


def check_steps(seed: int, dtype: Any, magnitudes: str, weighted: bool) -> None:
    data, indices, segments, factors = random_terms(seed, dtype, magnitudes)
    if seed == 3:
        data[3, 2], data[5, 2], data[7, 3] = float("inf"), float("-inf"), float("nan")
    terms = data, indices, segments, factors if weighted else None
    largest = ops.split_largest(*terms, SUMS)
    ours = split.split_largest(*terms, SUMS)
    tiny = torch.finfo(largest.dtype).tiny
    assert_same_bits(ours, torch.where(largest < tiny, 0, largest))
    counts = torch.bincount(segments, minlength=SUMS) + 2
    counts[-1] = 0
    sums = ops.split_sums(*terms, largest, counts)
    assert_same_bits(split.split_sums(*terms, largest, counts), sums)
    for mode in ("sum", "mean", "sqrtn"):
        rounded = ops.split_round(sums, largest, counts, data, mode)
        assert_same_bits(split.split_round(sums, largest, counts, data, mode), rounded)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_ids_are_ordered_as_by_the_engine(dtype: Any) -> None:
    for count in (0, 1, 50):
        ids = torch.randint(0, 20, (count,), generator=torch.Generator().manual_seed(count)).to(dtype)
        for one, other in zip(split.order_ids(ids, 20), ops.order_ids(ids, 20), strict=True):
            assert torch.equal(one, other)
    with pytest.raises(ValueError, match="expected 0 to 19"):
        split.order_ids(torch.tensor([3, 20]), 20)


@pytest.mark.parametrize(("columns", "ids", "sums"), [(0, IDS, SUMS), (WIDTH, 0, SUMS), (WIDTH, 0, 0)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_anything_may_be_missing(columns: int, ids: int, sums: int, dtype: Any) -> None:
    data, indices, segments, factors = random_terms(0, dtype, "even")
    terms = data[:, :columns], indices[:ids], segments[:ids], factors[:ids]
    counts = torch.bincount(terms[2], minlength=sums)
    results = []
    for steps in (split, ops):
        largest = steps.split_largest(*terms, sums)
        exact = steps.split_sums(*terms, largest, counts)
        results.append([largest, exact, steps.split_round(exact, largest, counts, terms[0], "mean")])
    for ours, theirs in zip(*results, strict=True):
        assert ours.shape == theirs.shape
        assert_same_bits(ours, theirs)
