"""Ragged, VariantArray, and variants as inputs."""

from __future__ import annotations

import numpy as np
import pytest
import raggrad
from raggrad import Ragged, VariantArray
from raggrad.errors import InvalidArgumentError


def gradient(variant: object, rows: int, splits: object = None) -> np.ndarray:
    return raggrad.raw_ops.RaggedTensorToVariantGradient(
        encoded_ragged_grad=variant,
        row_splits=[0] if splits is None else splits,
        dense_values_shape=[rows],
        Tvalues="float32",
    )


def one(*values: float) -> Ragged:
    return Ragged([], np.float32(values))


def test_ragged() -> None:
    splits, values = np.array([0, 1, 3]), np.arange(3)
    ragged = Ragged([splits], values)
    assert ragged.nested_splits[0] is splits
    assert ragged.values is values
    assert ragged.ragged_rank == 1
    assert Ragged((), values).ragged_rank == 0
    assert repr(ragged) == "Ragged(nested_splits=[[0, 1, 3]:int64], values=[0, 1, 2]:int64)"
    assert "..." in repr(Ragged([], np.zeros(100)))


@pytest.mark.parametrize(
    ("splits", "values", "text"),
    [
        (np.array([0, 1]), [1.0], "nested_splits: expected a list with one array of splits"),
        ([0, 1], [1.0], r"nested_splits\[0\]: expected an array of row splits, got 0"),
        ([None], [1.0], r"nested_splits\[0\]"),
        ([], None, "values: expected an array, got None"),
    ],
)
def test_bad_ragged(splits: object, values: object, text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=text):
        Ragged(splits, values)


def test_variant_array_of_rank_one() -> None:
    a, b = one(1), one(2)
    array = VariantArray([a, None, b])
    assert array.shape == (3,)
    assert len(array) == 3
    assert array[0] is a
    assert array[1] is None
    assert array[-1] is b
    assert list(array) == [a, None, b]
    with pytest.raises(IndexError, match="index 3 is out of range"):
        array[3]
    with pytest.raises(IndexError, match="2 indices"):
        array[0, 0]


def test_variant_array_of_rank_two() -> None:
    cells = [one(i) for i in range(6)]
    nested = VariantArray([cells[:3], cells[3:]])
    flat = VariantArray(cells, shape=(2, 3))
    for array in (nested, flat):
        assert array.shape == (2, 3)
        assert array[1, 2] is cells[5]
        assert array[1].shape == (3,)
        assert array[1][0] is cells[3]
        assert [row.shape for row in array] == [(3,), (3,)]
        assert array[()].shape == (2, 3)
    assert VariantArray([], shape=(0, 3)).shape == (0, 3)
    assert VariantArray([[], []]).shape == (2, 0)


def test_scalar_variant_array() -> None:
    cell = one(1)
    for array in (VariantArray(cell), VariantArray([cell], shape=())):
        assert array.shape == ()
        assert array[()] is cell
        with pytest.raises(TypeError, match="no length"):
            len(array)
    assert VariantArray(None)[()] is None
    assert repr(VariantArray(None)) == "VariantArray(None, shape=())"


def test_repr_of_variant_arrays() -> None:
    text = "VariantArray([Ragged(nested_splits=[], values=[1.]:float32), None], shape=(2,))"
    assert repr(VariantArray([one(1), None])) == text
    assert "... 94 more" in repr(VariantArray([None] * 100))


@pytest.mark.parametrize(
    ("elements", "shape", "text"),
    [
        ([1], None, "element 0: expected a Ragged, or None for a missing element, got int"),
        ([None, "x"], None, "element 1: .* got str"),
        ([None] * 3, (2,), r"shape \(2,\) does not hold 3 elements"),
        ([None], (-1, -1), "does not hold"),
        ([[None], [None, None]], None, "depth 1 differ in length"),
        ([[None], None], None, "depth 1 differ in length"),
        (np.zeros(3), None, "element 0"),
    ],
)
def test_bad_variant_arrays(elements: object, shape: object, text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=text):
        VariantArray(elements, shape)


def test_variants_as_inputs() -> None:
    cells = [one(1, 2), one(3), one(), one(4)]
    for variant in (
        VariantArray(cells),
        VariantArray(cells, (2, 2)),
        cells,
        tuple(cells),
        [cells[:2], cells[2:]],
        [[[cell] for cell in cells]],
    ):
        assert gradient(variant, 4).tolist() == [1, 2, 3, 4]
    assert gradient(one(7, 8), 99).tolist() == [7, 8]  # exactly one element: its values as they are
    assert gradient(None, 3, splits=0).tolist() == [0, 0, 0]
    assert gradient([None, one(5)], 3, splits=[0, 2, 3]).tolist() == [0, 0, 5]


@pytest.mark.parametrize(
    ("variant", "text"),
    [
        (np.zeros(2), "expected a raggrad.VariantArray, or a list of raggrad.Ragged and None, got ndarray"),
        ([one(1), 3], r"encoded_ragged_grad\[1\]: expected a raggrad.Ragged, .* got int"),
        ([one(1), Ragged([], np.zeros(1))], "expected values of dtype float32, got float64"),
        ([one(1), Ragged([], "text")], r"encoded_ragged_grad\[1\].values: expected float32, got text"),
    ],
)
def test_bad_variants_as_inputs(variant: object, text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=text):
        gradient(variant, 2)


def test_values_of_all_kinds_in_one_variant() -> None:
    class Special(Ragged):
        pass

    cells = [one(1), Ragged([], [2.0, 3]), Ragged([], raggrad.Tensor([4.0])), Special([], np.float32([9, 5, 9])[1::2])]
    got = gradient(cells, 5)
    assert isinstance(got, np.ndarray)
    assert got.tolist() == [1, 2, 3, 4, 5]


def test_many_elements() -> None:
    count = 16_384
    arrays = [np.full(i % 5, i, np.float32) for i in range(count)]
    expected = np.concatenate(arrays)
    got = gradient([Ragged([], a) for a in arrays], len(expected))
    assert got.tobytes() == expected.tobytes()
