"""SparseFillEmptyRows, RaggedFillEmptyRows and SparseSlice of raw_ops."""

from __future__ import annotations

import numpy as np
import pytest
import raggrad
from conftest import NUMBERS, same_bits, values_of
from raggrad import Tensor, raw_ops
from raggrad.errors import InvalidArgumentError

PLAIN = [*NUMBERS, "bool", "string"]
INDICES = np.array([[3, 1], [0, 4], [3, 0], [1, 2]])


def joined(*parts: np.ndarray) -> np.ndarray:
    return np.concatenate([np.atleast_1d(part) for part in parts])


@pytest.mark.parametrize("dtype", PLAIN)
def test_sparse_fill_empty_rows(dtype: str) -> None:
    values = values_of(dtype, 5)
    default = values[4:].reshape(())
    got = raw_ops.SparseFillEmptyRows(
        indices=INDICES, values=values[:4], dense_shape=np.array([6, 5]), default_value=default, name="ignored"
    )
    assert got._fields == ("output_indices", "output_values", "empty_row_indicator", "reverse_index_map")
    assert same_bits(got.output_indices, np.array([[0, 4], [1, 2], [2, 0], [3, 1], [3, 0], [4, 0], [5, 0]]))
    assert same_bits(got.output_values, values[[1, 3, 4, 0, 2, 4, 4]])
    assert same_bits(got.empty_row_indicator, np.array([False, False, True, False, True, True]))
    assert same_bits(got.reverse_index_map, np.array([3, 0, 4, 1]))


@pytest.mark.parametrize("dtype", PLAIN)
def test_ragged_fill_empty_rows(dtype: str) -> None:
    values = values_of(dtype, 3)
    got = raw_ops.RaggedFillEmptyRows(
        value_rowids=np.array([0, 2]), values=values[:2], nrows=np.array(3), default_value=values[2:].reshape(())
    )
    assert got._fields == ("output_value_rowids", "output_values", "empty_row_indicator", "reverse_index_map")
    assert same_bits(got.output_value_rowids, np.array([0, 1, 2]))
    assert same_bits(got.output_values, values[[0, 2, 1]])
    assert same_bits(got.reverse_index_map, np.array([0, 2]))


@pytest.mark.parametrize("dtype", PLAIN)
def test_sparse_slice(dtype: str) -> None:
    values = values_of(dtype, 4)
    got = raw_ops.SparseSlice(
        indices=INDICES, values=values, shape=np.array([6, 5]), start=np.array([1, 1]), size=np.array([9, 2])
    )
    assert got._fields == ("output_indices", "output_values", "output_shape")
    assert same_bits(got.output_indices, np.array([[2, 0], [0, 1]]))
    assert same_bits(got.output_values, values[[0, 3]])
    assert same_bits(got.output_shape, np.array([5, 2]))


def test_literals() -> None:
    filled = raw_ops.RaggedFillEmptyRows(value_rowids=[0], values=[1.5], nrows=2, default_value=0)
    assert filled.output_values.dtype == np.float32
    assert filled.output_value_rowids.dtype == np.int64
    # The default takes the dtype of the values, as any literal takes the dtype that its argument asks for.
    filled = raw_ops.RaggedFillEmptyRows(value_rowids=[0], values=np.float64([1]), nrows=2, default_value=0.5)
    assert filled.output_values.tolist() == [1, 0.5]
    strings = raw_ops.RaggedFillEmptyRows(value_rowids=[1], values=[b"a"], nrows=2, default_value=b"none")
    assert strings.output_values.tolist() == [b"none", b"a"]
    sliced = raw_ops.SparseSlice(indices=[[0], [2]], values=[True, False], shape=[3], start=[1], size=[5])
    assert sliced.output_values.tolist() == [False]
    assert sliced.output_shape.dtype == np.int64


def test_empty_inputs() -> None:
    none = np.zeros(0, np.int64)
    filled = raw_ops.SparseFillEmptyRows(
        indices=np.zeros((0, 3), np.int64), values=np.zeros(0, np.half), dense_shape=[0, 2, 2], default_value=1
    )
    assert [output.shape for output in filled] == [(0, 3), (0,), (0,), (0,)]
    ragged = raw_ops.RaggedFillEmptyRows(value_rowids=none, values=[], nrows=0, default_value=1)
    assert ragged.output_value_rowids.shape == (0, 1)
    no_columns = np.zeros((3, 0), np.int64)
    sliced = raw_ops.SparseSlice(indices=no_columns, values=[1, 2, 3], shape=none, start=none, size=none)
    assert sliced.output_values.tolist() == [1, 2, 3]


