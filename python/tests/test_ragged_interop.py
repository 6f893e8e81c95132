"""Ragged data from and to the real packages: values, and by address that nothing was copied."""

from __future__ import annotations

import doctest
import gc
import os
import threading
import weakref
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from conftest import FLOATS, INTEGERS, ROOT, same_bits, values_of
from raggrad import Ragged, Tensor, raw_ops
from raggrad.errors import InvalidArgumentError

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

ARROW_TYPES = [t for t in FLOATS + INTEGERS if t != "bfloat16"]


def address(array: Any) -> int:
    return np.asarray(array).ctypes.data


# Arrow


@pytest.fixture
def pa() -> Any:
    return pytest.importorskip("pyarrow")


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
    with pytest.raises(InvalidArgumentError, match="a scalar is no Arrow array"):
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


# awkward


@pytest.fixture
def ak() -> Any:
    return pytest.importorskip("awkward")


@pytest.mark.parametrize("splits_dtype", [np.int32, np.int64])
@pytest.mark.parametrize("dtype", [t for t in FLOATS + INTEGERS if t != "bfloat16"] + ["bool", "complex64"])
def test_awkward_is_shared_both_ways(ak: Any, dtype: str, splits_dtype: Any) -> None:
    ragged = Ragged([np.array([0, 2, 2, 6], splits_dtype)], values_of(dtype, 6))
    array = ragged.to_awkward()
    assert array.tolist() == ragged.to_lists()
    assert address(array.layout.content.data) == address(ragged.values)
    back = Ragged.from_awkward(array)
    assert same_bits(back.values, ragged.values)
    assert same_bits(back.nested_splits[0], ragged.nested_splits[0])
    assert address(back.values) == address(ragged.values)
    assert address(back.nested_splits[0]) == address(ragged.nested_splits[0])


def test_awkward_levels_slices_and_layouts(ak: Any) -> None:
    rows = [[[1, 2], []], [], [[3]], [[4, 5, 6]]]
    array = ak.Array(rows)
    assert Ragged.from_awkward(array).to_lists() == rows
    assert Ragged.from_awkward(array[2:]).to_lists() == rows[2:]
    assert Ragged.from_awkward(array[[3, 0]]).to_lists() == [rows[3], rows[0]]
    assert Ragged.from_awkward(array[::2]).to_lists() == rows[::2]
    assert Ragged.from_awkward(array[:, ::-1]).to_lists() == [row[::-1] for row in rows]
    assert Ragged.from_awkward(ak.Array([[], []])).to_lists() == [[], []]
    assert Ragged.from_awkward(ak.Array([])).shape == (0,)
    assert Ragged.from_awkward(ak.unflatten(np.zeros((5, 2)), [2, 3])).shape == (2, None, 2)
    regular = ak.to_regular(ak.Array([[[1], [2, 3]], [[], [4]]]), axis=1)
    assert Ragged.from_awkward(regular).to_lists() == [[[1], [2, 3]], [[], [4]]]
    assert Ragged.from_awkward(ak.to_regular(ak.Array([[1, 2], [3, 4]]))).values.tolist() == [[1, 2], [3, 4]]
    assert Ragged.from_awkward(ak.mask(ak.Array([[1], [2]]), [True, True])).to_lists() == [[1], [2]]


def test_awkward_strings(ak: Any) -> None:
    rows = [["a", "bc"], [], ["d\0", ""]]
    expected = [[t.encode() for t in row] for row in rows]
    assert Ragged.from_awkward(ak.Array(rows)).to_lists() == expected
    assert Ragged.from_awkward(ak.Array(rows)[1:]).to_lists() == expected[1:]
    ragged = Ragged.from_lists(rows)
    assert ragged.to_awkward().tolist() == expected
    assert Ragged.from_awkward(ragged.to_awkward()).to_lists() == expected
    assert Ragged.from_lists([[], []], "string").to_awkward().tolist() == [[], []]
    pairs = Ragged([[0, 1, 2]], np.array([[b"a", b"b"], [b"c", b"d"]], object))
    assert pairs.to_awkward().tolist() == [[[b"a", b"b"]], [[b"c", b"d"]]]


def test_awkward_that_cannot_be(ak: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="list 1 is missing"):
        Ragged.from_awkward(ak.Array([[1], None, [2]]))
    with pytest.raises(InvalidArgumentError, match="inner list 2 is missing"):
        Ragged.from_awkward(ak.Array([[1, 2], [None]]))
    with pytest.raises(InvalidArgumentError, match="expected lists of numbers or strings"):
        Ragged.from_awkward(ak.Array([{"x": 1}]))
    with pytest.raises(InvalidArgumentError, match="expected lists of numbers or strings"):
        Ragged.from_awkward(ak.Array([[1], ["a"]]))


