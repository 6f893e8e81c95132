"""accumulation="reproducible": the bits of its definition, in fractions, the same for every order of the ids."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import raggrad
from conftest import same_bits
from raggrad import IndexedSlices, SegmentPlan, ops, optimizers, raw_ops

DTYPES = [np.float16, ml_dtypes.bfloat16, np.float32, np.float64]


def rounded_to(grid: Fraction, x: Fraction) -> Fraction:
    return grid * round(x / grid)  # ties to even


def as_float(x: Fraction, dtype: Any) -> Any:
    """The nearest number of the dtype, float32 first for the 16-bit types. Subnormals of float32 and float64 are 0."""
    wide = np.float64 if dtype == np.float64 else np.float32
    with np.errstate(over="ignore"):
        value = wide(float(x)) if abs(x) < Fraction(np.finfo(np.float64).max) else wide(np.inf) * np.sign(x)
    value = wide(0) if abs(value) < np.finfo(wide).tiny else value
    return np.array(value).astype(dtype)[()]


def defined_sum(rows: np.ndarray) -> np.ndarray:
    """The sum of finite rows [n, width], contributions in float32 or float64, by the definition."""
    wide = rows.astype(np.float64 if rows.dtype == np.float64 else np.float32)
    wide = np.where(np.abs(wide) < np.finfo(wide.dtype).tiny, 0, wide)
    largest = np.abs(wide).max()
    if largest == 0:
        return np.zeros(rows.shape[1], rows.dtype)
    exponent, bits = int(np.frexp(largest)[1]) - 1, len(rows).bit_length()
    out = []
    for column in wide.T:
        grid = Fraction(2) ** (exponent + 1 + bits - 52)
        terms = [Fraction(float(x)) for x in column]
        total = sum((rounded_to(grid, x) for x in terms), Fraction(0))
        if rows.dtype == np.float64:
            rest = Fraction(2) ** (exponent + 2 * bits - 103)
            total += sum((rounded_to(rest, x - rounded_to(grid, x)) for x in terms), Fraction(0))
        out.append(as_float(total, rows.dtype))
    return np.array(out, rows.dtype)


def values_of(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any, spread: int) -> np.ndarray:
    values = rng.standard_normal(shape) * np.exp2(rng.integers(-spread, spread + 1, shape))
    return values.astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("spread", [0, 3, 12])
def test_has_the_bits_of_the_definition_in_every_order(dtype: Any, spread: int) -> None:
    rng = np.random.default_rng(spread)
    for n in (1, 2, 9, 60):
        rows = values_of(rng, (n, 5), dtype, spread)
        want = defined_sum(rows)
        for _ in range(3):
            got = IndexedSlices(rows, np.zeros(n, np.int32), (1, 5)).coalesce(accumulation="reproducible").values
            assert same_bits(got[0], want)
            rows = rng.permutation(rows)


@pytest.mark.parametrize("scale", [2.0**-1070, 2.0**-1000, 2.0**1015])
def test_doubles_near_the_ends_of_their_range(scale: float) -> None:
    rng = np.random.default_rng(1)
    for n in (1, 3, 50):
        rows = rng.standard_normal((n, 4)) * np.exp2(rng.integers(-40, 3, (n, 4))) * scale
        slices = IndexedSlices(rows, np.zeros(n, np.int64), (1, 4))
        assert same_bits(slices.to_dense(accumulation="reproducible")[0], defined_sum(rows))


def test_infinities_and_nan_pass_through() -> None:
    rows = np.float32([[3e38, 1, np.inf, np.nan, -0.0], [3e38, -1, 1, 2, -0.0], [-3e38, 5, -np.inf, 0, -0.0]])
    for order in ([0, 1, 2], [2, 1, 0], [1, 0, 2]):
        sums = IndexedSlices(rows[order], np.zeros(3, np.int32), (1, 5)).to_dense(accumulation="reproducible")[0]
        assert sums[0] == np.float32(3e38) and sums[1] == 0  # 5 is below the grid of the row
        assert np.isnan(sums[2:4]).all() and same_bits(sums[4], np.float32(0))


def sums_with(mode: str, rows: np.ndarray) -> np.ndarray:
    return IndexedSlices(rows, np.zeros(len(rows), np.int32), (1, rows.shape[1])).coalesce(accumulation=mode).values[0]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_is_within_one_last_place_of_the_exact_sum(dtype: Any) -> None:
    rows = np.random.default_rng(2).standard_normal((5000, 8)).astype(dtype)
    exact = [sum((Fraction(float(x)) for x in column), Fraction(0)) for column in rows.T]

    def error(mode: str) -> float:
        sums = sums_with(mode, rows)
        return max(
            float(abs(Fraction(float(got)) - want)) / float(np.spacing(abs(got)))
            for got, want in zip(sums, exact, strict=True)
        )

    assert error("reproducible") <= 0.501  # half a unit from the last rounding
    assert error("reproducible") < error("fast") < error("sequential")


TABLE = np.random.default_rng(3).standard_normal((50, 6)).astype(np.float32)
IDS = np.random.default_rng(4).integers(0, 50, 4000)
SEGMENTS = np.sort(np.random.default_rng(5).integers(0, 9, 4000))
GRAD = np.random.default_rng(6).standard_normal((9, 6)).astype(np.float32)
# Other orders of the pairs. Forwards need ascending segment ids.
ANY_ORDER = np.random.default_rng(7).permutation(4000)
ASCENDING = np.lexsort((np.random.default_rng(7).random(4000), SEGMENTS))


def applied(call: Callable[[np.ndarray], None]) -> np.ndarray:
    table = TABLE.copy()
    call(table)
    return table


WEIGHTS = np.random.default_rng(8).uniform(0.5, 2, (50, 9)).astype(np.float32)  # of an id in a segment


def slopes(combiner: str, i: np.ndarray, s: np.ndarray, mode: str | None, **ids: Any) -> np.ndarray:
    """The gradient of WEIGHTS, ordered by segment and id. A segment has an id more than once, with equal slopes."""
    function = getattr(ops, f"sparse_segment_{combiner}_weights_grad")
    return function(GRAD, TABLE, **ids, weights=WEIGHTS[i, s], accumulation=mode)[np.lexsort((i, s))]


CALLS: dict[str, Callable[[np.ndarray, np.ndarray, str | None], Any]] = {
    "sparse_segment_mean": lambda i, s, mode: ops.sparse_segment_mean(TABLE, i, s, accumulation=mode),
    "sparse_segment_sum, plan": lambda i, s, mode: ops.sparse_segment_sum(
        TABLE, plan=SegmentPlan(i, s, 50, 9), accumulation=mode
    ),
    "sparse_segment_sqrtn_grad": lambda i, s, mode: (
        ops.sparse_segment_sqrtn_grad(GRAD, i, s, 50, accumulation=mode).values
    ),
    "sparse_segment_mean_grad, plan": lambda i, s, mode: (
        ops.sparse_segment_mean_grad(GRAD, plan=SegmentPlan(i, s, 50, 9), accumulation=mode).values
    ),
    "sparse_segment_mean_grad_apply_": lambda i, s, mode: applied(
        lambda table: ops.sparse_segment_mean_grad_apply_(
            table, GRAD, i, s, optimizer=optimizers.SGD(0.1), accumulation=mode
        )
    ),
    "sparse_segment_mean_weights_grad": lambda i, s, mode: slopes("mean", i, s, mode, indices=i, segment_ids=s),
    "sparse_segment_sqrtn_weights_grad, plan": lambda i, s, mode: slopes(
        "sqrtn", i, s, mode, plan=SegmentPlan(i, s, 50, 9)
    ),
    "segment_mean": lambda i, s, mode: ops.segment_mean(TABLE[i], s, accumulation=mode),
    "to_dense": lambda i, s, mode: IndexedSlices(GRAD[s], i, (50, 6)).to_dense(accumulation=mode),
    "apply_": lambda i, s, mode: applied(
        lambda table: IndexedSlices(GRAD[s], i, (50, 6)).apply_(table, optimizers.SGD(0.1), accumulation=mode)
    ),
    "embedding_lookup_sparse": lambda i, s, mode: ops.embedding_lookup_sparse(
        TABLE, [i[s == k].tolist() for k in range(9)], accumulation=mode
    ),
    "embedding_lookup_sparse_grad": lambda i, s, mode: (
        ops.embedding_lookup_sparse_grad(
            GRAD, TABLE, [i[s == k].tolist() for k in range(9)], accumulation=mode
        ).params.values
    ),
    "embedding_lookup_sparse_grad, weights": lambda i, s, mode: (
        ops.embedding_lookup_sparse_grad(
            GRAD, TABLE, [i[s == k].tolist() for k in range(9)], WEIGHTS[i, s], accumulation=mode
        ).weights[np.lexsort((i, s))]
    ),
    "safe_embedding_lookup_sparse": lambda i, s, mode: ops.safe_embedding_lookup_sparse(
        TABLE, [i[s == k].tolist() for k in range(9)], accumulation=mode
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_every_function_that_sums(name: str, restore_threads: None) -> None:
    call = CALLS[name]
    in_any_order = name in ("to_dense", "apply_") or ("grad" in name and "weights" not in name)
    order = ANY_ORDER if in_any_order else ASCENDING
    ids, segments = IDS[order], SEGMENTS[order]
    want = call(IDS, SEGMENTS, "reproducible")
    for threads in (1, 2, 7):
        raggrad.set_num_threads(threads)
        assert same_bits(call(ids, segments, "reproducible"), want)
        with raggrad.accumulation("reproducible"):
            assert same_bits(call(ids, segments, None), want)
    sequential = call(IDS, SEGMENTS, None)
    if name != "embedding_lookup_sparse_grad":  # it adds up example by example, in any order of the ids
        assert not same_bits(call(ids, segments, None), sequential)
    assert not same_bits(sequential, want)
    with raggrad.accumulation("reproducible"):  # the argument goes before the block
        assert same_bits(call(IDS, SEGMENTS, "sequential"), sequential)
    with pytest.raises(raggrad.errors.InvalidArgumentError, match="accumulation: expected 'sequential'"):
        call(IDS, SEGMENTS, "exact")


def test_raw_ops_take_the_mode_of_the_block() -> None:
    values = np.random.default_rng(8).standard_normal(100_000).astype(np.float32)

    def default(x: np.ndarray) -> Any:
        return raw_ops.SparseFillEmptyRowsGrad(reverse_index_map=[], grad_values=x).d_default_value

    with raggrad.accumulation("reproducible"):
        assert same_bits(default(values), default(values[::-1].copy()))
        pooled = raw_ops.SparseSegmentMean(data=TABLE, indices=IDS, segment_ids=SEGMENTS)
    assert same_bits(pooled, ops.sparse_segment_mean(TABLE, IDS, SEGMENTS, accumulation="reproducible"))
    assert not same_bits(default(values), default(values[::-1].copy()))
