"""SparseSegment{Sum,Mean,SqrtN} and ...WithNumSegments of raw_ops."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import raggrad
from conftest import FLOATS, INTEGERS, SEGMENT_FORWARDS, same_bits, values_of
from raggrad import raw_ops
from raggrad.errors import InvalidArgumentError

INDICES = np.array([5, 0, 5, 2, 0])
SEGMENTS = np.array([0, 0, 0, 0, 2])  # four times and once: numbers whose square roots are exact


def call(op: str, data: Any, indices: Any, segment_ids: Any, num_segments: Any, **attributes: Any) -> Any:
    count = {"num_segments": num_segments} if op.endswith("WithNumSegments") else {}
    return getattr(raw_ops, op)(data=data, indices=indices, segment_ids=segment_ids, **count, **attributes)


def plain(op: str, data: np.ndarray, rows: int) -> np.ndarray:
    """The sums in float64: exact for the small numbers of the tests."""
    out = np.zeros((rows, *data.shape[1:]))
    np.add.at(out, SEGMENTS, data[INDICES].astype(np.float64))
    counts = np.maximum(np.bincount(SEGMENTS, minlength=rows), 1).reshape(-1, *[1] * (data.ndim - 1))
    kind = op.removeprefix("SparseSegment").removesuffix("WithNumSegments")
    return (out / counts ** {"Sum": 0.0, "Mean": 1.0, "SqrtN": 0.5}[kind]).astype(data.dtype)


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
@pytest.mark.parametrize("op", SEGMENT_FORWARDS)
def test_dtypes(op: str, dtype: str) -> None:
    data = values_of(dtype, 24).reshape(6, 2, 2)
    if dtype in INTEGERS and "Sum" not in op:
        with pytest.raises(InvalidArgumentError, match="half, bfloat16, float32, float64; got"):
            call(op, data, INDICES, SEGMENTS, 4)
        return
    expected = plain(op, data, 4 if op.endswith("WithNumSegments") else 3)
    for index_dtype in (np.int32, np.int64):
        for segment_dtype in (np.int32, np.int64):
            for count in (np.array(4, index_dtype), 4):
                ids = INDICES.astype(index_dtype), SEGMENTS.astype(segment_dtype)
                assert same_bits(call(op, data, *ids, count, sparse_gradient=True, name="ignored"), expected)


@pytest.mark.parametrize("op", SEGMENT_FORWARDS)
def test_literals_and_attributes(op: str) -> None:
    integers = call(op, [[1], [2]], [1, 0], [0, 0], 1)
    assert integers.dtype == (np.int32 if "Sum" in op else np.float32)
    stated = call(op, [[1], [2]], [1, 0], [0, 0], 1, T="bfloat16", Tidx="int64", Tsegmentids=np.int64)
    assert stated.dtype == ml_dtypes.bfloat16
    with pytest.raises(InvalidArgumentError, match="T says half but data has dtype float32"):
        call(op, np.float32([[1]]), [0], [0], 1, T="half")
    with pytest.raises(InvalidArgumentError, match="Tidx says int64 but indices has dtype int32"):
        call(op, np.float32([[1]]), np.int32([0]), [0], 1, Tidx="int64")


@pytest.mark.parametrize("op", SEGMENT_FORWARDS)
def test_empty_inputs_and_errors(op: str) -> None:
    none = np.zeros(0, np.int32)
    empty = call(op, np.ones((2, 3), np.float32), none, none, 2)
    assert empty.tolist() == ([[0, 0, 0]] * 2 if op.endswith("WithNumSegments") else [])
    with pytest.raises(InvalidArgumentError, match=r"Bad: indices\[1\] == 7 out of range \[0, 2\)"):
        call(op, np.ones((2, 3), np.float32), [0, 7], [0, 0], 1)
    with pytest.raises(InvalidArgumentError, match="segment ids are not increasing"):
        call(op, np.ones((2, 3), np.float32), [0, 1, 1], [1, 0, 1], 2)


def test_num_segments() -> None:
    numbers = {"data": np.float32([[1]]), "indices": [0], "segment_ids": [3]}
    with pytest.raises(InvalidArgumentError, match="segment ids must be < num_segments"):
        raw_ops.SparseSegmentSumWithNumSegments(**numbers, num_segments=3)
    with pytest.raises(InvalidArgumentError, match=r"num_segments must be < 2\^31"):
        raw_ops.SparseSegmentSumWithNumSegments(**numbers, num_segments=np.int64(2**40))
    tensor = raggrad.Tensor(np.float32([[1]]))
    assert isinstance(
        raw_ops.SparseSegmentSumWithNumSegments(data=tensor, indices=[0], segment_ids=[0], num_segments=1),
        raggrad.Tensor,
    )
