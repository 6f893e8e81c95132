"""sparse_segment_* with weights, compared with NumPy; their forms, gradients and errors; memory of weighted lookups."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
import raggrad
from conftest import FLOATS, numpy_dtype, same_bits
from raggrad import Ragged, SegmentPlan, errors, ops, optimizers

COMBINERS = ["sum", "mean", "sqrtn"]
INDICES = np.array([3, 1, 3, 0, 2, 5, 1, 4, 0, 5])
SEGMENTS = np.array([0, 0, 0, 2, 3, 3, 3, 3, 3, 4])
NUM_ROWS, NUM_SEGMENTS = 6, 5


def numbers(dtype: str, *shape: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(numpy_dtype(dtype))


def function(combiner: str, suffix: str = "") -> Any:
    return getattr(ops, f"sparse_segment_{combiner}{suffix}")


def divisors(weights: np.ndarray, combiner: str, divisor: str) -> np.ndarray:
    w = weights.astype(np.float64) if divisor == "weights" else np.ones(len(weights))
    sums = np.zeros(NUM_SEGMENTS)
    np.add.at(sums, SEGMENTS, {"sum": 0 * w, "mean": w, "sqrtn": w * w}[combiner])
    return {"sum": np.ones(NUM_SEGMENTS), "mean": sums, "sqrtn": np.sqrt(sums)}[combiner]


@pytest.mark.parametrize("divisor", ["weights", "count"])
@pytest.mark.parametrize("combiner", COMBINERS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_values(dtype: str, combiner: str, divisor: str) -> None:
    data = numbers(dtype, NUM_ROWS, 3)
    grad = numbers(dtype, NUM_SEGMENTS, 3, seed=2)
    for weight_dtype in {dtype, "float32"}:
        weights = (np.abs(numbers(weight_dtype, len(INDICES), seed=3)) + 1).astype(numpy_dtype(weight_dtype))
        d = divisors(weights, combiner, divisor)
        factors = (weights.astype(np.float64) / d[SEGMENTS])[:, None]
        keys = {"weights": weights, "divisor": divisor}
        eps = {"half": 2**-9, "bfloat16": 2**-6, "float32": 2**-20, "float64": 2**-49}[dtype]
        want = np.zeros((NUM_SEGMENTS, 3))
        np.add.at(want, SEGMENTS, data.astype(np.float64)[INDICES] * factors)
        got = function(combiner)(data, INDICES, SEGMENTS, NUM_SEGMENTS, **keys)
        assert got.dtype == data.dtype
        np.testing.assert_allclose(got.astype(np.float64), want, rtol=eps, atol=eps)
        want = np.zeros((NUM_ROWS, 3))
        np.add.at(want, INDICES, grad.astype(np.float64)[SEGMENTS] * factors)
        slices = function(combiner, "_grad")(grad, INDICES, SEGMENTS, NUM_ROWS, **keys)
        np.testing.assert_allclose(slices.to_dense().astype(np.float64), want, rtol=eps, atol=4 * eps)
        slopes = function(combiner, "_weights_grad")(grad, data, INDICES, SEGMENTS, **keys)
        assert slopes.dtype == weights.dtype and slopes.shape == weights.shape


@pytest.mark.parametrize("divisor", ["weights", "count"])
@pytest.mark.parametrize("combiner", COMBINERS)
def test_forms_agree(combiner: str, divisor: str) -> None:
    data, grad = numbers("float32", NUM_ROWS, 4), numbers("float32", NUM_SEGMENTS, 4, seed=2)
    keys = {"weights": numbers("float32", len(INDICES), seed=3), "divisor": divisor}
    plan = SegmentPlan(INDICES, SEGMENTS, NUM_ROWS, NUM_SEGMENTS)
    pooled = function(combiner)(data, INDICES, SEGMENTS, **keys)
    assert same_bits(function(combiner)(data, plan=plan, **keys), pooled)
    assert same_bits(function(combiner)(data, plan=plan, weights=keys["weights"].tolist(), divisor=divisor), pooled)
    slices = function(combiner, "_grad")(grad, INDICES, SEGMENTS, NUM_ROWS, **keys)
    assert same_bits(function(combiner, "_grad")(grad, plan=plan, **keys).values, slices.values)
    slopes = function(combiner, "_weights_grad")(grad, data, INDICES, SEGMENTS, **keys)
    assert same_bits(function(combiner, "_weights_grad")(grad, data, plan=plan, **keys), slopes)
    tables = [data.copy() for _ in range(3)]
    sgd = optimizers.SGD(learning_rate=0.5)
    slices.apply_(tables[0], sgd)
    function(combiner, "_grad_apply_")(tables[1], grad, INDICES, SEGMENTS, optimizer=sgd, **keys)
    function(combiner, "_grad_apply_")(tables[2], grad, plan=plan, optimizer=sgd, **keys)
    assert same_bits(tables[1], tables[0]) and same_bits(tables[2], tables[0])
    assert not same_bits(tables[0], data)


@pytest.mark.parametrize("divisor", ["weights", "count"])
@pytest.mark.parametrize("combiner", COMBINERS)
def test_slopes(combiner: str, divisor: str) -> None:
    data, grad = numbers("float64", NUM_ROWS, 4), numbers("float64", NUM_SEGMENTS, 4, seed=2)
    weights = np.abs(numbers("float64", len(INDICES), seed=3)) + 0.5

    def loss(w: np.ndarray) -> float:
        return float((function(combiner)(data, INDICES, SEGMENTS, weights=w, divisor=divisor) * grad).sum())

    want = []
    for i in range(len(weights)):
        step = np.zeros_like(weights)
        step[i] = 1e-5
        want.append((loss(weights + step) - loss(weights - step)) / 2e-5)
    got = function(combiner, "_weights_grad")(grad, data, INDICES, SEGMENTS, weights=weights, divisor=divisor)
    np.testing.assert_allclose(got, want, atol=1e-8)


def test_bad_weights() -> None:
    data, grad = np.ones((6, 2), np.float32), np.ones((5, 2), np.float32)
    bad = [
        ({"weights": np.ones(3, np.float32)}, r"weights: expected shape \[10\], got shape \[3\]"),
        ({"weights": np.ones(10)}, "weights: expected float32 or that of data, float32, got float64"),
        ({"weights": np.ones(10, np.int32)}, "weights: expected float32 or that of data, float32, got int32"),
        ({"weights": [1.0] * 10, "divisor": "ids"}, "divisor: expected 'weights' or 'count', got 'ids'"),
    ]
    for keys, text in bad:
        with pytest.raises(errors.InvalidArgumentError, match="sparse_segment_mean: .*" + text):
            ops.sparse_segment_mean(data, INDICES, SEGMENTS, **keys)
    with pytest.raises(errors.InvalidArgumentError, match="data has dtype int32"):
        ops.sparse_segment_sum(np.ones((6, 2), np.int32), INDICES, SEGMENTS, weights=[1.0] * 10)
    with pytest.raises(errors.InvalidArgumentError, match="weights: expected one for each id, got None"):
        ops.sparse_segment_sum_weights_grad(grad, data, INDICES, SEGMENTS, weights=None)


def test_lookups_copy_no_rows() -> None:
    width, count = 512, 20_000
    params = np.ones((100, width), np.float32)
    ids = Ragged([np.arange(0, count + 1, 100)], np.arange(count) % 100)
    weights = np.ones(count, np.float32)
    upstream = np.ones((count // 100, width), np.float32)
    room = count * width * 4 // 8  # an eighth of the rows, which are 40 MB
    raggrad.set_memory_limit(room)
    tracemalloc.start()
    try:
        pooled = ops.embedding_lookup_sparse(params, ids, weights, "mean")
        grad = ops.embedding_lookup_sparse_grad(upstream, params, ids, weights, "mean")
        assert tracemalloc.get_traced_memory()[1] < room
    finally:
        tracemalloc.stop()
        raggrad.set_memory_limit(None)
    assert same_bits(pooled, np.ones_like(pooled))
    assert grad.params.dense_shape == params.shape
