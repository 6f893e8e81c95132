"""NumPy arrays of all layouts, byte orders and kinds as operands."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import raggrad
import raggrad.conformance
from conftest import (
    NUMBERS,
    same_bits,
    values_of,
)
from raggrad import Ragged, raw_ops


def awkward_layouts(array: np.ndarray) -> dict[str, np.ndarray]:
    """The same numbers in layouts that a C library cannot read."""
    spread = np.zeros((array.shape[0] * 2, *array.shape[1:]), array.dtype)
    spread[::2] = array
    raw = np.zeros(array.nbytes + 1, np.uint8)
    unaligned = raw[1:].view(array.dtype).reshape(array.shape)
    unaligned[...] = array
    frozen = array.copy()
    frozen.flags.writeable = False
    return {
        "every second": spread[::2],
        "backwards": array[::-1].copy()[::-1],
        "fortran": np.asfortranarray(array),
        "swapped": array.astype(array.dtype.newbyteorder(">")),
        "unaligned": unaligned,
        "read-only": frozen,
    }


@pytest.mark.parametrize("layout", ["every second", "backwards", "fortran", "swapped", "unaligned", "read-only"])
def test_layouts(layout: str) -> None:
    grad = np.arange(24, dtype=np.float32).reshape(4, 3, 2)
    indices, segments = np.array([9, 1, 9, 3]), np.array([3, 0, 1, 3])
    expected = raw_ops.SparseSegmentSumGradV2(grad=grad, indices=indices, segment_ids=segments, dense_output_dim0=10)
    inputs = [awkward_layouts(array)[layout] for array in (grad, indices, segments)]
    before = [array.copy() for array in inputs]
    got = raw_ops.SparseSegmentSumGradV2(
        grad=inputs[0], indices=inputs[1], segment_ids=inputs[2], dense_output_dim0=np.int32(10)
    )
    assert same_bits(got.output, expected.output)
    assert same_bits(got.sorted_unique_indices, expected.sorted_unique_indices)
    assert all(same_bits(a, b) for a, b in zip(inputs, before, strict=True))


@pytest.mark.parametrize("dtype", NUMBERS)
def test_big_endian_numbers(dtype: str) -> None:
    swapped = values_of(dtype, 5)
    if dtype != "bfloat16":  # ml_dtypes has no other byte order
        swapped = swapped.astype(swapped.dtype.newbyteorder(">"))
    got = raw_ops.SparseFillEmptyRowsGrad(reverse_index_map=[3], grad_values=swapped)
    assert same_bits(got.d_values, values_of(dtype, 5)[[3]])


def test_strings_of_all_kinds() -> None:
    def joined(values: object) -> list[bytes]:
        return raw_ops.RaggedTensorToVariantGradient(
            encoded_ragged_grad=[Ragged([], values), None],
            row_splits=[0, 2, 3],
            dense_values_shape=[3],
            Tvalues="string",
        ).tolist()

    objects = np.array([b"ab\0", b""], object)
    assert joined(objects) == [b"ab\0", b"", b""]
    assert joined(np.array([b"ab\0", b"x", b"", b"y"], object)[::2]) == [b"ab\0", b"", b""]
    assert joined(np.array([b"abc", b"d"])) == [b"abc", b"d", b""]
    assert joined(np.array([b"abc", b"x", b"d", b"y"])[::2]) == [b"abc", b"d", b""]
    assert joined([b"ab\0", "\u00e9"]) == [b"ab\0", b"\xc3\xa9", b""]
    for bad, text in [
        (np.array([b"a", 1], object), r"element 1: expected bytes, got int"),
        (np.array(["a", "b"]), "is not a TensorFlow dtype"),
        ([b"a", 1], "element 1: expected bytes, got int"),
    ]:
        with pytest.raises(raggrad.errors.InvalidArgumentError, match=text):
            joined(bad)


def test_numpy_scalars_and_subclasses() -> None:
    class Mine(np.ndarray):
        pass

    got = raw_ops.SparseFillEmptyRowsGrad(
        reverse_index_map=np.array([1]), grad_values=np.arange(3, dtype=ml_dtypes.bfloat16).view(Mine)
    )
    assert type(got.d_values) is np.ndarray
    assert float(got.d_default_value) == 2
    with pytest.raises(raggrad.errors.InvalidArgumentError, match="vector"):
        raw_ops.SparseFillEmptyRowsGrad(reverse_index_map=[0], grad_values=np.float32(1))
    with pytest.raises(raggrad.errors.InvalidArgumentError, match="masked"):
        raw_ops.SparseFillEmptyRowsGrad(reverse_index_map=[0], grad_values=np.ma.array([1.0]))


def test_things_with_only_an_array_method() -> None:
    class Holder:
        def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
            return np.float64([1, 2, 4])

    got = raw_ops.SparseFillEmptyRowsGrad(reverse_index_map=[0], grad_values=Holder())
    assert isinstance(got.d_values, np.ndarray)
    assert float(got.d_default_value) == 6


def test_longlong_is_int64() -> None:
    got = raw_ops.SparseFillEmptyRowsGrad(reverse_index_map=np.array([1], np.longlong), grad_values=[1.0, 2.0])
    assert got.d_values.tolist() == [2.0]
