"""IndexedSlices as a value: its arguments, arithmetic, and conversions to other libraries."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from conftest import FLOATS, numpy_dtype, same_bits
from raggrad import IndexedSlices, SegmentPlan, Tensor, ops, optimizers
from raggrad.errors import InvalidArgumentError

VALUES = np.float32([[1, 2], [10, 20], [3, 4]])
INDICES = np.array([4, 0, 4])
MANY = 3_000_000_000  # a row number above the range of int32


def test_shape_and_dtype() -> None:
    slices = IndexedSlices(VALUES, INDICES, (5, 2))
    assert slices.shape == (5, 2)
    assert slices.dtype == np.float32
    listed = IndexedSlices([[1, 2]], [MANY - 1], (np.int64(MANY), 2))
    assert (listed.dtype, listed.indices.dtype, listed.shape) == (np.float32, np.int64, (MANY, 2))


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((VALUES, [0, 1], (5, 2)), r"indices: expected a vector of 3 for values of shape \(3, 2\), got shape \(2,\)"),
        ((VALUES, [[0, 1, 2]], (5, 2)), r"indices: expected a vector of 3 .* got shape \(1, 3\)"),
        ((np.float32(1), [0], (5,)), r"indices: expected a vector of some for values of shape \(\), got shape \(1,\)"),
        ((VALUES, INDICES, (5, 3)), r"dense_shape: expected \(rows, 2\), got \(5, 3\)"),
        (([[1, 2]], [0], (5, 3)), r"dense_shape: expected \(rows, 2\), got \(5, 3\)"),
        ((VALUES, INDICES, ()), r"dense_shape: expected \(rows, 2\), got \(\)"),
        ((VALUES, INDICES, (-1, 2)), r"dense_shape\[0\]: expected 0 to 4294967296, got -1"),
        ((VALUES, INDICES, (2**32 + 1, 2)), r"dense_shape\[0\]: expected 0 to 4294967296, got 4294967297"),
        (([[1, "a"]], [0], (5, 2)), "values: expected float32, got"),
        ((VALUES, [0.5], (5, 2)), "indices: expected int64, got float64"),
    ],
)
def test_what_does_not_fit_is_refused(arguments: tuple[Any, ...], text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"^IndexedSlices: .*{text}"):
        IndexedSlices(*arguments)


@pytest.mark.parametrize("dtype", FLOATS)
def test_sums_and_multiples(dtype: str) -> None:
    a = IndexedSlices(VALUES.astype(numpy_dtype(dtype)), INDICES, (5, 2))
    b = IndexedSlices(a.values[:1], np.int32([2]), (5, 2))
    both = a + b
    assert both.indices.tolist() == [4, 0, 4, 2]
    assert same_bits(both.to_dense(), a.to_dense() + b.to_dense())
    for double in (a * 2, 2 * a, np.float64(2) * a, a * np.float32(2), a * np.array(2)):
        assert same_bits(double.values, a.values + a.values)
        assert double.indices is a.indices or same_bits(double.indices, a.indices)
    assert same_bits((a * 0.1).values, a.values * a.values.dtype.type(0.1))


def test_what_cannot_be_added_or_multiplied() -> None:
    a = IndexedSlices(VALUES, INDICES, (5, 2))
    with pytest.raises(InvalidArgumentError, match=r"__add__: .*dense_shape: expected \(5, 2\), got \(6, 2\)"):
        a + IndexedSlices(VALUES, INDICES, (6, 2))
    with pytest.raises(InvalidArgumentError, match=r"__add__: .*values: expected float32, got float64"):
        a + IndexedSlices(VALUES.astype(np.float64), INDICES, (5, 2))
    for wrong in ("2", None, np.ones(3), a, 1j, np.complex64(2), np.array(1j)):
        with pytest.raises(TypeError):
            a * wrong
    with pytest.raises(TypeError):
        a + VALUES


def test_to_scipy() -> None:
    pytest.importorskip("scipy")
    slices = IndexedSlices(VALUES, INDICES, (5, 2))
    assert same_bits(slices.to_scipy().toarray(), slices.to_dense())
    assert IndexedSlices(VALUES, INDICES.astype(np.uint8), (MANY, 2)).to_scipy().shape == (MANY, 2)
    for values in (VALUES[:, 0], VALUES.astype(np.float16)):
        with pytest.raises(InvalidArgumentError, match=r"^IndexedSlices\.to_scipy: .*values: expected rank 2"):
            IndexedSlices(values, INDICES, (5, *values.shape[1:])).to_scipy()


def test_to_torch() -> None:
    torch = pytest.importorskip("torch")
    slices = IndexedSlices(VALUES, INDICES.astype(np.uint16), (5, 2))
    coo = slices.to_torch()
    assert (coo.sparse_dim(), coo.dense_dim()) == (1, 1)
    assert same_bits(coo.to_dense().numpy(), slices.to_dense())
    given = IndexedSlices(torch.tensor(VALUES), torch.tensor(INDICES), (5, 2))
    assert same_bits((given * 2 + given).to_torch().to_dense().numpy(), 3 * slices.to_dense())
    assert isinstance((given * 2 + given).values, torch.Tensor)
    assert repr(given) == repr(slices)
    half = IndexedSlices(VALUES.astype(ml_dtypes.bfloat16), INDICES, (5, 2)).to_torch()
    assert half.dtype == torch.bfloat16


def test_to_tensorflow_and_repr_of_tensorflow_values() -> None:
    tf = pytest.importorskip("tensorflow")
    slices = IndexedSlices(VALUES, INDICES.astype(np.uint16), (5, 2))
    there = slices.to_tf()
    assert isinstance(there, tf.IndexedSlices)
    assert same_bits(tf.convert_to_tensor(there).numpy(), slices.to_dense())
    given = IndexedSlices(tf.constant(VALUES), tf.constant(INDICES), (5, 2))
    assert repr(given) == "IndexedSlices(3 rows of a float32 [5, 2] at [4, 0, 4])"
    assert isinstance((given + given * 2).values, tf.Tensor)
    assert given.to_tf().values is given.values


def test_repr_of_tensors() -> None:
    assert repr(IndexedSlices(Tensor(VALUES), Tensor(INDICES), (5, 2))) == (
        "IndexedSlices(3 rows of a float32 [5, 2] at [4, 0, 4])"
    )


def test_more_rows_than_31_bits_can_name() -> None:
    """Works because nothing has the size of the table."""
    indices, segments = np.array([MANY - 1, 7, MANY - 1, 2**32 - 1]), np.array([0, 1, 1, 1])
    grad = np.float32([[1, 2], [10, 20]])
    small = np.unique(indices, return_inverse=True)[1].reshape(-1)
    for rows in (2**32, np.int64(2**32)):
        want = ops.sparse_segment_mean_grad(grad, small, segments, num_rows=3)
        plan = SegmentPlan(indices, segments, rows, 2)
        plan.check_made_from(indices, segments)
        with pytest.raises(InvalidArgumentError, match=rf"indices\[3\]: expected {2**32 - 1}, got 3"):
            plan.check_made_from(np.where(indices == 2**32 - 1, 3, indices), segments)
        for got in (
            ops.sparse_segment_mean_grad(grad, indices, segments, num_rows=rows),
            ops.sparse_segment_mean_grad(grad, plan=plan),
            ops.sparse_segment_mean_grad(grad, indices.astype(np.uint32), segments, num_rows=rows),
            ops.sparse_segment_mean_grad(grad, indices.tolist(), segments.tolist(), num_rows=rows),
        ):
            assert same_bits(got.values, want.values)
            assert got.indices.tolist() == [7, MANY - 1, 2**32 - 1]
            assert got.shape == (2**32, 2)
            once = IndexedSlices(got.values, got.indices[::-1].copy(), got.shape).coalesce()
            assert once.indices.tolist() == [7, MANY - 1, 2**32 - 1]
            assert same_bits(once.values, got.values[::-1])


def test_more_rows_than_32_bits_can_name_are_refused() -> None:
    too_many = 2**32 + 1
    for function, call in [
        ("sparse_segment_sum_grad", lambda: ops.sparse_segment_sum_grad(VALUES, [0], [0], num_rows=too_many)),
        ("SegmentPlan", lambda: SegmentPlan([0], [0], too_many, 3)),
    ]:
        with pytest.raises(InvalidArgumentError, match=rf"^{function}: .*num_rows: expected 0 to {2**32}, got"):
            call()
    with pytest.raises(InvalidArgumentError, match="num_segments: expected 0 to 2147483647, got 2147483648"):
        SegmentPlan([0], [0], 3, 2**31)
    with pytest.raises(InvalidArgumentError, match=r"^sparse_segment_sum_grad: Index 3000000000 out of range \[0, 5\)"):
        ops.sparse_segment_sum_grad(VALUES, [MANY], [0], num_rows=5)


@pytest.mark.parametrize("dtype", ["int8", "int16", "uint8", "uint16", "uint32", "uint64"])
def test_ids_of_any_integer_type(dtype: str) -> None:
    indices, segments = np.array([3, 1, 3, 0]), np.array([0, 0, 1, 2])
    table = np.random.default_rng(0).normal(size=(5, 2)).astype(np.float32)
    i, s = indices.astype(dtype), segments.astype(dtype)
    assert same_bits(ops.sparse_segment_mean(table, i, s), ops.sparse_segment_mean(table, indices, segments))
    assert same_bits(ops.sparse_segment_sum(table, i, s, s[3] + 1), ops.sparse_segment_sum(table, indices, segments, 3))
    want = ops.sparse_segment_sum_grad(VALUES, indices, segments, 5)
    plan = SegmentPlan(i, s, 5, 3)
    for got in (
        ops.sparse_segment_sum_grad(VALUES, i, s, i[0] + 2),
        ops.sparse_segment_sum_grad(VALUES, i, s, plan=plan),
        IndexedSlices(VALUES[segments], i, (5, 2)).coalesce(),
    ):
        assert same_bits(got.values, want.values)
        assert got.indices.tolist() == want.indices.tolist()
        assert got.indices.dtype == (np.int64 if dtype in ("uint32", "uint64") else np.int32)
    tables = [table.copy() for _ in range(3)]
    sgd = optimizers.SGD(0.5)
    ops.sparse_segment_sum_grad_apply_(tables[0], VALUES, indices, segments, optimizer=sgd)
    ops.sparse_segment_sum_grad_apply_(tables[1], VALUES, i, s, optimizer=sgd)
    IndexedSlices(VALUES[segments], i, (5, 2)).apply_(tables[2], sgd)
    assert same_bits(tables[0], tables[1])
    assert same_bits(tables[0], tables[2])
    lists = [[3, 1], [3], [0]]
    places = np.array([[0, 0], [0, 1], [1, 0], [2, 0]], dtype)
    sparse = SimpleNamespace(indices=places, values=i, dense_shape=np.array([3, 2], dtype))
    assert same_bits(ops.embedding_lookup_sparse(table, sparse), ops.embedding_lookup_sparse(table, lists))


def test_ids_that_do_not_fit() -> None:
    too_large = r"^sparse_segment_sum: indices: .*position 1: expected at most 9223.*1844"
    with pytest.raises(InvalidArgumentError, match=too_large):
        ops.sparse_segment_sum(VALUES, np.array([0, 2**64 - 1], np.uint64), [0, 0])
    for bad in (np.array([True]), np.array([0.0]), np.array([b"a"])):
        with pytest.raises(InvalidArgumentError, match=r"^sparse_segment_sum: .*indices"):
            ops.sparse_segment_sum(VALUES, bad, [0])
