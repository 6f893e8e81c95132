"""VariantArray, and the operators on variants."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import raggrad
from conftest import QUANTIZED, RAGGED_TYPES, same_bits, values_of
from raggrad import Ragged, Tensor, VariantArray, raw_ops
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
        ([None], (1.5,), r"^VariantArray: shape: expected whole numbers, got \(1.5,\)$"),
        ([None], "x", "^VariantArray: shape: expected whole numbers, got 'x'$"),
        ([None], 1, "^VariantArray: shape: expected whole numbers, got 1$"),
    ],
)
def test_bad_variant_arrays(elements: object, shape: object, text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=text):
        VariantArray(elements, shape)


def test_errors_name_the_operator() -> None:
    uneven = [[one(1)], [one(2), one(3)]]
    with pytest.raises(InvalidArgumentError, match=r"^RaggedTensorToVariantGradient: encoded_ragged_grad: the lists"):
        gradient(uneven, 3)
    good = {"encoded_ragged": [one(1)], "input_ragged_rank": 0, "output_ragged_rank": 1, "Tvalues": "float32"}
    for change, text in [
        ({"encoded_ragged": uneven}, "encoded_ragged: the lists at depth 1 differ in length"),
        ({"input_ragged_rank": None}, "input_ragged_rank: expected an integer, got NoneType"),
        ({"input_ragged_rank": 0.0}, "input_ragged_rank: expected an integer, got float"),
        ({"output_ragged_rank": "1"}, "output_ragged_rank: expected an integer, got str"),
        ({"output_ragged_rank": 2**70}, r"output_ragged_rank must be .* output_ragged_rank: 9223372036854775807"),
    ]:
        with pytest.raises(InvalidArgumentError, match=f"^RaggedTensorFromVariant: {text}"):
            raw_ops.RaggedTensorFromVariant(**{**good, **change})


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

    cells = [
        one(1),
        Ragged([], [2.0, 3]),
        Ragged([], raggrad.Tensor([4.0])),
        Special([], np.float32([9, 5, 9])[1::2]),
        Ragged([], np.array([6], ">f4")),
        Ragged([], np.full((1,) * 6, 7, np.float32)),
    ]
    got = gradient(cells, 7)
    assert isinstance(got, np.ndarray)
    assert got.tolist() == [1, 2, 3, 4, 5, 6, 7]


def test_many_elements() -> None:
    count = 16_384
    arrays = [np.full(i % 5, i, np.float32) for i in range(count)]
    expected = np.concatenate(arrays)
    got = gradient([Ragged([], a) for a in arrays], len(expected))
    assert got.tobytes() == expected.tobytes()


def pieces_of(splits: list[object], values: object, batched: bool = True, **attributes: object) -> VariantArray:
    return raw_ops.RaggedTensorToVariant(
        rt_nested_splits=splits, rt_dense_values=values, batched_input=batched, **attributes
    )


def joined(variant: object, output_rank: int, dtype: str, **attributes: object) -> Any:
    arguments = {"input_ragged_rank": -1, "output_ragged_rank": output_rank, "Tvalues": dtype} | attributes
    return raw_ops.RaggedTensorFromVariant(encoded_ragged=variant, **arguments)


@pytest.mark.parametrize("splits_dtype", ["int32", "int64"])
@pytest.mark.parametrize("dtype", RAGGED_TYPES)
def test_there_and_back(dtype: str, splits_dtype: str) -> None:
    values = values_of(dtype, 4)
    given = Tensor(values, dtype) if dtype in QUANTIZED else values
    outer, inner = np.array([0, 2, 3], splits_dtype), np.array([0, 1, 1, 4], splits_dtype)
    pieces = pieces_of([outer, inner], given)
    assert pieces.shape == (2,)
    own = [Tensor(piece.nested_splits[0]) for piece in pieces]
    assert [splits.numpy().tolist() for splits in own] == [[0, 1, 1], [0, 3]]
    assert all(splits.dtype == splits_dtype for splits in own)
    for piece, part in zip(pieces, (values[:1], values[1:]), strict=True):
        assert Tensor(piece.values).dtype == dtype
        assert same_bits(Tensor(piece.values).numpy(), part)
        assert isinstance(piece.values, Tensor if dtype in QUANTIZED else np.ndarray)
    for variant in (pieces, list(pieces), VariantArray(list(pieces))):
        back = joined(variant, 2, dtype, Tsplits=splits_dtype)
        assert isinstance(back.output_nested_splits, list)
        assert same_bits(back.output_nested_splits[0], outer)
        assert same_bits(back.output_nested_splits[1], inner)
        assert same_bits(Tensor(back.output_dense_values).numpy(), values)
        gradient_of = raw_ops.RaggedTensorToVariantGradient(
            encoded_ragged_grad=variant, row_splits=outer, dense_values_shape=[4], Tvalues=dtype
        )
        assert same_bits(Tensor(gradient_of).numpy(), values)


def test_pieces_share_one_copy_of_the_values() -> None:
    values = np.arange(6.0)
    pieces = pieces_of([[0, 2, 2, 6]], values)
    first = pieces[0].values
    assert first.ctypes.data + 16 == pieces[2].values.ctypes.data
    assert not np.shares_memory(first, values)
    values[:] = 0
    assert first.tolist() == [0, 1]
    first[1] = 7  # views of the same memory, whenever they are made
    assert pieces[0].values.tolist() == [0, 7]
    del pieces
    assert first.tolist() == [0, 7]


def test_a_scalar_variant() -> None:
    whole = pieces_of([[0, 2, 3]], [1, 2, 3], batched=False)
    assert whole.shape == ()
    assert whole[()].to_lists() == [[1, 2], [3]]
    back = joined(whole, 1, "int32")
    assert back.output_nested_splits[0].tolist() == [0, 2, 3]
    assert pieces_of([], [[1.0, 2.0], [3.0, 4.0]])[1].values.tolist() == [3, 4]
    stacked = joined(pieces_of([], [[1.0, 2.0], [3.0, 4.0]]), 0, "float32")
    assert stacked.output_dense_values.tolist() == [[1, 2], [3, 4]]
    assert pieces_of([[0]], np.zeros((0, 3))).shape == (0,)


def test_literals_and_attributes() -> None:
    mixed = pieces_of([np.int32([0, 2]), [0, 1, 3]], [1.0, 2, 3], Tvalues="float32", Tsplits="int32")
    assert mixed[0].nested_splits[0].dtype == np.int32
    assert pieces_of([[0, 1], [0, 1]], [1])[0].nested_splits[0].dtype == np.int64
    with pytest.raises(InvalidArgumentError, match=r"Tsplits says int32 but rt_nested_splits\[0\] has dtype int64"):
        pieces_of([np.array([0, 1])], [1], Tsplits="int32")
    with pytest.raises(InvalidArgumentError, match="Tvalues says float32 but rt_dense_values has dtype float64"):
        pieces_of([[0, 1]], np.zeros(1), Tvalues="float32")
    with pytest.raises(InvalidArgumentError, match=r"rt_nested_splits: expected a list .* got ndarray"):
        pieces_of(np.array([0, 1]), [1])
    with pytest.raises(InvalidArgumentError, match=r"rt_nested_splits\[1\]: expected that of .* got int32"):
        pieces_of([np.array([0, 1]), np.int32([0, 1])], [1])
    literal = joined([Ragged([[0, 1]], [1.5])], 2, "float64", Tsplits="int32")
    assert literal.output_nested_splits[1].dtype == np.int32
    assert literal.output_dense_values.dtype == np.float64
    with pytest.raises(InvalidArgumentError, match="Tvalues: expected a dtype, got None"):
        joined([Ragged([], [1.5])], 1, None)
    with pytest.raises(InvalidArgumentError, match=r"encoded_ragged\[0\].nested_splits\[0\]: expected int64, got text"):
        joined([Ragged([["x"]], [1.5])], 2, "float32")


def test_errors_of_from_variant() -> None:
    with pytest.raises(InvalidArgumentError, match=r"element at index 1 doesn't hold .*\[encoded_ragged\[1\] is"):
        joined([one(1), None], 1, "float32")
    with pytest.raises(InvalidArgumentError, match=r"expected a raggrad\.VariantArray"):
        joined(np.zeros(2), 1, "float32")
    with pytest.raises(InvalidArgumentError, match="Expected values Tensor dtype: double, found: float"):
        joined([one(1)], 1, "float64")
    with pytest.raises(InvalidArgumentError, match=r"\(2,\) does not hold|does not fit"):
        joined(VariantArray([one(1)], (2,)), 1, "float32")


def test_many_pieces() -> None:
    splits = np.arange(0, 100_001)
    values = np.arange(200_000, dtype=np.int32).reshape(-1, 2)
    pieces = pieces_of([splits], values)
    assert len(pieces) == 100_000
    assert pieces[99_999].values.tolist() == [[199_998, 199_999]]
    assert pieces[-1].values.tolist() == pieces[99_999].values.tolist()
    with pytest.raises(IndexError):
        pieces[100_000]
    back = joined(pieces, 1, "int32")
    assert same_bits(back.output_dense_values, values)
    assert same_bits(back.output_nested_splits[0], splits)
