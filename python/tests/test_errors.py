"""raggrad.errors, and which errors operators raise."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
import raggrad
from conftest import OPERATORS, SEGMENT_FORWARDS, SMALL_TYPES, values_of
from raggrad import Ragged, errors, raw_ops

NATURAL = {
    "InvalidArgumentError": ValueError,
    "DeadlineExceededError": TimeoutError,
    "ResourceExhaustedError": MemoryError,
    "UnimplementedError": NotImplementedError,
    "InternalError": RuntimeError,
    "NotFoundError": RuntimeError,
    "AlreadyExistsError": RuntimeError,
    "CancelledError": RuntimeError,
    "UnavailableError": RuntimeError,
}


@pytest.mark.parametrize("name", NATURAL)
def test_classes(name: str) -> None:
    cls = getattr(errors, name)
    assert issubclass(cls, errors.OpError)
    assert issubclass(cls, NATURAL[name])
    error = cls("some text")
    assert error.message == "some text"
    assert str(error) == "some text"
    canonical = "".join("_" + c if c.isupper() else c for c in name.removesuffix("Error")).lstrip("_").upper()
    assert error.code == canonical
    assert errors.class_for(canonical) is cls
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is cls
    assert copy.message == "some text"


def test_invalid_argument_keeps_tensorflows_words() -> None:
    with pytest.raises(errors.InvalidArgumentError) as caught:
        raw_ops.SparseFillEmptyRowsGrad(reverse_index_map=[0, 3], grad_values=[1.0, 2.0])
    assert caught.value.code == "INVALID_ARGUMENT"
    assert "Elements in reverse index must be in [0, 2) but got 3" in caught.value.message
    assert caught.value.message.startswith("SparseFillEmptyRowsGrad: ")


def test_internal_is_tensorflows_code() -> None:
    with pytest.raises(errors.InternalError, match="aren't all propagated"):
        raw_ops.SparseSliceGrad(backprop_val_grad=[1.0], input_indices=[[0]], input_start=[0], output_indices=[[7]])


def bad_dtype_call(op: str, values: np.ndarray) -> None:
    if op in SEGMENT_FORWARDS:
        count = {"num_segments": 1} if op.endswith("WithNumSegments") else {}
        getattr(raw_ops, op)(data=values, indices=[0], segment_ids=[0], **count)
    elif op.startswith("SparseSegment"):
        dim0 = "dense_output_dim0" if op.endswith("V2") else "output_dim0"
        getattr(raw_ops, op)(grad=values, indices=[0], segment_ids=[0], **{dim0: 1})
    elif op.endswith("FillEmptyRowsGrad"):
        getattr(raw_ops, op)(reverse_index_map=[0], grad_values=values)
    elif op == "SparseFillEmptyRows":
        raw_ops.SparseFillEmptyRows(indices=[[0]], values=values, dense_shape=[1], default_value=values[0])
    elif op == "RaggedFillEmptyRows":
        raw_ops.RaggedFillEmptyRows(value_rowids=[0], values=values, nrows=1, default_value=values[0])
    elif op == "SparseSlice":
        raw_ops.SparseSlice(indices=[[0]], values=values, shape=[1], start=[0], size=[1])
    elif op == "SparseSliceGrad":
        raw_ops.SparseSliceGrad(backprop_val_grad=values, input_indices=[[0]], input_start=[0], output_indices=[[0]])
    elif op == "RaggedTensorToVariant":
        raw_ops.RaggedTensorToVariant(rt_nested_splits=[[0, 1]], rt_dense_values=values, batched_input=True)
    elif op == "RaggedTensorFromVariant":
        raw_ops.RaggedTensorFromVariant(
            encoded_ragged=[Ragged([], values)], input_ragged_rank=0, output_ragged_rank=1, Tvalues=values.dtype
        )
    else:
        raw_ops.RaggedTensorToVariantGradient(
            encoded_ragged_grad=[Ragged([], values)], row_splits=[0, 1], dense_values_shape=[1], Tvalues=values.dtype
        )


@pytest.mark.parametrize("dtype", SMALL_TYPES)
@pytest.mark.parametrize("op", OPERATORS)
def test_a_dtype_that_no_operator_has(op: str, dtype: str) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=f"half, bfloat16, float32, float64.*{dtype}"):
        bad_dtype_call(op, values_of(dtype, 1))


def test_memory_limit(restore_memory_limit: None) -> None:
    call = {"grad": np.ones((1, 1000), np.float32), "indices": [0], "segment_ids": [0], "output_dim0": 1000}
    raggrad.set_memory_limit(10_000)
    assert raggrad.get_memory_limit() == 10_000
    with pytest.raises(errors.ResourceExhaustedError, match=r"OOM when allocating tensor with shape\[1000,1000\]"):
        raw_ops.SparseSegmentSumGrad(**call)
    raggrad.set_memory_limit(0)
    with pytest.raises(MemoryError):
        raw_ops.SparseSegmentSumGrad(**call)
    raggrad.set_memory_limit(None)
    assert raggrad.get_memory_limit() is None
    assert raw_ops.SparseSegmentSumGrad(**call).shape == (1000, 1000)
    with pytest.raises(errors.InvalidArgumentError, match="set_memory_limit"):
        raggrad.set_memory_limit(-1)


def test_the_memory_limit_holds_for_scratch_on_the_stack() -> None:
    call = {"grad": np.float32([[1]]), "indices": np.zeros(100, int), "segment_ids": np.zeros(100, int)}
    call["dense_output_dim0"] = 1  # the outputs take 4 and 8 bytes, the sorted ids 800
    try:
        raggrad.set_memory_limit(100)
        with pytest.raises(errors.ResourceExhaustedError, match="no memory for 100 x 8 bytes of scratch"):
            raw_ops.SparseSegmentSumGradV2(**call)
    finally:
        raggrad.set_memory_limit(None)
    assert raw_ops.SparseSegmentSumGradV2(**call).output.tolist() == [[100]]


def test_more_memory_than_the_machine_has() -> None:
    with pytest.raises(errors.ResourceExhaustedError):
        raw_ops.SparseSegmentSumGrad(
            grad=np.ones((1, 1 << 20), np.float32), indices=[0], segment_ids=[0], output_dim0=2**31 - 1
        )


def test_wrong_keywords_are_type_errors() -> None:
    with pytest.raises(TypeError):
        raw_ops.SparseFillEmptyRowsGrad([0], [1.0])
    with pytest.raises(TypeError, match="grad_values"):
        raw_ops.SparseFillEmptyRowsGrad(reverse_index_map=[0])


def test_a_wrong_instruction_set_is_told_at_the_first_call() -> None:
    code = (
        "import raggrad\n"
        "try: raggrad.raw_ops.SparseSliceGrad("
        "backprop_val_grad=[1.0], input_indices=[[0]], input_start=[0], output_indices=[[0]])\n"
        "except raggrad.errors.InvalidArgumentError as error: print(error)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "RAGGRAD_ISA": "sse5"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "RAGGRAD_ISA: instruction set 'sse5' is not available" in run.stdout
