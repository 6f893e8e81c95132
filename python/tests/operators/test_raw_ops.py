"""Gradient operators of raw_ops: dtypes, empty inputs, the order of sums. Forwards are in other files."""

from __future__ import annotations

import numpy as np
import pytest
import raggrad
import raggrad.conformance
from conftest import (
    FILL_GRADS,
    FLOATS,
    NUMBERS,
    RAGGED_TYPES,
    SEGMENT_GRADS,
    call_segment_grad,
    numpy_dtype,
    same_bits,
    segment_grad,
    values_of,
)
from raggrad import Ragged, ops, raw_ops

INDICES = np.array([5, 0, 5, 2, 0], np.int32)
SEGMENTS = np.array([2, 2, 0, 2, 2], np.int64)  # once and four times: numbers whose square roots are exact


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("op", SEGMENT_GRADS)
@pytest.mark.parametrize("index_dtype", [np.int32, np.int64])
@pytest.mark.parametrize("segment_dtype", [np.int32, np.int64])
def test_segment_grads(op: str, dtype: str, index_dtype: type, segment_dtype: type) -> None:
    grad = values_of(dtype, 12).reshape(3, 2, 2)
    got = call_segment_grad(op, grad, INDICES.astype(index_dtype), SEGMENTS.astype(segment_dtype), 7, name="ignored")
    dense = segment_grad(op, grad, INDICES, SEGMENTS, 7)
    if not op.endswith("V2"):
        assert same_bits(got, dense)
        return
    assert got._fields == ("output", "sorted_unique_indices")
    assert same_bits(got.sorted_unique_indices, np.array([0, 2, 5], index_dtype))
    assert same_bits(got.output, dense[[0, 2, 5]])


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("op", FILL_GRADS)
def test_fill_empty_rows_grads(op: str, dtype: str) -> None:
    grad = values_of(dtype, 6)
    got = getattr(raw_ops, op)(reverse_index_map=np.array([4, 0, 4]), grad_values=grad)
    assert got._fields == ("d_values", "d_default_value")
    assert same_bits(got.d_values, grad[[4, 0, 4]])
    assert same_bits(got.d_default_value, np.asarray(1 + 2 + 3 + 5).astype(grad.dtype))
    assert isinstance(got.d_default_value, np.ndarray)
    assert got.d_default_value.shape == ()


@pytest.mark.parametrize("dtype", [*NUMBERS, "qint8", "quint8", "qint32"])
def test_sparse_slice_grad(dtype: str) -> None:
    grad = values_of(dtype, 3)[1:]
    got = raw_ops.SparseSliceGrad(
        backprop_val_grad=raggrad.Tensor(grad, dtype) if dtype.startswith("q") else grad,
        input_indices=np.array([[0, 0], [1, 2], [3, 3], [4, 1]]),
        input_start=np.array([1, 1]),
        output_indices=np.array([[0, 1], [3, 0]]),
    )
    expected = np.zeros(4, grad.dtype)
    expected[[1, 3]] = grad
    if dtype.startswith("q"):
        assert isinstance(got, raggrad.Tensor)
        assert got.dtype == dtype
    assert same_bits(got, expected)


@pytest.mark.parametrize("dtype", RAGGED_TYPES)
@pytest.mark.parametrize("split_dtype", [np.int32, np.int64])
def test_ragged_tensor_to_variant_gradient(dtype: str, split_dtype: type) -> None:
    quantized = dtype.startswith("q")
    first, last = values_of(dtype, 2), values_of(dtype, 3)
    wrap = (lambda a: raggrad.Tensor(a, dtype)) if quantized else (lambda a: a)
    got = raw_ops.RaggedTensorToVariantGradient(
        encoded_ragged_grad=[Ragged([], wrap(first)), None, Ragged([], wrap(last))],
        row_splits=np.array([0, 2, 4, 7], split_dtype),
        dense_values_shape=np.array([7], np.int32),
        Tvalues=dtype,
    )
    missing = np.array([b"", b""], object) if dtype == "string" else np.zeros(2, first.dtype)
    assert isinstance(got, raggrad.Tensor if quantized else np.ndarray)
    assert same_bits(got, np.concatenate([first, missing, last]))


