"""Embedding lookups: against NumPy, finite differences, and TensorFlow where it is installed."""

from __future__ import annotations

import importlib
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from conftest import FLOATS, numpy_dtype, same_bits
from raggrad import Ragged, errors, ops

COMBINERS = ["sum", "mean", "sqrtn"]
ROWS = [[3, 1, 3], [], [0], [2, 5, 1, 4, 0], [5]]
IDS = Ragged.from_lists(ROWS)
SPLITS = np.cumsum([0, *map(len, ROWS)])
COUNT = int(SPLITS[-1])


def installed(package: str) -> Any:
    try:
        return importlib.import_module(package)
    except ImportError:
        return None


def table(dtype: str = "float64") -> np.ndarray:
    return np.random.default_rng(1).normal(size=(6, 4)).astype(numpy_dtype(dtype))


def positive_weights(dtype: str = "float64") -> np.ndarray:
    return np.random.default_rng(2).uniform(0.5, 2, COUNT).astype(numpy_dtype(dtype))


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


def test_ids_in_every_form() -> None:
    weights = positive_weights()
    listed = [weights[a:b].tolist() for a, b in pairwise(SPLITS)]
    want = ops.embedding_lookup_sparse(table(), IDS, weights)
    ragged = Ragged(IDS.nested_splits, weights)
    places = np.stack([np.repeat(np.arange(5), np.diff(SPLITS)), np.concatenate([np.arange(len(r)) for r in ROWS])], 1)
    sparse = SimpleNamespace(indices=places, values=IDS.values, dense_shape=[5, 5])
    sparse_weights = SimpleNamespace(indices=places, values=weights, dense_shape=[5, 5])
    forms: list[tuple[Any, Any]] = [(ROWS, weights), (ROWS, ragged), (IDS, ragged), (sparse, sparse_weights)]
    if pyarrow := installed("pyarrow"):
        forms.append((pyarrow.array(ROWS), pyarrow.array(listed)))
    if awkward := installed("awkward"):
        forms.append((awkward.Array(ROWS), awkward.Array(listed)))
    if torch := installed("torch"):
        forms.append((IDS.to_torch(), torch.tensor(weights)))
    for ids, w in forms:
        assert same_bits(ops.embedding_lookup_sparse(table(), ids, w), want)
    single = ops.embedding_lookup_sparse(table("float32"), ROWS, positive_weights("float32"), "sum")
    assert same_bits(ops.embedding_lookup_sparse(table("float32"), ROWS, listed, "sum"), single)
    assert ops.embedding_lookup_sparse(table(), []).shape == (0, 4)
    assert ops.embedding_lookup_sparse(table(), [[], []]).tolist() == [[0.0] * 4] * 2


def test_names_of_arguments_are_also_tensorflows() -> None:
    weights = positive_weights()
    want = ops.embedding_lookup_sparse(table(), IDS, weights)
    assert same_bits(ops.embedding_lookup_sparse(table(), sp_ids=IDS, sp_weights=weights, combiner=None), want)
    safe = ops.safe_embedding_lookup_sparse(embedding_weights=table(), sparse_ids=IDS, sparse_weights=weights)
    assert same_bits(safe, want)
    grad = ops.embedding_lookup_sparse_grad(want, table(), sp_ids=IDS, sp_weights=weights)
    assert same_bits(grad.weights, ops.embedding_lookup_sparse_grad(want, table(), IDS, weights).weights)
    with pytest.raises(errors.InvalidArgumentError, match=r"^embedding_lookup_sparse: .*sp_ids\[0\]: expected 0 to 2"):
        ops.embedding_lookup_sparse(table()[:3], sp_ids=IDS)
    with pytest.raises(errors.InvalidArgumentError, match="sp_ids: expected only one of them, got both"):
        ops.embedding_lookup_sparse(table(), IDS, sp_ids=IDS)