# torch


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch")


@pytest.mark.parametrize("dtype", [*FLOATS, "int64", "uint8"])
def test_torch_jagged_is_shared_both_ways(torch: Any, dtype: str) -> None:
    values = torch.from_dlpack(Tensor(values_of(dtype, 6))).reshape(6, 1)
    offsets = torch.tensor([0, 2, 2, 6])
    ragged = Ragged.from_torch(torch.nested.nested_tensor_from_jagged(values, offsets))
    assert ragged.shape == (3, None, 1)
    assert ragged.values.data_ptr() == values.data_ptr()
    assert ragged.nested_splits[0].data_ptr() == offsets.data_ptr()
    back = ragged.to_torch()
    assert back.values().data_ptr() == values.data_ptr()
    ours = Ragged([np.array([0, 2, 2, 6])], values_of(dtype, 6))
    assert ours.to_torch().values().data_ptr() == address(ours.values)
    assert repr(ragged).endswith("shape=[3, (None), 1])")


def test_torch_layouts(torch: Any) -> None:
    rows = [torch.arange(2.0), torch.arange(0.0), torch.arange(3.0)]
    expected = [row.tolist() for row in rows]
    for layout in (torch.jagged, torch.strided):
        assert Ragged.from_torch(torch.nested.nested_tensor(rows, layout=layout)).to_lists() == expected
    base, starts, lengths = torch.arange(12.0).reshape(3, 4), torch.tensor([0, 1, 2]), torch.tensor([2, 0, 1])
    holes = torch.nested.narrow(base, 1, starts, lengths, layout=torch.jagged)
    assert holes.lengths() is not None
    assert Ragged.from_torch(holes).to_lists() == [[0, 1], [], [10]]


def test_torch_gradients_flow(torch: Any) -> None:
    values = torch.ones(3, requires_grad=True)
    nested = torch.nested.nested_tensor_from_jagged(values, torch.tensor([0, 1, 3]))
    Ragged.from_torch(nested).values.sum().backward()
    assert values.grad.tolist() == [1, 1, 1]


def test_torch_that_cannot_be(torch: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="expected a nested tensor"):
        Ragged.from_torch(torch.zeros(3))
    with pytest.raises(InvalidArgumentError, match="expected one level of splits"):
        Ragged([[0, 1], [0, 1]], [1.0]).to_torch()
    transposed = torch.nested.nested_tensor([torch.zeros(2, 3), torch.zeros(1, 3)], layout=torch.jagged).transpose(1, 2)
    with pytest.raises(InvalidArgumentError, match="ragged dimension"):
        Ragged.from_torch(transposed)


# TensorFlow


@pytest.fixture
def tf() -> Any:
    return pytest.importorskip("tensorflow")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "half", "int8", "string", "bool", "complex64"])
def test_tensorflow(tf: Any, dtype: str) -> None:
    values = values_of(dtype, 3)
    ragged = Ragged([np.array([0, 1, 1]), np.array([0, 3])], values)
    back = ragged.to_tf()
    assert isinstance(back, tf.RaggedTensor)
    assert back.ragged_rank == 2
    again = Ragged.from_tf(back)
    assert again.values is back.flat_values
    assert same_bits(Tensor(again.values).numpy(), values)
    assert again.to_lists() == ragged.to_lists() == back.to_list()
    assert again.to_tf().flat_values is back.flat_values


def test_tensorflow_without_splits_and_quantized(tf: Any) -> None:
    dense = tf.constant([[1, 2]])
    assert Ragged.from_tf(dense).values is dense
    assert Ragged([], np.float32([1])).to_tf().numpy().tolist() == [1]
    assert Ragged([[0, 2]], Tensor([1, 2], "qint8")).to_tf().dtype == tf.qint8
    with pytest.raises(InvalidArgumentError, match=r"expected a tf.RaggedTensor, got list"):
        Ragged.from_tf([[1]])


# SciPy


@pytest.fixture
def sparse() -> Any:
    return pytest.importorskip("scipy.sparse")


