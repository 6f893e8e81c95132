"""Ragged from Python lists and back."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import raggrad
from conftest import QUANTIZED, RAGGED_TYPES, same_bits, values_of
from raggrad import Ragged
from raggrad.errors import InvalidArgumentError


@pytest.mark.parametrize("dtype", RAGGED_TYPES)
def test_lists_and_back(dtype: str) -> None:
    flat = values_of(dtype, 6).tolist()
    rows = [[flat[:2], []], [], [flat[2:3]], [flat[3:]]]
    ragged = Ragged.from_lists(rows, dtype)
    assert [s.tolist() for s in ragged.nested_splits] == [[0, 2, 2, 3, 4], [0, 2, 2, 3, 6]]
    assert raggrad.Tensor(ragged.values).dtype == dtype
    assert isinstance(ragged.values, raggrad.Tensor if dtype in QUANTIZED else np.ndarray)
    assert ragged.to_lists() == rows


def test_lists_of_chosen_depth_and_type() -> None:
    ragged = Ragged.from_lists([[[1, 2], [3, 4]], [], [[5, 6]]], ragged_rank=1, splits_dtype="int32")
    assert same_bits(ragged.nested_splits[0], np.int32([0, 2, 2, 3]))
    assert same_bits(ragged.values, np.int32([[1, 2], [3, 4], [5, 6]]))
    assert ragged.to_lists() == [[[1, 2], [3, 4]], [], [[5, 6]]]
    assert Ragged.from_lists([1.5, 2.5]).shape == (2,)
    assert Ragged.from_lists([[], []]).to_lists() == [[], []]
    assert Ragged.from_lists([], ragged_rank=0).shape == (0,)
    assert Ragged.from_lists([[], [[]], [["a"]]]).to_lists() == [[], [[]], [[b"a"]]]


@pytest.mark.parametrize(
    ("rows", "dtype"),
    [
        ([[1], [2, 3]], "int32"),
        ([[], [5_000_000_000]], "int64"),
        ([[-(2**31), 2**31 - 1]], "int32"),
        ([[1], [2.5]], "float32"),
        ([[True], []], "bool"),
        ([[1j]], "complex128"),
        ([["a"], [b"b"]], "string"),
        ([[], []], "int32"),
        ([], "int32"),
        ([[[]], []], "int32"),
        ([np.array([1, 2]), np.array([3])], "int64"),
        ([np.float64([1]), np.float32([2, 3])], "float64"),
        ([np.int16([1]), []], "int16"),
        ([np.int16([]), []], "int16"),
        ([np.ones(2, ml_dtypes.bfloat16)], "bfloat16"),
        ([[np.int64(1)], [np.int64(2)]], "int64"),
        ([np.array([b"a"], object), [b"b"]], "string"),
        ([raggrad.Tensor([1, 2]), raggrad.Tensor([3])], "int32"),
    ],
)
def test_the_rule_of_dtypes(rows: list[object], dtype: str) -> None:
    assert Ragged.from_lists(rows).dtype == dtype


def test_lists_without_numbers_have_splits_and_can_be_ids() -> None:
    nothing = Ragged.from_lists([])
    assert (nothing.shape, [s.tolist() for s in nothing.nested_splits]) == ((0, None), [[0]])
    assert nothing.to_lists() == []
    empty = Ragged.from_lists([[], []])
    assert (empty.shape, empty.dtype, empty.to_lists()) == ((2, None), "int32", [[], []])
    table = np.ones((3, 2), np.float32)
    assert raggrad.ops.embedding_lookup_sparse(table, empty).tolist() == [[0.0, 0.0], [0.0, 0.0]]
    assert Ragged.from_lists([[], []], "float64").dtype == "float64"


def test_lists_of_arrays() -> None:
    rows = [np.array([1, 2]), [], np.array([3])]
    ragged = Ragged.from_lists(rows)
    assert same_bits(ragged.values, np.array([1, 2, 3]))
    assert ragged.nested_splits[0].tolist() == [0, 2, 2, 3]
    assert same_bits(Ragged.from_lists(rows, "float32").values, np.float32([1, 2, 3]))
    assert Ragged.from_lists(rows, "qint8").dtype == "qint8"
    assert Ragged.from_lists([rows, []]).to_lists() == [[[1, 2], [], [3]], []]
    matrices = [np.zeros((2, 3)), np.ones((1, 3))]
    assert Ragged.from_lists(matrices, ragged_rank=1).shape == (2, None, 3)
    assert Ragged.from_lists(matrices).shape == (2, None, None)
    assert Ragged.from_lists(np.arange(6).reshape(2, 3)).to_lists() == [[0, 1, 2], [3, 4, 5]]
    for rows, dtype, text in [
        ([np.array([300])], "int8", "300 does not fit int8"),
        ([np.array([1.5])], "int32", "expected int32, got float64"),
        ([np.zeros((1, 2)), np.zeros((1, 3))], None, "do not fit together"),
        ([np.zeros(2), 1.0], None, "expected lists at depth 1, got float"),
    ]:
        with pytest.raises(InvalidArgumentError, match=text):
            Ragged.from_lists(rows, dtype, ragged_rank=1)


@pytest.mark.parametrize(
    ("rows", "arguments", "text"),
    [
        ([[1], 2], {}, "expected lists at depth 1, got int"),
        ([[1]], {"ragged_rank": 2}, "expected lists at depth 2, got int"),
        ([[[1], [2, 3]]], {"ragged_rank": 1}, "not a rectangular array"),
        ([["a"]], {"dtype": "float32"}, "expected float32"),
    ],
)
def test_bad_lists(rows: object, arguments: dict[str, object], text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=text):
        Ragged.from_lists(rows, **arguments)
