"""embedding_bag and its gradients against formulas of JAX."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from raggrad import ops

from .door import FLOATS, MODES, ROWS, assert_near, bag, jax, jnp, random_batch, random_rows, rj, same_bits


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("mode", MODES)
def test_values_and_gradients(mode: str, dtype: str) -> None:
    batch, table = random_batch(), random_rows(dtype=dtype)
    wide = table.astype("float32")
    assert_near(rj.embedding_bag(table, *batch, mode=mode), bag(mode, wide, batch).astype(dtype))
    ours = jax.grad(lambda t: jnp.sin(rj.embedding_bag(t, *batch, mode=mode).astype("float32")).sum())(table)
    theirs = jax.grad(lambda t: jnp.sin(bag(mode, t, batch)).sum())(wide)
    assert_near(ours, theirs.astype(dtype))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("mode", MODES)
def test_weights(mode: str, dtype: str) -> None:
    batch, table = random_batch(), random_rows(dtype=dtype)
    weights = random_rows(len(batch.ids), 1, dtype=dtype, seed=7)[:, 0]

    def ours(t: Any, w: Any) -> Any:
        return jnp.sin(rj.embedding_bag(t, *batch, mode=mode, weights=w).astype("float32")).sum()

    def theirs(t: Any, w: Any) -> Any:
        return jnp.sin(bag(mode, t, batch, w)).sum()

    wide = table.astype("float32"), weights.astype("float32")
    assert_near(
        rj.embedding_bag(table, *batch, mode=mode, weights=weights), bag(mode, wide[0], batch, wide[1]).astype(dtype)
    )
    for place in (0, 1):
        assert_near(
            jax.grad(ours, place)(table, weights), jax.grad(theirs, place)(*wide).astype(dtype)
        )


def test_float32_weights_of_half_rows() -> None:
    batch, table = random_batch(), random_rows(dtype="bfloat16")
    weights = jnp.ones(len(batch.ids), "float32")
    gradient = jax.grad(lambda w: rj.embedding_bag(table, *batch, weights=w).sum())(weights)
    assert gradient.dtype == np.float32


def test_float64_and_wide_ids(x64: None) -> None:
    batch, table = random_batch(dtype=np.int64), random_rows(dtype="float64")
    weights = random_rows(len(batch.ids), 1, dtype="float64", seed=7)[:, 0]
    assert_near(rj.embedding_bag(table, *batch, weights=weights), bag("mean", table, batch, weights))
    ours = jax.grad(lambda t, w: (rj.embedding_bag(t, *batch, weights=w) ** 3).sum(), (0, 1))(table, weights)
    theirs = jax.grad(lambda t, w: (bag("mean", t, batch, w) ** 3).sum(), (0, 1))(table, weights)
    for a, b in zip(ours, theirs, strict=True):
        assert_near(a, b)


@pytest.mark.parametrize("mode", MODES)
def test_second_derivatives(mode: str, x64: None) -> None:
    batch = random_batch(n=9, num_segments=4, rows=3)
    table, weights = random_rows(3, 2, "float64"), random_rows(9, 1, "float64")[:, 0]

    def hessian(function: Any) -> Any:
        return jax.jacrev(jax.grad(lambda t, w: (function(t, w) ** 3).sum(), (0, 1)), (0, 1))(table, weights)

    ours = hessian(lambda t, w: rj.embedding_bag(t, *batch, mode=mode, weights=w))
    theirs = hessian(lambda t, w: bag(mode, t, batch, w))
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        assert_near(a, b)


def test_dropped_ids_may_be_anything() -> None:
    table = random_rows()
    ids, segment_ids = jnp.array([3, -7, 4, 10**6, 5]), jnp.array([0, -1, 1, 2, 1])
    kept = rj.embedding_bag(table, jnp.array([3, 4, 5]), jnp.array([0, 1, 1]), 2)
    assert same_bits(rj.embedding_bag(table, ids, segment_ids, 2), kept)
    gradient = jax.grad(lambda t, w: rj.embedding_bag(t, ids, segment_ids, 2, weights=w).sum(), (0, 1))(
        table, jnp.ones(5)
    )
    assert np.flatnonzero(np.asarray(gradient[0]).any(1)).tolist() == [3, 4, 5]
    assert np.flatnonzero(np.asarray(gradient[1])).tolist() == [0, 2, 4]


@pytest.mark.parametrize("n", [0, 1])
def test_no_ids_and_no_segments(n: int) -> None:
    ids = jnp.zeros(n, "int32")
    assert rj.embedding_bag(random_rows(), ids, ids, 3).shape == (3, 6)
    assert rj.embedding_bag(random_rows(), ids, ids, 0).shape == (0, 6)
    gradient = jax.grad(lambda t: rj.embedding_bag(t, ids, ids, 0).sum())(random_rows())
    assert not np.asarray(gradient).any()
    assert rj.embedding_bag(jnp.zeros((0, 6)), ids, ids - 1, 2).shape == (2, 6)


def test_large_batches_have_the_bits_of_raggrad_ops() -> None:
    random = np.random.default_rng(2)
    table = random.standard_normal((20_000, 16)).astype("float32")
    ids = random.integers(0, len(table), 300_000).astype(np.int32)
    segment_ids = np.sort(random.integers(0, 9_000, len(ids))).astype(np.int32)
    expected = ops.sparse_segment_mean(table, ids, segment_ids, num_segments=9_000)
    function = jax.jit(lambda t: rj.embedding_bag(t, ids, segment_ids, 9_000))
    dense = jax.jit(jax.grad(lambda t: (rj.embedding_bag(t, ids, segment_ids, 9_000) ** 2).sum()))
    gradient = ops.sparse_segment_mean_grad(2 * expected, ids, segment_ids, ROWS * 400).to_dense()
    for _ in range(3):
        assert same_bits(function(table), expected)
        assert same_bits(dense(table), gradient)