def test_weights_at_other_places_are_refused() -> None:
    weights = positive_weights()
    moved = Ragged([np.array([0, 2, 3, 4, 9, 10])], weights)
    for ids, given in [(IDS, moved), (ROWS, moved), (IDS, [[1.0] * 10, [], [], [], []])]:
        with pytest.raises(errors.InvalidArgumentError, match=r"weights.nested_splits\[0\]: expected 3 at \[1\]"):
            ops.embedding_lookup_sparse(table(), ids, given)
    with pytest.raises(errors.InvalidArgumentError, match=r"weights.nested_splits\[0\]: expected shape \(6,\)"):
        ops.embedding_lookup_sparse(table(), IDS, [[1.0] * 10])
    ids = SimpleNamespace(indices=[[0, 0], [1, 0]], values=[1, 2], dense_shape=[2, 2])
    other = SimpleNamespace(indices=[[0, 0], [1, 1]], values=[1.0, 2.0], dense_shape=[2, 2])
    with pytest.raises(errors.InvalidArgumentError, match=r"weights.indices: expected \[1 0\] at \[1\], as ids"):
        ops.embedding_lookup_sparse(table(), ids, other)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("strategy", ["div", "mod"])
@pytest.mark.parametrize("count", [1, 2, 4, 5])
def test_tables_in_shards(count: int, strategy: str, weighted: bool) -> None:
    whole = table("float32")
    shards = np.array_split(whole, count) if strategy == "div" else [whole[i::count] for i in range(count)]
    weights = positive_weights("float32") if weighted else None
    upstream = np.random.default_rng(3).normal(size=(len(ROWS), 4)).astype(np.float32)
    for name, extra in [("embedding_lookup_sparse", {}), ("safe_embedding_lookup_sparse", {"default_id": 5})]:
        lookup, lookup_grad = getattr(ops, name), getattr(ops, f"{name}_grad")
        got = lookup(shards, IDS, weights, partition_strategy=strategy, **extra)
        assert same_bits(got, lookup(whole, IDS, weights, **extra))
        want = lookup_grad(upstream, whole, IDS, weights, **extra)
        grad = lookup_grad(upstream, shards, IDS, weights, partition_strategy=strategy, **extra)
        dense = [slices.to_dense() for slices in getattr(grad, "params", grad)]
        joined = np.empty_like(whole)
        for i, part in enumerate(dense):
            joined[i::count] = part if strategy == "mod" else 0
        if strategy == "div":
            joined = np.concatenate(dense)
        assert same_bits(joined, getattr(want, "params", want).to_dense())
        if weighted and name == "embedding_lookup_sparse":
            assert same_bits(grad.weights, want.weights)


def test_bad_shards() -> None:
    whole = table()
    for params, text in [
        ([whole[:2], whole[2:]], r"params: expected \[3, 3\] rows, got \[2, 4\]"),
        ([whole[:3], whole[3:, :2]], r"params\[1\]: expected float64 rows of shape \(4,\).* got float64 .*\(2,\)"),
        ([whole[:3], whole[3:].astype(np.float32)], r"params\[1\]: expected float64 rows .* got float32"),
        ([whole[:3], np.float64(1)], r"params\[1\]: expected at least rank 1, got a scalar"),
        ([whole[:2], whole[2:4]], r"ids\[\d\]: expected 0 to 3, got"),
    ]:
        with pytest.raises(errors.InvalidArgumentError, match=f"^embedding_lookup_sparse: .*{text}"):
            ops.embedding_lookup_sparse(params, IDS)
    with pytest.raises(errors.InvalidArgumentError, match="partition_strategy: expected 'div' or 'mod', got 'row'"):
        ops.embedding_lookup_sparse(whole, IDS, partition_strategy="row")


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


def test_weights_that_cancel() -> None:
    params, ids = table("float32"), Ragged([[0, 2]], [1, 2])
    for combiner, weights in [("mean", [1.0, -1.0]), ("mean", [0.0, 0.0]), ("sqrtn", [0.0, 0.0])]:
        assert ops.embedding_lookup_sparse(params, ids, weights, combiner).tolist() == [[0.0] * 4]
        grad = ops.embedding_lookup_sparse_grad(np.ones((1, 4), np.float32), params, ids, weights, combiner)
        assert not grad.params.to_dense().any()
        assert not grad.weights.any()


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