def test_empty_inputs() -> None:
    empty = np.zeros(0, np.int32)
    rows, numbers = raw_ops.SparseSegmentSumGradV2(
        grad=np.zeros((0, 3), np.float32), indices=empty, segment_ids=empty, dense_output_dim0=5
    )
    assert rows.shape == (0, 3)
    assert numbers.shape == (0,)
    assert (
        raw_ops.SparseSegmentSumGrad(
            grad=np.zeros((2, 3), np.float32), indices=empty, segment_ids=empty, output_dim0=2
        ).tolist()
        == [[0, 0, 0]] * 2
    )
    values, default = raw_ops.SparseFillEmptyRowsGrad(reverse_index_map=[], grad_values=[])
    assert values.shape == (0,)
    assert values.dtype == np.float32
    assert float(default) == 0
    joined = raw_ops.RaggedTensorToVariantGradient(
        encoded_ragged_grad=[], row_splits=[0], dense_values_shape=[0, 4], Tvalues="half"
    )
    assert joined.shape == (0, 4)
    assert joined.dtype == np.float16


def test_outputs_own_writable_aligned_memory() -> None:
    out = raw_ops.SparseSegmentSumGrad(
        grad=np.ones((1, 4), np.float32), indices=[1], segment_ids=[0], output_dim0=2, T="float32"
    )
    assert out.flags.writeable
    assert out.flags.c_contiguous
    assert out.ctypes.data % 64 == 0
    out += 1
    view = out[1:]
    del out
    assert view.tolist() == [[2.0] * 4]


def test_accumulation() -> None:
    values = np.full(100_000, 0.1, np.float32)
    exact = raw_ops.SparseFillEmptyRowsGrad(reverse_index_map=[], grad_values=values).d_default_value
    with raggrad.accumulation("fast"):
        fast = raw_ops.SparseFillEmptyRowsGrad(reverse_index_map=[], grad_values=values).d_default_value
        assert same_bits(fast, ops.fill_empty_rows_grad([], values).d_default_value)
        with raggrad.accumulation("sequential"):
            again = raw_ops.SparseFillEmptyRowsGrad(reverse_index_map=[], grad_values=values).d_default_value
    assert same_bits(exact, again)
    true_sum = 100_000 * float(np.float32(0.1))
    assert abs(float(fast) - true_sum) < abs(float(exact) - true_sum)
    after = raw_ops.SparseFillEmptyRowsGrad(reverse_index_map=[], grad_values=values).d_default_value
    assert same_bits(exact, after)
    assert same_bits(fast, ops.fill_empty_rows_grad([], values, accumulation="fast").d_default_value)
    text = "accumulation: no such accumulation .*sequential"
    with pytest.raises(raggrad.errors.InvalidArgumentError, match=text), raggrad.accumulation("quick"):
        pass


@pytest.mark.parametrize("op", SEGMENT_GRADS)
def test_fast_accumulation_reaches_the_segment_grads(op: str) -> None:
    rng = np.random.default_rng(1)
    grad = rng.standard_normal((1000, 1)).astype(np.float32)
    indices, segments = np.zeros(1000, np.int32), np.arange(1000, dtype=np.int32)
    exact = call_segment_grad(op, grad, indices, segments, 1)
    with raggrad.accumulation("fast"):
        fast = call_segment_grad(op, grad, indices, segments, 1)
    exact, fast = (np.asarray(r[0] if op.endswith("V2") else r) for r in (exact, fast))
    assert not same_bits(exact, fast)
    np.testing.assert_allclose(exact, fast, rtol=1e-3)


def test_numpy_dtype_helper_covers_all() -> None:
    assert {numpy_dtype(name).itemsize for name in RAGGED_TYPES} == {1, 2, 4, 8, 16}
