"""Python numbers and lists as operands, and attributes that state dtypes."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import raggrad
import raggrad.conformance
from conftest import (
    call_segment_grad,
)
from raggrad import Ragged, raw_ops


def test_literals_take_the_dtype_that_the_argument_asks_for() -> None:
    r = raw_ops.SparseSegmentSumGradV2(grad=[[1, 2]], indices=(3,), segment_ids=range(1), dense_output_dim0=5)
    assert r.output.dtype == np.float32
    assert r.sorted_unique_indices.dtype == np.int32
    r = raw_ops.SparseSegmentSumGradV2(
        grad=[[1, 2]],
        indices=[3],
        segment_ids=[0],
        dense_output_dim0=5,
        T="bfloat16",
        Tidx=np.int64,
        Tsegmentids="int64",
    )
    assert r.output.dtype == ml_dtypes.bfloat16
    assert r.sorted_unique_indices.dtype == np.int64

    def dtype_of(values: object) -> np.dtype:
        return raw_ops.SparseFillEmptyRowsGrad(reverse_index_map=[0], grad_values=values).d_values.dtype

    assert dtype_of([1, 2]) == np.int32
    assert dtype_of([1, 2.5]) == np.float32
    assert dtype_of([1j]) == np.complex128
    assert dtype_of([np.float64(1), np.float64(2)]) == np.float32  # a list is a list, whatever is in it
    strings = raw_ops.RaggedTensorToVariantGradient(
        encoded_ragged_grad=Ragged([], [b"a", b"b\0", "\u00e9"]), row_splits=0, dense_values_shape=[3], Tvalues="string"
    )
    assert strings.tolist() == [b"a", b"b\0", b"\xc3\xa9"]


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([0.5], "expected int64, got float64"),
        ([True], "expected int64, got bool"),
        ([b"a"], "expected int64, got text or bytes"),
        ([[0], [1, 2]], "rectangular"),
        ([None], "expected int64, got NoneType"),
        ([2**70], "more than 64 bits"),
        (2**70, "does not fit int64"),
        (None, "got NoneType"),
        (object(), "expected an array"),
        ({}, "expected an array"),
    ],
)
def test_bad_literals(values: object, text: str) -> None:
    with pytest.raises(raggrad.errors.InvalidArgumentError, match=text) as caught:
        raw_ops.SparseFillEmptyRowsGrad(reverse_index_map=values, grad_values=[1.0])
    assert "SparseFillEmptyRowsGrad: reverse_index_map" in str(caught.value)


def test_integers_must_fit() -> None:
    with pytest.raises(raggrad.errors.InvalidArgumentError, match="dense_output_dim0: 2147483648 does not fit int32"):
        raw_ops.SparseSegmentSumGradV2(grad=[[1.0]], indices=[0], segment_ids=[0], dense_output_dim0=2**31)
    with pytest.raises(raggrad.errors.InvalidArgumentError, match="indices: -2147483649 does not fit int32"):
        raw_ops.SparseSegmentSumGradV2(grad=[[1.0]], indices=[-(2**31) - 1], segment_ids=[0], dense_output_dim0=1)
    with pytest.raises(raggrad.errors.InvalidArgumentError, match="grad_values: 128 does not fit int8"):
        raw_ops.SparseFillEmptyRowsGrad(reverse_index_map=[0], grad_values=[128], T="int8")


def test_arrays_are_never_converted() -> None:
    with pytest.raises(raggrad.errors.InvalidArgumentError, match=r"reverse_index_map .*int32"):
        raw_ops.SparseFillEmptyRowsGrad(reverse_index_map=np.array([0], np.int32), grad_values=[1.0])
    with pytest.raises(raggrad.errors.InvalidArgumentError, match=r"dense_output_dim0 .*int64"):
        raw_ops.SparseSegmentSumGradV2(grad=[[1.0]], indices=[0], segment_ids=[0], dense_output_dim0=np.int64(3))
    got = raw_ops.SparseFillEmptyRowsGrad(reverse_index_map=[0], grad_values=np.float64([1, 2]))
    assert got.d_values.dtype == np.float64


def test_attributes_must_agree() -> None:
    grad = np.ones((1, 1), np.float32)
    call_segment_grad("SparseSegmentSumGrad", grad, [0], [0], 1, T=np.dtype("float32"), Tidx="int32")
    for attributes, text in [
        ({"T": "half"}, "T says half but grad has dtype float32"),
        ({"T": "flaot32"}, "T: expected a dtype"),
        ({"Tidx": "int64"}, "Tidx says int64 but indices has dtype int32"),
        ({"Tsegmentids": np.int64}, "Tsegmentids says int64 but segment_ids has dtype int32"),
    ]:
        with pytest.raises(raggrad.errors.InvalidArgumentError, match=text):
            call_segment_grad("SparseSegmentSumGrad", grad, np.int32([0]), np.int32([0]), 1, **attributes)


class FakeTfDType:
    name = "float16"


class FakeTorchDType:
    def __str__(self) -> str:
        return "torch.float16"


@pytest.mark.parametrize(
    "tvalues", ["half", "float16", np.float16, np.dtype("float16"), FakeTfDType(), FakeTorchDType()]
)
def test_spellings_of_a_dtype(tvalues: object) -> None:
    got = raw_ops.RaggedTensorToVariantGradient(
        encoded_ragged_grad=[Ragged([], [1.0])], row_splits=[0, 1], dense_values_shape=[1], Tvalues=tvalues
    )
    assert got.dtype == np.float16


def test_tvalues_is_required() -> None:
    with pytest.raises(TypeError, match="Tvalues"):
        raw_ops.RaggedTensorToVariantGradient(encoded_ragged_grad=[], row_splits=[0], dense_values_shape=[0])
    with pytest.raises(raggrad.errors.InvalidArgumentError, match="Tvalues"):
        raw_ops.RaggedTensorToVariantGradient(
            encoded_ragged_grad=[], row_splits=[0], dense_values_shape=[0], Tvalues=None
        )
