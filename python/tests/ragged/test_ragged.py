"""Ragged: its parts, rows, selections and equality."""

from __future__ import annotations

import copy
import pickle
import weakref

import numpy as np
import pytest
import raggrad
from conftest import same_bits
from raggrad import Ragged, VariantArray, raw_ops
from raggrad.errors import InvalidArgumentError

SPLITS = np.array([0, 2, 2, 3])


def test_parts_are_kept_as_they_are() -> None:
    values = np.arange(3)
    ragged = Ragged([SPLITS], values)
    assert ragged.nested_splits[0] is SPLITS
    assert ragged.values is values
    assert ragged.ragged_rank == 1
    assert Ragged((), values).ragged_rank == 0


def test_shape_and_length() -> None:
    assert Ragged([SPLITS], np.zeros((3, 4, 5))).shape == (3, None, 4, 5)
    assert Ragged([[0, 1], [0, 2]], [1, 2]).shape == (1, None, None)
    assert Ragged([], np.zeros((2, 3))).shape == (2, 3)
    assert len(Ragged([SPLITS], np.zeros(3))) == 3
    assert Ragged([], 1.0).shape == ()
    with pytest.raises(TypeError, match="no length"):
        len(Ragged([], 1.0))


def test_rows() -> None:
    values = np.arange(12.0).reshape(6, 2)
    ragged = Ragged([np.array([0, 2, 2, 3]), np.array([0, 1, 4, 6])], values)
    rows = list(ragged)
    assert [row.to_lists() for row in rows] == ragged.to_lists()
    assert all(isinstance(row, Ragged) and row.ragged_rank == 1 for row in rows)
    assert ragged[-1].to_lists() == ragged[np.int64(2)].to_lists() == [values[4:].tolist()]
    assert np.shares_memory(ragged[0].values, values)
    assert np.shares_memory(ragged[0][1], values)
    assert same_bits(ragged[0][1], values[1:4])
    assert same_bits(Ragged([], values)[-2], values[4])
    assert Ragged([[0, 2, 3]], [1, 2, 3])[0] == [1, 2]
    quantized = Ragged([[0, 2, 3]], raggrad.Tensor([1, 2, 3], "qint8"))[0]
    assert (quantized.dtype, quantized.numpy().tolist()) == ("qint8", [1, 2])
    for index in (3, -4):
        with pytest.raises(IndexError, match=rf"index {index} is out of range for a dimension of size 3"):
            ragged[index]
    for index in (0.0, "a", None, (0, 1), [0.5], ["a"], np.zeros((1, 1), int)):
        with pytest.raises(TypeError, match="a Ragged is indexed by integers, slices, masks and lists of integers"):
            ragged[index]
    for index in (slice(0, 1), 0.0, "a", None):
        with pytest.raises(TypeError, match=f"a VariantArray is indexed by integers, got {type(index).__name__}"):
            VariantArray([ragged])[index]
    with pytest.raises(TypeError, match="no length"):
        Ragged([], 1.0)[0]


@pytest.mark.parametrize(
    "nested_splits",
    [
        [[0, 4]], [[-1, 3]], [[2, 1]], [[0.0, 3.0]], [[[0, 1], [1, 3]]], [[0, 3], [0, 3]], [[0, 2], [0, 2, 1]],
        [[0, 1], [0, 4]],
    ],
)  # fmt: skip
def test_rows_do_not_trust_splits(nested_splits: list[object]) -> None:
    with pytest.raises(InvalidArgumentError, match=r"nested_splits\[\d\]: expected int32 or int64 that never fall"):
        Ragged([np.array(splits) for splits in nested_splits], np.arange(3))[0]


@pytest.mark.parametrize(
    ("splits", "values", "text"),
    [
        (np.array([0, 1]), [1.0], "nested_splits: expected a list with one array of splits"),
        ([0, 1], [1.0], r"nested_splits\[0\]: expected an array of row splits, got 0"),
        ([None], [1.0], r"nested_splits\[0\]"),
        ([], None, "values: expected an array, got None"),
    ],
)
def test_bad_parts(splits: object, values: object, text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=text):
        Ragged(splits, values)


def test_copies() -> None:
    ragged = Ragged([SPLITS], np.arange(3))
    for other in (copy.deepcopy(ragged), pickle.loads(pickle.dumps(ragged))):
        assert other.to_lists() == ragged.to_lists() == [[0, 1], [], [2]]
    pieces = raw_ops.RaggedTensorToVariant(rt_nested_splits=[SPLITS], rt_dense_values=[1, 2, 3], batched_input=True)
    again = pickle.loads(pickle.dumps(pieces))
    assert again.shape == (3,)
    assert [piece.values.tolist() for piece in again] == [[1, 2], [], [3]]


