"""Embedding lookups, compared with NumPy and finite differences; bad arguments."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from conftest import FLOATS, same_bits
from raggrad import Ragged, errors, ops

from .lookup_data import COMBINERS, IDS, ROWS, SPLITS, positive_weights, table


def plain_lookup(params: np.ndarray, weights: np.ndarray | None, combiner: str) -> np.ndarray:
    out = np.zeros((len(ROWS), params.shape[1]))
    for example, ids in enumerate(ROWS):
        w = np.ones(len(ids)) if weights is None else weights[SPLITS[example] : SPLITS[example + 1]].astype(np.float64)
        divisor = {"sum": 1.0, "mean": w.sum(), "sqrtn": np.sqrt((w * w).sum())}[combiner]
        if ids:
            out[example] = (params[ids].astype(np.float64) * w[:, None]).sum(0) / divisor
    return out


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("combiner", COMBINERS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_values(dtype: str, combiner: str, weighted: bool) -> None:
    params = table(dtype)
    weights = positive_weights("float64" if dtype == "float64" else "float32") if weighted else None
    got = ops.embedding_lookup_sparse(params, IDS, weights, combiner)
    assert got.dtype == params.dtype
    eps = {"half": 2**-10, "bfloat16": 2**-7, "float32": 2**-21, "float64": 2**-50}[dtype]
    want = plain_lookup(params, weights, combiner)
    np.testing.assert_allclose(got.astype(np.float64), want, rtol=eps, atol=4 * eps)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("combiner", COMBINERS)
def test_gradients(combiner: str, weighted: bool) -> None:
    params, weights = table(), positive_weights() if weighted else None
    upstream = np.random.default_rng(3).normal(size=(len(ROWS), 4))

    def loss(p: np.ndarray, w: np.ndarray | None) -> float:
        return float((ops.embedding_lookup_sparse(p, IDS, w, combiner) * upstream).sum())

    def slope(array: np.ndarray, of: Any) -> np.ndarray:
        out = np.zeros_like(array)
        for place in np.ndindex(array.shape):
            step = np.zeros_like(array)
            step[place] = 1e-5
            out[place] = (of(array + step) - of(array - step)) / 2e-5
        return out

    grad = ops.embedding_lookup_sparse_grad(upstream, params, IDS, weights, combiner)
    np.testing.assert_allclose(grad.params.to_dense(), slope(params, lambda p: loss(p, weights)), atol=1e-8)
    assert grad.params.dense_shape == (6, 4)
    if weighted:
        np.testing.assert_allclose(grad.weights, slope(weights, lambda w: loss(params, w)), atol=1e-8)
    else:
        assert grad.weights is None


@pytest.mark.parametrize("weighted", [False, True])
def test_the_other_byte_order(weighted: bool) -> None:
    weights = positive_weights() if weighted else None
    ids = Ragged([SPLITS.astype(">i8")], IDS.values.astype(">i4"))
    swapped = None if weights is None else weights.astype(">f8")
    got = ops.embedding_lookup_sparse(table().astype(">f8"), ids, swapped)
    assert same_bits(got, ops.embedding_lookup_sparse(table(), IDS, weights))


def test_safe_lookup() -> None:
    params = table()
    ids = Ragged.from_lists([[1, -1], [-2], [], [2, 3]])
    weights = np.array([1.0, 2.0, 3.0, 4.0, 0.0])
    got = ops.safe_embedding_lookup_sparse(params, ids, weights, "mean", default_id=5)
    assert same_bits(got, params[[1, 5, 5, 2]])
    zeros = ops.safe_embedding_lookup_sparse(params, ids, combiner="sum")
    assert same_bits(zeros, np.stack([params[1], np.zeros(4), np.zeros(4), params[2] + params[3]]))
    upstream = np.arange(16.0).reshape(4, 4)
    grad = ops.safe_embedding_lookup_sparse_grad(upstream, params, ids, weights, "mean", default_id=5)
    want = np.zeros((6, 4))
    np.add.at(want, [1, 5, 5, 2], upstream)
    assert same_bits(grad.to_dense(), want)


def test_bad_input() -> None:
    params = table()
    bad = [
        ((params, IDS, None, "max"), "combiner: expected one of"),
        ((params, 5, None, "sum"), r"ids: expected lists of ids, a raggrad\.Ragged, .* got int"),
        ((params, None, None, "sum"), r"ids: expected lists of ids, a raggrad\.Ragged, .* got NoneType"),
        ((params, Ragged.from_lists([[[1]]]), None, "sum"), "expected one level of splits, got 2"),
        ((params, IDS, np.ones(3), "sum"), r"weights: expected shape \(10,\), got \(3,\)"),
        ((params[:5], IDS, positive_weights(), "sum"), r"ids\[\d\]: expected 0 to 4, got 5"),
        ((params[:5], IDS, None, "sum"), "out of range"),
    ]
    for arguments, text in bad:
        with pytest.raises(errors.InvalidArgumentError, match=text):
            ops.embedding_lookup_sparse(*arguments)
    with pytest.raises(errors.InvalidArgumentError, match=r"grad: expected \(5, 4\), got \(4, 4\)"):
        ops.embedding_lookup_sparse_grad(np.ones((4, 4)), params, IDS, positive_weights(), "sum")


def test_an_empty_table_and_no_examples() -> None:
    empty = np.empty((0, 4), np.float32)
    for weights in (None, [1.0]):
        with pytest.raises(errors.InvalidArgumentError, match=r"ids\[0\]: expected none, as the table has no rows"):
            ops.embedding_lookup_sparse(empty, [[0]], weights)
    with pytest.raises(errors.InvalidArgumentError, match="default_id: expected none, as the table has no rows, got 0"):
        ops.safe_embedding_lookup_sparse(empty, [[]], default_id=0)
    nobody = SimpleNamespace(indices=[[0, 0]], values=[0], dense_shape=[0, 1])
    with pytest.raises(errors.InvalidArgumentError, match=r"indices\[0, 0\]: expected none, as there are no examples"):
        ops.embedding_lookup_sparse(table(), nobody)


def test_weights_that_cancel() -> None:
    params, ids = table("float32"), Ragged([[0, 2]], [1, 2])
    for combiner, weights in [("mean", [1.0, -1.0]), ("mean", [0.0, 0.0]), ("sqrtn", [0.0, 0.0])]:
        assert ops.embedding_lookup_sparse(params, ids, weights, combiner).tolist() == [[0.0] * 4]
        grad = ops.embedding_lookup_sparse_grad(np.ones((1, 4), np.float32), params, ids, weights, combiner)
        assert not grad.params.to_dense().any()
        assert not grad.weights.any()
