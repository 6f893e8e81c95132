"""Embedding lookups, compared with TensorFlow."""

from __future__ import annotations

import platform

import numpy as np
import pytest
from conftest import numpy_dtype, same_bits
from raggrad import ops

from .lookup_data import COMBINERS, IDS, table


@pytest.mark.parametrize("strategy", ["div", "mod"])
def test_shards_against_tensorflow(strategy: str) -> None:
    tf = pytest.importorskip("tensorflow")
    whole = table("float32")
    for count in (2, 4):
        shards = np.array_split(whole, count) if strategy == "div" else [whole[i::count] for i in range(count)]
        sparse = IDS.to_tf().to_sparse()
        sparse = tf.SparseTensor(sparse.indices, tf.cast(sparse.values, tf.int64), sparse.dense_shape)
        want = tf.compat.v1.nn.embedding_lookup_sparse(
            [tf.constant(s) for s in shards], sparse, None, partition_strategy=strategy, combiner="sum"
        )
        got = ops.embedding_lookup_sparse(shards, IDS, None, "sum", partition_strategy=strategy)
        assert same_bits(got, want.numpy())
        if strategy == "div":
            want = tf.nn.embedding_lookup_sparse([tf.constant(s) for s in shards], sparse, None, combiner="sum")
            assert same_bits(ops.embedding_lookup_sparse(shards, IDS, None, "sum"), want.numpy())


ODD_WEIGHTS = {
    "cancelling": [1.0, -1.0],
    "zero": [0.0, 0.0],
    "minus zero": [-0.0, 0.0],
    "nan": [np.nan, 1.0],
    "infinite": [np.inf, 1.0],
    "opposite infinities": [np.inf, -np.inf],
    "negative": [-2.0, 1.0],
    "one zero": [0.0, 2.0],
}


@pytest.mark.parametrize("combiner", COMBINERS)
@pytest.mark.parametrize("kind", ODD_WEIGHTS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_odd_weights_against_tensorflow(dtype: str, kind: str, combiner: str) -> None:
    tf = pytest.importorskip("tensorflow")
    params = tf.Variable(table(dtype))
    weights = tf.Variable(np.array([*ODD_WEIGHTS[kind], 0.5, 3.0], dtype))
    places = [[0, 0], [0, 1], [1, 0], [1, 2]]
    ids = tf.SparseTensor(places, tf.constant([1, 2, 2, 4], tf.int64), [2, 3])
    upstream = np.random.default_rng(3).normal(size=(2, 4)).astype(dtype)
    with tf.GradientTape() as tape:
        sparse_weights = tf.SparseTensor(places, tf.identity(weights), [2, 3])
        want = tf.nn.embedding_lookup_sparse(params, ids, sparse_weights, combiner=combiner)
        loss = tf.reduce_sum(want * upstream)
    want_params, want_weights = tape.gradient(loss, [params, weights])
    got = ops.embedding_lookup_sparse(params.numpy(), ids, weights.numpy(), combiner)
    grad = ops.embedding_lookup_sparse_grad(upstream, params.numpy(), ids, weights.numpy(), combiner)
    eps = 64 * np.finfo(dtype).eps
    np.testing.assert_allclose(got, want.numpy(), rtol=eps, atol=eps)
    np.testing.assert_allclose(grad.params.to_dense(), tf.convert_to_tensor(want_params).numpy(), rtol=eps, atol=eps)
    np.testing.assert_allclose(grad.weights, want_weights.numpy(), rtol=eps, atol=eps)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("combiner", COMBINERS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_against_tensorflow(dtype: str, combiner: str, weighted: bool) -> None:
    tf = pytest.importorskip("tensorflow")
    rng = np.random.default_rng(7)
    lengths = np.concatenate([rng.integers(0, 30, 49), [3]])  # TensorFlow drops examples at the end that have no ids
    rows = np.repeat(np.arange(50), lengths)
    sparse = tf.SparseTensor(
        np.stack([rows, np.concatenate([np.arange(n) for n in lengths])], 1), rng.integers(0, 100, len(rows)), (50, 30)
    )
    params = rng.normal(size=(100, 5)).astype(dtype)
    weights = rng.uniform(0.5, 2, len(rows)).astype(dtype) if weighted else None
    tf_weights = tf.SparseTensor(sparse.indices, weights, sparse.dense_shape) if weighted else None
    variable = tf.Variable(params)
    upstream = rng.normal(size=(50, 5)).astype(dtype)
    lookups = [
        (tf.nn.embedding_lookup_sparse, ops.embedding_lookup_sparse, ops.embedding_lookup_sparse_grad),
        (tf.nn.safe_embedding_lookup_sparse, ops.safe_embedding_lookup_sparse, ops.safe_embedding_lookup_sparse_grad),
    ]
    for theirs, ours, our_grad in lookups:
        with tf.GradientTape() as tape:
            want = theirs(variable, sparse, tf_weights, combiner=combiner)
            loss = tf.reduce_sum(want * upstream)
        want_grad = tf.convert_to_tensor(tape.gradient(loss, variable)).numpy()
        got = ours(params, sparse, weights, combiner)
        grad = our_grad(upstream, params, sparse, weights, combiner)
        got_grad = getattr(grad, "params", grad).to_dense()
        if weighted:
            eps = np.finfo(dtype).eps
            np.testing.assert_allclose(got, want.numpy(), rtol=64 * eps, atol=64 * eps)
            np.testing.assert_allclose(got_grad, want_grad, rtol=64 * eps, atol=64 * eps)
        else:
            assert same_bits(got, want.numpy())
            assert same_bits(got_grad, want_grad)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="TensorFlow sums 8 or 4 columns at a time on x86 only")
@pytest.mark.parametrize("combiner", ["sum", "mean"])
@pytest.mark.parametrize("dtype", ["half", "bfloat16", "float32", "float64"])
def test_weighted_bits_of_tensorflow(dtype: str, combiner: str) -> None:
    tf = pytest.importorskip("tensorflow")
    rng = np.random.default_rng(8)
    for width, longest in [(8, 70), (64, 70), (5, 15), (3, 15)]:
        lengths = np.concatenate([np.arange(longest + 1), rng.integers(0, longest + 1, 20), [1]])
        rows = np.repeat(np.arange(len(lengths)), lengths)
        places = np.stack([rows, np.concatenate([np.arange(n) for n in lengths])], 1)
        shape = (len(lengths), longest)
        ids = tf.SparseTensor(places, rng.integers(0, 100, len(rows)), shape)
        params = rng.normal(size=(100, width)).astype(numpy_dtype(dtype))
        for signs in (False, True):
            weights = rng.uniform(-1 if signs else 0.1, 2, len(rows)).astype(numpy_dtype(dtype))
            want = tf.nn.embedding_lookup_sparse(
                tf.constant(params), ids, tf.SparseTensor(places, weights, shape), combiner=combiner
            ).numpy()
            got = ops.embedding_lookup_sparse(params, ids, weights, combiner)
            assert same_bits(got, want.view(got.dtype)), (width, signs)