def deep() -> Ragged:
    return Ragged.from_lists([[[1], [2, 3]], [], [[], [4]], [[5, 6]]])


@pytest.mark.parametrize(
    "index",
    [
        slice(1, 3), slice(None), slice(None, None, 2), slice(None, None, -1), slice(-2, None), slice(3, 1),
        slice(9, 99), [0, 3], [-1, -1, 0], [], np.array([2]), np.uint8([1, 0]), [True, False, True, False],
        np.zeros(4, bool),
    ],
)  # fmt: skip
def test_slices_masks_and_numbers_of_rows(index: object) -> None:
    rows = np.empty(4, object)
    rows[:] = deep().to_lists()
    index_of_numpy = np.zeros(0, int) if isinstance(index, list) and not index else index
    expected = rows[index_of_numpy].tolist()
    for values in (np.arange(1, 7), raggrad.Tensor([1, 2, 3, 4, 5, 6], "qint8"), [1, 2, 3, 4, 5, 6]):
        chosen = Ragged(deep().nested_splits, values)[index]
        assert chosen.to_lists() == expected
        assert all(s[0] == 0 and s.dtype == np.int64 for s in chosen.nested_splits)
    assert Ragged([], np.arange(4))[index].values.tolist() == np.arange(4)[index_of_numpy].tolist()


def test_slices_share_memory() -> None:
    ragged = deep()
    assert np.shares_memory(ragged[2:].values, ragged.values)


def test_bad_masks_and_numbers() -> None:
    for index, text in [([True], "a mask of 1 rows for a Ragged of 4 rows"), ([0, 4], "index 4 is out of range"),
                        (np.array([-5]), "index -5 is out of range")]:  # fmt: skip
        with pytest.raises(IndexError, match=text):
            deep()[index]
    for splits in ([0, 3, 1, 6, 6], [0, 7, 7, 7, 7]):
        with pytest.raises(InvalidArgumentError, match=r"nested_splits\[0\]"):
            Ragged([np.array(splits)], np.arange(6))[::2]


def test_a_ragged_mask_chooses_elements() -> None:
    ragged = deep()
    odd = Ragged(ragged.nested_splits, ragged.values % 2 == 1)
    assert ragged[odd].to_lists() == [[[1], [3]], [], [[], []], [[5]]]
    assert ragged[Ragged.from_lists(odd.to_lists(), "bool")] == ragged[odd]
    for mask, text in [
        (Ragged(ragged.nested_splits, ragged.values), "a mask must have booleans, got int32"),
        (Ragged.from_lists([[True]]), "a mask needs the same splits as the array"),
    ]:
        with pytest.raises(InvalidArgumentError, match=text):
            ragged[mask]


def test_dtype() -> None:
    assert Ragged([[0, 1]], np.zeros(1, np.float16)).dtype == "half"
    assert Ragged([[0, 1]], raggrad.Tensor([1], "qint8")).dtype == "qint8"
    assert Ragged([[0, 1]], [b"a"]).dtype == "string"


def test_equality_is_by_value() -> None:
    ragged = Ragged([SPLITS], np.float32([1, 2, 3]))
    assert ragged == Ragged([SPLITS.astype(np.int32)], np.array([1, 2, 3]))
    assert ragged == Ragged([SPLITS.tolist()], [1, 2, 3])
    assert ragged != Ragged([SPLITS], np.float32([1, 2, 4]))
    assert ragged != Ragged([np.array([0, 1, 2, 3])], np.float32([1, 2, 3]))
    assert ragged != Ragged([], np.float32([1, 2, 3]))
    assert ragged != [[1, 2], [], [3]]
    assert Ragged([], [np.nan]) != Ragged([], [np.nan])
    with pytest.raises(TypeError, match="unhashable"):
        hash(ragged)


def test_weak_references() -> None:
    pieces = raw_ops.RaggedTensorToVariant(rt_nested_splits=[SPLITS], rt_dense_values=[1, 2, 3], batched_input=True)
    for value in (Ragged([SPLITS], [1, 2, 3]), pieces, pieces._elements):
        assert weakref.ref(value)() is value


@pytest.mark.parametrize("splits", [[1, 3], [0, 4], [0, 4, 3], [[0, 3]], []])
def test_conversions_do_not_trust_splits(splits: list[object]) -> None:
    ragged = Ragged([np.array(splits, np.int64)], np.arange(3))
    for convert in (ragged.to_lists, ragged.__arrow_c_array__):
        with pytest.raises(InvalidArgumentError, match=r"nested_splits\[0\]: expected a vector from 0 to 3"):
            convert()
