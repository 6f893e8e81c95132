"""Ragged data from and to Arrow packages: values, and addresses that show what is shared."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from conftest import FLOATS, INTEGERS, address, same_bits, values_of
from raggrad import Ragged, Tensor
from raggrad.errors import InvalidArgumentError

ARROW_TYPES = [t for t in FLOATS + INTEGERS if t != "bfloat16"]


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("dtype", ARROW_TYPES)
def test_arrow_numbers_are_shared(pa: Any, dtype: str, large: bool) -> None:
    values = values_of(dtype, 6)
    kind = pa.LargeListArray if large else pa.ListArray
    array = kind.from_arrays(pa.array([0, 2, 2, 6], pa.int64() if large else pa.int32()), pa.array(values))
    ragged = Ragged.from_arrow(array)
    assert same_bits(ragged.values, values)
    assert ragged.nested_splits[0].dtype == (np.int64 if large else np.int32)
    assert ragged.nested_splits[0].tolist() == [0, 2, 2, 6]
    assert address(ragged.values) == array.values.buffers()[1].address
    assert address(ragged.nested_splits[0]) == array.buffers()[1].address
    assert not ragged.values.flags.writeable
    back = ragged.to_arrow()
    assert back.equals(array)
    assert back.values.buffers()[1].address == address(ragged.values)
    assert back.buffers()[1].address == address(ragged.nested_splits[0])


def test_arrow_memory_outlives_its_array(pa: Any) -> None:
    array = pa.array([[1.0, 2.0], [3.0]])
    values = Ragged.from_arrow(array).values
    before = pa.total_allocated_bytes()
    del array
    gc.collect()
    assert values.tolist() == [1, 2, 3]
    assert pa.total_allocated_bytes() == before > 0
    del values
    gc.collect()
    assert pa.total_allocated_bytes() < before


def test_ours_outlives_the_ragged(pa: Any) -> None:
    array = Ragged([np.array([0, 1, 3])], np.arange(3.0)).to_arrow()
    gc.collect()
    assert array.to_pylist() == [[0], [1, 2]]
    held = [array.values]
    del array
    gc.collect()
    assert held[0].to_pylist() == [0, 1, 2]
    thread = threading.Thread(target=held.clear)  # lets go of the last reference
    thread.start()
    thread.join()


@pytest.mark.parametrize(("begin", "end"), [(0, 4), (1, 4), (2, 3), (1, 1), (4, 4), (0, 2)])
def test_arrow_slices_are_rebased(pa: Any, begin: int, end: int) -> None:
    rows = [[1, 2], [], [3, 4, 5], [6]]
    array = pa.array(rows)
    ragged = Ragged.from_arrow(array[begin:end])
    assert ragged.to_lists() == rows[begin:end]
    assert ragged.nested_splits[0][0] == 0
    if ragged.values.size:
        first = sum(map(len, rows[:begin]))
        assert address(ragged.values) == array.values.buffers()[1].address + 8 * first
    nested = pa.array([rows, [], rows[::-1], [[9]]])
    assert Ragged.from_arrow(nested[begin:end]).to_lists() == [rows, [], rows[::-1], [[9]]][begin:end]


def test_arrow_levels(pa: Any) -> None:
    rows = [[[[1.0], []], []], [], [[[2.0, 3.0]]]]
    ragged = Ragged.from_arrow(pa.array(rows))
    assert ragged.shape == (3, None, None, None)
    assert ragged.to_lists() == rows
    mixed = pa.array([[[1], [2, 3]], []], pa.list_(pa.large_list(pa.int8())))
    ragged = Ragged.from_arrow(mixed)
    assert [s.dtype for s in ragged.nested_splits] == [np.int64, np.int64]
    assert ragged.to_arrow().to_pylist() == [[[1], [2, 3]], []]


def test_arrow_fixed_size_lists(pa: Any) -> None:
    pairs = pa.list_(pa.list_(pa.float32(), 2))
    array = pa.array([[[1, 2], [3, 4]], [], [[5, 6]]], pairs)
    ragged = Ragged.from_arrow(array)
    assert ragged.shape == (3, None, 2)
    assert address(ragged.values) == array.values.values.buffers()[1].address
    assert ragged.to_arrow().equals(array)
    assert Ragged.from_arrow(array[1:]).to_lists() == [[], [[5, 6]]]
    dense = Ragged.from_arrow(pa.array([[1, 2, 3], [4, 5, 6]], pa.list_(pa.int16(), 3)))
    assert dense.ragged_rank == 0
    assert dense.values.tolist() == [[1, 2, 3], [4, 5, 6]]
    outside = pa.array([[[1], [2, 3]], [[], [4]]], pa.list_(pa.list_(pa.int8()), 2))
    assert Ragged.from_arrow(outside).to_lists() == [[[1], [2, 3]], [[], [4]]]
    assert [s.tolist() for s in Ragged.from_arrow(outside).nested_splits] == [[0, 2, 4], [0, 1, 3, 3, 4]]


@pytest.mark.parametrize("kind", ["string", "large_string", "binary", "large_binary", "string_view", "binary_view"])
def test_arrow_strings(pa: Any, kind: str) -> None:
    texts = ["", "a", "a text longer than twelve bytes", "ä", "another rather long one"]
    rows = [texts[:2], [], texts[2:]]
    array = pa.array(rows, pa.list_(getattr(pa, kind)()))
    for begin in range(3):
        assert Ragged.from_arrow(array[begin:]).to_lists() == [[t.encode() for t in row] for row in rows[begin:]]
    back = Ragged.from_arrow(array).to_arrow()
    assert back.type == pa.list_(pa.large_binary())
    assert back.to_pylist() == [[t.encode() for t in row] for row in rows]


def test_arrow_booleans(pa: Any) -> None:
    bits = [i % 3 == 0 for i in range(30)]
    array = pa.array([bits[:11], [], bits[11:]])
    for begin in range(3):
        ragged = Ragged.from_arrow(array[begin:])
        assert ragged.values.dtype == bool
        assert ragged.to_arrow().equals(pa.concat_arrays([array[begin:]]))


def test_arrow_nulls_are_refused_by_position(pa: Any) -> None:
    array = pa.array([[1], [2], None, [3], None])
    for begin, position in ((0, 2), (1, 1), (3, 1)):
        with pytest.raises(InvalidArgumentError, match=f"Ragged.from_arrow: list {position} is null"):
            Ragged.from_arrow(array[begin:])
    assert Ragged.from_arrow(array[:2]).to_lists() == [[1], [2]]
    with pytest.raises(InvalidArgumentError, match="inner list 3 is null"):
        Ragged.from_arrow(pa.array([[[1], []], [[2], None]]))
    with pytest.raises(InvalidArgumentError, match="value 9 is null"):
        Ragged.from_arrow(pa.array([list(range(9)), [None]]))


def test_arrow_empty(pa: Any) -> None:
    for kind in (pa.list_(pa.float32()), pa.large_list(pa.list_(pa.int8())), pa.list_(pa.string())):
        for nothing in (pa.array([], kind), pa.chunked_array([], kind)):
            ragged = Ragged.from_arrow(nothing)
            assert len(ragged) == 0
            assert all(s.tolist() == [0] for s in ragged.nested_splits)
            assert ragged.dtype == Ragged.from_arrow(pa.array([], kind)).dtype
    assert Ragged.from_lists([], "float32", ragged_rank=1).to_arrow().to_pylist() == []
    assert Ragged.from_lists([[], []], "float32").to_arrow().to_pylist() == [[], []]


def test_arrow_chunks(pa: Any) -> None:
    rows = [[[1], [2, 3]], [], [[4]], [[], [5]]]
    chunked = pa.chunked_array([rows[:1], rows[1:3], rows[3:]])
    assert Ragged.from_arrow(chunked).to_lists() == rows
    one = pa.chunked_array([rows])
    assert address(Ragged.from_arrow(one).values) == one.chunk(0).values.values.buffers()[1].address
    texts = pa.chunked_array([[["a"]], [["b", "c"], []]])
    assert Ragged.from_arrow(texts).to_lists() == [[b"a"], [b"b", b"c"], []]


def test_arrow_types_that_are_not_taken(pa: Any) -> None:
    for array, text in [
        (pa.array([[1, 2]], pa.list_(pa.timestamp("s"))), "tss:"),
        (pa.array([{"a": 1}]), r"\+s"),
        (pa.table({"a": [[1]]}), r"\+s"),
        (pa.array([[None]]), "value 0 is null|'n'"),
        (pa.array(["a", "b"]).dictionary_encode(), "dictionary"),
    ]:
        with pytest.raises(InvalidArgumentError, match=text):
            Ragged.from_arrow(array)
    with pytest.raises(InvalidArgumentError, match=r"expected an Arrow array .* got list"):
        Ragged.from_arrow([[1]])
    for values in (np.zeros(2, ml_dtypes.bfloat16), np.zeros(2, np.complex64), Tensor([1, 2], "qint8")):
        with pytest.raises(InvalidArgumentError, match="Arrow has no type"):
            Ragged([[0, 2]], values).to_arrow()
    with pytest.raises(InvalidArgumentError, match="a scalar is not an Arrow array"):
        Ragged([], 1.0).to_arrow()


def test_arrow_schema(pa: Any) -> None:
    ragged = Ragged([np.array([0, 2])], np.float32([1, 2]))
    assert pa.DataType._import_from_c_capsule(ragged.__arrow_c_schema__()) == pa.large_list(pa.float32())


def test_arrow_capsules_nobody_takes() -> None:
    values = np.float32([1, 2])
    seen = weakref.ref(values)
    capsules = Ragged([np.array([0, 2])], values).__arrow_c_array__()
    del values
    gc.collect()
    assert seen() is not None
    del capsules
    gc.collect()
    assert seen() is None


def test_polars() -> None:
    pl = pytest.importorskip("polars")
    series = pl.Series([[1.0, 2.0], [], [3.0]])
    ragged = Ragged.from_arrow(series)
    assert ragged.nested_splits[0].dtype == np.int64
    assert ragged.to_lists() == [[1, 2], [], [3]]
    assert pl.Series(ragged).to_list() == ragged.to_lists()
    words = pl.Series([["a", "a text longer than twelve bytes"], ["é"]])
    assert Ragged.from_arrow(words).to_lists() == [[t.encode() for t in row] for row in words.to_list()]


def test_nanoarrow() -> None:
    na = pytest.importorskip("nanoarrow")
    ragged = Ragged([np.int32([0, 2, 3])], np.float32([1, 2, 3]))
    array = na.Array(ragged)
    assert array.to_pylist() == [[1, 2], [3]]
    assert address(Ragged.from_arrow(array).values) == address(ragged.values)


def test_duckdb(pa: Any) -> None:
    duckdb = pytest.importorskip("duckdb")
    table = duckdb.sql("select [1, 2] as x union all select [3]").to_arrow_table()
    assert Ragged.from_arrow(table["x"]).to_lists() == [[1, 2], [3]]