def test_outputs_are_of_the_kind_of_the_values() -> None:
    values = Tensor(np.float32([1, 2]))
    for output in raw_ops.RaggedFillEmptyRows(value_rowids=[0, 2], values=values, nrows=4, default_value=0):
        assert isinstance(output, Tensor)
    for output in raw_ops.SparseSlice(indices=[[0], [2]], values=values, shape=[3], start=[1], size=[5]):
        assert isinstance(output, Tensor)


def test_attributes_must_agree() -> None:
    call = {"value_rowids": [0], "values": np.float32([1]), "nrows": 1, "default_value": np.float32(0)}
    assert raw_ops.RaggedFillEmptyRows(**call, T="float32").output_values.tolist() == [1]
    with pytest.raises(InvalidArgumentError, match="T says half but values has dtype float32"):
        raw_ops.RaggedFillEmptyRows(**call, T="half")
    with pytest.raises(InvalidArgumentError, match="default_value: expected float32, got float64"):
        raw_ops.RaggedFillEmptyRows(**{**call, "default_value": np.float64(0)})
    with pytest.raises(InvalidArgumentError, match="value_rowids has dtype int32"):
        raw_ops.RaggedFillEmptyRows(**{**call, "value_rowids": np.int32([0])})
    with pytest.raises(InvalidArgumentError, match="T says half but values has dtype float32"):
        raw_ops.SparseSlice(indices=[[0]], values=np.float32([1]), shape=[1], start=[0], size=[1], T="half")


def test_errors_say_where() -> None:
    with pytest.raises(InvalidArgumentError, match=r"indices\(1, 0\) is invalid: 7 >= 3 \[indices\[1,0\]: "):
        raw_ops.SparseFillEmptyRows(indices=[[0, 0], [7, 0]], values=[1, 2], dense_shape=[3, 1], default_value=0)
    with pytest.raises(InvalidArgumentError, match=r"Expected a non-negative size, got -1 \[size\[0\]"):
        raw_ops.SparseSlice(indices=[[0]], values=[1], shape=[1], start=[0], size=[-1])
    with pytest.raises(raggrad.errors.ResourceExhaustedError, match="OOM"):
        raw_ops.RaggedFillEmptyRows(value_rowids=[0], values=[1], nrows=2**60, default_value=0)


@pytest.mark.parametrize("threads", [1, 2, 7])
@pytest.mark.parametrize("ordered", [True, False])
def test_many_entries(threads: int, ordered: bool, restore_threads: None) -> None:
    raggrad.set_num_threads(threads)
    rng = np.random.default_rng(threads)
    rows = rng.integers(0, 50_000, 80_000)
    if ordered:
        rows.sort()
    values = rng.random(len(rows))
    filled = raw_ops.RaggedFillEmptyRows(value_rowids=rows, values=values, nrows=50_000, default_value=np.float64(-1))
    missing = np.setdiff1d(np.arange(50_000), rows)
    all_rows = joined(rows, missing)
    order = np.argsort(all_rows, kind="stable")
    assert same_bits(filled.output_value_rowids, all_rows[order])
    assert same_bits(filled.output_values, joined(values, np.full(len(missing), -1.0))[order])
    assert same_bits(np.flatnonzero(filled.empty_row_indicator), missing)
    assert same_bits(filled.output_values[filled.reverse_index_map], values)

    indices = np.stack([rows, rng.integers(0, 100, len(rows))], axis=1)
    sliced = raw_ops.SparseSlice(
        indices=indices, values=values, shape=[50_000, 100], start=[1000, 10], size=[40_000, 70]
    )
    kept = np.all((indices >= [1000, 10]) & (indices < [41_000, 80]), axis=1)
    assert same_bits(sliced.output_indices, indices[kept] - [1000, 10])
    assert same_bits(sliced.output_values, values[kept])
