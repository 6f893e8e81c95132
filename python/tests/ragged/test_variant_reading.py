"""Reading the elements of variants: by several threads where they are plain, and by Python's rules everywhere else."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import raggrad
from conftest import same_bits
from raggrad import Ragged, Tensor, VariantArray, raw_ops
from raggrad.errors import InvalidArgumentError

MANY = 5000  # elements: threads read more than 2047
PLACES = [0, 1, 1023, 2500, MANY - 1]


@pytest.fixture(params=[1, 2, 7], autouse=True)
def threads(request: pytest.FixtureRequest, restore_threads: None) -> Iterator[int]:
    raggrad.set_num_threads(request.param)
    yield request.param


class Special(Ragged):
    pass


class Subarray(np.ndarray):
    pass


class Noisy:
    """An array that runs a function when it is read."""

    def __init__(self, values: Sequence[float], when_read: Any) -> None:
        self.values, self.when_read = np.float32(values), when_read

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        self.when_read()
        return self.values


def gradient(elements: Any, rows: int, dtype: str = "float32", splits: Any = 0) -> Any:
    return raw_ops.RaggedTensorToVariantGradient(
        encoded_ragged_grad=elements, row_splits=splits, dense_values_shape=[rows], Tvalues=dtype
    )


def joined(elements: Any, levels: int, dtype: str = "float32", splits: str = "int64") -> Any:
    return raw_ops.RaggedTensorFromVariant(
        encoded_ragged=elements, input_ragged_rank=levels, output_ragged_rank=levels + 1, Tvalues=dtype, Tsplits=splits
    )


def of_one_kind(kind: int, i: int) -> tuple[Any, list[float]]:
    """An element of the i-th of the kinds that can be read, and its values."""
    a, b = float(i), float(-i)
    frozen = np.float32([a, b])
    frozen.flags.writeable = False
    kinds = [
        (Ragged([], np.float32([a, b])), [a, b]),
        (Special([], np.float32([a])), [a]),
        (Ragged([], np.zeros(0, np.float32)), []),
        (Ragged([], np.float32([a]).view(Subarray)), [a]),
        (Ragged([], np.float32([a, 7, b])[::2]), [a, b]),
        (Ragged([], np.float32(a)), [a]),
        (Ragged([], np.array(a, np.float32)), [a]),
        (Ragged([], np.array([a, b], ">f4")), [a, b]),
        (Ragged([], [a, b, 5.0]), [a, b, 5]),
        (Ragged([], Tensor(np.float32([a]))), [a]),
        (Ragged([], np.full((1,) * 6, a, np.float32)), [a]),
        (Ragged([], np.full((1, 2, 1, 1), a, np.float32)), [a, a]),
        (Ragged([], np.zeros((0, 1, 3), np.float32)), []),
        (Ragged([], np.float32([[a], [b]]).T), [a, b]),
        (Ragged([], np.arange(i, i + 4, dtype=np.float32)[1:3]), [a + 1, a + 2]),
        (Ragged([], frozen), [a, b]),
        (Ragged([], Noisy([a], lambda: None)), [a]),
    ]
    return kinds[kind % len(kinds)]


@pytest.mark.parametrize("count", [0, 1, 40, 2047, 2048, MANY])
def test_kinds_in_any_order(count: int) -> None:
    order = np.random.default_rng(count).integers(17, size=count)
    pairs = [of_one_kind(kind, i) for i, kind in enumerate(order)]
    expected = np.float32([value for _, values in pairs for value in values])
    for elements in ([ragged for ragged, _ in pairs], VariantArray([ragged for ragged, _ in pairs], (count,))):
        got = gradient(elements, len(expected))
        assert np.asarray(got).ravel().tolist() == expected.tolist()


def test_missing_elements() -> None:
    lengths = np.random.default_rng(1).integers(4, size=MANY)
    splits = np.concatenate([[0], np.cumsum(lengths)])
    values = np.arange(splits[-1], dtype=np.float32)
    elements: list[Any] = [Ragged([], piece) for piece in np.split(values, splits[1:-1])]
    expected = values.copy()
    for i in range(0, MANY, 3):
        elements[i] = None
        expected[splits[i] : splits[i + 1]] = 0
    assert same_bits(gradient(elements, len(values), splits=splits), expected)
    assert same_bits(gradient([None] * MANY, len(values), splits=splits), np.zeros_like(values))


@pytest.mark.parametrize("dtype", ["bfloat16", "int8", "complex128", "bool", "string"])
def test_other_types(dtype: str) -> None:
    made = {"bfloat16": ml_dtypes.bfloat16, "string": object}.get(dtype, dtype)
    values = np.arange(3 * MANY) % 2
    array = np.array([b"%d" % v for v in values], object) if dtype == "string" else values.astype(made)
    got = gradient([Ragged([], piece) for piece in np.split(array, MANY)], len(array), dtype)
    assert same_bits(got, array)


def test_the_first_element_decides_what_the_result_is() -> None:
    arrays = [Ragged([], np.float32([i])) for i in range(MANY)]
    tensor = Ragged([], Tensor(np.float32([1])))
    assert type(gradient([*arrays, tensor], MANY + 1)) is np.ndarray
    assert type(gradient([tensor, *arrays], MANY + 1)) is Tensor
    assert type(gradient([None, tensor, *arrays], MANY + 1, splits=[0] * (MANY + 3))) is Tensor
    assert type(gradient([arrays[0], tensor, *arrays], MANY + 2)) is np.ndarray


BAD = [
    (3, r"\[{}\]: expected a raggrad.Ragged, or None for a missing element, got int"),
    (Ragged([], "text"), r"\[{}\].values: expected float32, got text"),
    (Ragged([], np.array([{}], object)), r"\[{}\].values: an array of objects must hold bytes"),
    (Ragged([], np.zeros(1, "M8[s]")), r"\[{}\].values is a NumPy array of dtype datetime64"),
    (Ragged([], np.ma.array([1.0])), r"\[{}\].values: masked arrays are not taken"),
    (Ragged([], object()), r"\[{}\].values: expected an array"),
    (Ragged([], np.zeros(1)), r"\[{}\]: expected values of dtype float32, got float64"),
    (Special([], np.zeros(1)), r"\[{}\]: expected values of dtype float32, got float64"),
]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(("bad", "text"), BAD)
def test_errors_name_their_element(bad: Any, text: str, place: int) -> None:
    elements: list[Any] = [Ragged([], np.float32([i])) for i in range(MANY)]
    elements[place] = bad
    with pytest.raises(InvalidArgumentError, match="encoded_ragged_grad" + text.format(place)):
        gradient(elements, MANY)


def test_the_first_error_is_reported() -> None:
    for first, (bad, text) in zip(range(100, MANY, 700), BAD[:6], strict=False):
        elements: list[Any] = [Ragged([], np.float32([i])) for i in range(MANY)]
        elements[first - 50] = Ragged([], [1.0])  # left to the same thread, and good
        elements[first - 60] = Ragged([], np.zeros(1))  # found by the operator, after all have been read
        elements[first] = bad
        for place in range(first + 1, MANY, 500):
            elements[place] = BAD[place // 500 % 6][0]
        with pytest.raises(InvalidArgumentError, match="encoded_ragged_grad" + text.format(first)):
            gradient(elements, MANY)


@pytest.mark.parametrize("place", PLACES)
def test_attributes_that_are_gone(place: int) -> None:
    elements = [Ragged([[0, 1]], np.float32([i])) for i in range(MANY)]
    del elements[place].values
    with pytest.raises(AttributeError, match="values"):
        gradient(elements, MANY)
    elements[place].values = np.float32([place])
    assert same_bits(gradient(elements, MANY), np.arange(MANY, dtype=np.float32))
    del elements[place].nested_splits
    assert same_bits(gradient(elements, MANY), np.arange(MANY, dtype=np.float32))  # does not need them
    with pytest.raises(AttributeError, match="nested_splits"):
        joined(elements, 1)


@pytest.mark.parametrize("levels", [0, 1, 2])
def test_splits(levels: int) -> None:
    values = np.arange(2 * MANY, dtype=np.float32)
    splits = [np.int64([0, 1, 2]), np.int64([0, 0, 2])][:levels]
    elements = [Ragged(splits, piece) for piece in np.split(values, MANY)]
    expected = joined(elements[:1] * MANY, levels).output_nested_splits
    for i, element in enumerate(elements):
        if i % 7 == 0:
            element.nested_splits = tuple(splits)
        if i % 11 == 0:
            element.nested_splits = [list(level) for level in splits]
        if i % 13 == 0:
            element.nested_splits = [np.repeat(level, 2)[::2] for level in splits]
        if i % 17 == 0:
            element.values = Tensor(element.values)
        if i % 19 == 0:
            element.nested_splits = [Tensor(level) for level in splits]
    for part in (elements, elements[1:], elements[7:]):
        got = joined(part, levels)
        assert len(got.output_nested_splits) == levels + 1
        for mine, theirs in zip(got.output_nested_splits, expected, strict=True):
            assert same_bits(mine, theirs[: len(mine)])
        assert same_bits(got.output_dense_values, values[-2 * len(part) :])


@pytest.mark.parametrize("levels", [1, 2, 9, 20])
def test_numbers_of_levels_that_differ(levels: int) -> None:
    usual = [np.int64([0, 1])] * 2
    elements = [Ragged(usual, np.float32([i])) for i in range(MANY)]
    for place in (0, 2500):
        changed = list(elements)
        changed[place] = Ragged([np.int64([0, 1])] * levels, np.float32([0]))
        if levels == 2:
            assert joined(changed, 2).output_dense_values.shape == (MANY,)
            continue
        text = rf"ragged_rank={levels}\.  Expected ragged_rank=2\. \[encoded_ragged\[{place}\]"
        with pytest.raises(InvalidArgumentError, match=text):
            joined(changed, 2)
    assert joined([Ragged([np.int64([0, 1])] * levels, np.float32([7]))] * MANY, levels).output_dense_values[-1] == 7


@pytest.mark.parametrize("place", PLACES)
def test_errors_of_splits_name_their_element(place: int) -> None:
    elements = [Ragged([np.int64([0, 1]), np.int64([0, 1])], np.float32([i])) for i in range(MANY)]
    elements[place].nested_splits = [np.int64([0, 1]), "text"]
    with pytest.raises(InvalidArgumentError, match=rf"encoded_ragged\[{place}\].nested_splits\[1\]: expected int64"):
        joined(elements, 2)
    elements[place].nested_splits = [np.int32([0, 1])] * 2
    with pytest.raises(InvalidArgumentError, match=rf"encoded_ragged\[{place}\].*int32"):
        joined(elements, 2)


def references(elements: Sequence[Ragged]) -> list[int]:
    return [sys.getrefcount(element.values) for element in elements]


@pytest.mark.parametrize("slices", [False, True])
def test_all_references_are_given_back(slices: bool) -> None:
    values = np.arange(2 * MANY, dtype=np.float32)
    arrays = np.split(values, MANY) if slices else [piece.copy() for piece in np.split(values, MANY)]
    splits = np.int64([0, 2])
    elements = [Ragged([splits], array) for array in arrays]
    before = references(elements), sys.getrefcount(values), sys.getrefcount(splits), sys.getrefcount(None)
    for _ in range(3):
        gradient(elements, 2 * MANY)
        joined(elements, 1)
        with pytest.raises(InvalidArgumentError):
            gradient([*elements, 3], 2 * MANY)  # type: ignore[list-item]
        with pytest.raises(InvalidArgumentError):
            gradient(elements, 1)
    gc.collect()
    after = references(elements), sys.getrefcount(values), sys.getrefcount(splits), sys.getrefcount(None)
    assert after[:3] == before[:3]
    assert abs(after[3] - before[3]) < 1000


@pytest.mark.parametrize("slices", [False, True])
def test_arrays_live_on_when_python_code_drops_them(slices: bool) -> None:
    expected = np.arange(8 * MANY, dtype=np.float32)
    own = np.split(expected.copy(), MANY)
    elements = [Ragged([np.int64([0, 8])], array if slices else array.copy()) for array in own]
    del own

    def drop_all() -> None:
        for element in elements[:-1]:
            element.values, element.nested_splits = None, None
        gc.collect()
        others = [np.full(8, -1, np.float32) for _ in range(2 * MANY)]  # in the memory of arrays that are gone
        others.extend(np.full(8 * MANY, -1, np.float32) for _ in range(4))

    elements.append(Ragged([np.int64([0, 1])], Noisy([5], drop_all)))
    got = joined(elements, 1)
    assert same_bits(got.output_dense_values, np.append(expected, np.float32(5)))
    assert got.output_nested_splits[1].tolist() == [*range(0, 8 * MANY + 1, 8), 8 * MANY + 1]


def test_arrays_live_on_when_another_thread_drops_them() -> None:
    expected = np.arange(64 * MANY, dtype=np.float32)
    stop = threading.Event()
    elements: list[Ragged] = []

    def replace() -> None:
        while not stop.is_set():
            for i, element in enumerate(elements):
                element.values = np.arange(64 * i, 64 * i + 64, dtype=np.float32)

    elements = [Ragged([], piece.copy()) for piece in np.split(expected, MANY)]
    other = threading.Thread(target=replace)
    other.start()
    try:
        for _ in range(50):
            assert same_bits(gradient(elements, len(expected)), expected)
    finally:
        stop.set()
        other.join()


def test_a_list_that_python_code_shortens() -> None:
    elements: list[Any] = [Ragged([], np.float32([i])) for i in range(MANY)]
    elements[10] = Ragged([], Noisy([10], elements.clear))
    assert same_bits(gradient(elements, MANY), np.arange(MANY, dtype=np.float32))
    elements = [Ragged([], Noisy([i], lambda: elements.clear())) for i in range(MANY)]
    with pytest.raises(IndexError):
        gradient(elements, MANY)


def test_the_same_array_many_times() -> None:
    array = np.float32([1, 2])
    before = sys.getrefcount(array)
    assert gradient([Ragged([], array)] * MANY, 2 * MANY).tolist() == [1, 2] * MANY
    assert sys.getrefcount(array) == before