def test_scipy_csr_is_shared(sparse: Any) -> None:
    matrix = sparse.csr_array(np.float32([[0, 1, 2], [0, 0, 0], [3, 0, 4]]))
    ragged = Ragged.from_scipy(matrix)
    columns = Ragged.from_scipy(matrix, "indices")
    assert ragged.to_lists() == [[1, 2], [], [3, 4]]
    assert columns.to_lists() == [[1, 2], [], [0, 2]]
    assert address(ragged.values) == address(matrix.data)
    assert address(ragged.nested_splits[0]) == address(matrix.indptr)
    assert address(columns.values) == address(matrix.indices)
    back = ragged.to_scipy(columns, 3)
    assert (back.toarray() == matrix.toarray()).all()
    assert address(back.data) == address(matrix.data)
    for other in (matrix.tocsc(), matrix.tocoo(), sparse.csr_matrix(matrix)):
        assert Ragged.from_scipy(other).to_lists() == ragged.to_lists()


def test_scipy_that_cannot_be(sparse: Any) -> None:
    ragged = Ragged([[0, 2]], np.float32([1, 2]))
    with pytest.raises(InvalidArgumentError, match=r"columns: expected shape \(2,\), got \(1,\)"):
        ragged.to_scipy([0], 3)
    with pytest.raises(InvalidArgumentError, match="expected one level of splits over a vector"):
        Ragged([[0, 2]], np.zeros((2, 2))).to_scipy([0, 1], 3)
    with pytest.raises(InvalidArgumentError, match=r"expected a scipy\.sparse matrix, got ndarray"):
        Ragged.from_scipy(np.zeros((2, 2)))
    with pytest.raises(InvalidArgumentError, match="part: expected 'data' or 'indices'"):
        Ragged.from_scipy(sparse.csr_array((2, 2)), "columns")


# DLPack, and packages that are not there


def test_dlpack_of_splits_and_values() -> None:
    jnp = pytest.importorskip("jax.numpy")
    ragged = Ragged([np.int32([0, 2, 3])], np.zeros(3, ml_dtypes.bfloat16))
    for part in (ragged.values, ragged.nested_splits[0]):
        shared = jnp.from_dlpack(Tensor(part))
        assert shared.unsafe_buffer_pointer() == address(part) or address(part) % 64  # jax wants aligned memory
        assert same_bits(np.asarray(shared), part)


def test_dlpack_of_arrow_memory(pa: Any, torch: Any) -> None:
    ragged = Ragged.from_arrow(pa.array([[1.0, 2.0], [3.0]]))
    for part in (ragged.values, ragged.nested_splits[0]):
        assert torch.from_dlpack(part).data_ptr() == address(part)


def test_operators_take_what_was_shared(pa: Any) -> None:
    ragged = Ragged.from_arrow(pa.array([[[1.0], [2.0, 3.0]], [], [[4.0]]]))
    pieces = raw_ops.RaggedTensorToVariant(
        rt_nested_splits=ragged.nested_splits, rt_dense_values=ragged.values, batched_input=True
    )
    assert [piece.to_lists() for piece in pieces] == ragged.to_lists()


@pytest.mark.parametrize("package", ["torch", "jax", "tensorflow"])
def test_pieces_are_of_the_kind_of_the_values(package: str) -> None:
    framework = pytest.importorskip(package)
    make = {
        "torch": lambda x: framework.tensor(x), "jax": lambda x: framework.numpy.asarray(x),
        "tensorflow": lambda x: framework.constant(x),
    }[package]  # fmt: skip
    values = make(np.float32([1, 2, 3]))
    splits = [make(np.int32([0, 2, 2])), make(np.int32([0, 1, 3]))]
    pieces = raw_ops.RaggedTensorToVariant(rt_nested_splits=splits, rt_dense_values=values, batched_input=True)
    piece = pieces[0]
    assert type(piece.values) is type(values)
    assert type(piece.nested_splits[0]) is type(values)
    del pieces
    gc.collect()
    assert piece.to_lists() == [[1], [2, 3]]
    again = raw_ops.RaggedTensorToVariant(rt_nested_splits=splits, rt_dense_values=values, batched_input=True)
    back = raw_ops.RaggedTensorFromVariant(
        encoded_ragged=again, input_ragged_rank=-1, output_ragged_rank=2, Tvalues="float32", Tsplits="int32"
    )
    assert type(back.output_dense_values) is type(values)
    assert np.asarray(back.output_nested_splits[1]).tolist() == [0, 1, 3]


def test_documentation() -> None:
    for package in ("pyarrow", "awkward"):
        pytest.importorskip(package)
    assert doctest.testfile(str(ROOT / "docs" / "ragged.md"), module_relative=False).failed == 0


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    for module, convert in {
        "awkward": Ragged.from_awkward, "torch": Ragged.from_torch, "tensorflow": Ragged.from_tf,
        "scipy.sparse": Ragged.from_scipy,
    }.items():  # fmt: skip
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(ImportError, match=f"needs the package {module.split('.')[0]}"):
            convert(None)
