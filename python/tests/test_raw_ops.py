"""Every operator through the door: dtypes, kinds of input and output, literals, attributes, zero copies."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil

import ml_dtypes
import numpy as np
import pytest
import raggrad
from conftest import (
    BATCHING,
    FILL_GRADS,
    FLOATS,
    NUMBERS,
    OPERATORS,
    RAGGED_TYPES,
    SEGMENT_GRADS,
    call_segment_grad,
    numpy_dtype,
    same_bits,
    segment_grad,
    values_of,
)
from raggrad import Ragged, raw_ops

INDICES = np.array([5, 0, 5, 2, 0], np.int32)
SEGMENTS = np.array([2, 2, 0, 2, 2], np.int64)  # once and four times: numbers whose square roots are exact


MODULES = ["raggrad", *(f"raggrad.{m.name}" for m in pkgutil.iter_modules(raggrad.__path__) if m.name != "__main__")]
for package in (raw_ops, raggrad.ops, raggrad.ragged):
    MODULES += [f"{package.__name__}.{m.name}" for m in pkgutil.iter_modules(package.__path__)]


@pytest.mark.parametrize("module", MODULES)
def test_doctests(module: str) -> None:
    result = doctest.testmod(importlib.import_module(module))
    assert result.failed == 0


def test_all_operators_are_there_with_a_doctest_each() -> None:
    functions = [name for name in raw_ops.__all__ if inspect.isfunction(getattr(raw_ops, name))]
    assert sorted(functions) == sorted([*OPERATORS, *BATCHING])
    for name in functions:
        function = getattr(raw_ops, name)
        assert f"raw_ops.{name}(" in function.__doc__
        parameters = inspect.signature(function).parameters.values()
        assert all(p.kind is p.KEYWORD_ONLY for p in parameters)
        assert inspect.signature(function).parameters["name"].default is None


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("op", SEGMENT_GRADS)
@pytest.mark.parametrize("index_dtype", [np.int32, np.int64])
@pytest.mark.parametrize("segment_dtype", [np.int32, np.int64])
def test_segment_grads(op: str, dtype: str, index_dtype: type, segment_dtype: type) -> None:
    grad = values_of(dtype, 12).reshape(3, 2, 2)
    got = call_segment_grad(op, grad, INDICES.astype(index_dtype), SEGMENTS.astype(segment_dtype), 7, name="ignored")
    dense = segment_grad(op, grad, INDICES, SEGMENTS, 7)
    if not op.endswith("V2"):
        assert same_bits(got, dense)
        return
    assert got._fields == ("output", "sorted_unique_indices")
    assert same_bits(got.sorted_unique_indices, np.array([0, 2, 5], index_dtype))
    assert same_bits(got.output, dense[[0, 2, 5]])


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("op", FILL_GRADS)
def test_fill_empty_rows_grads(op: str, dtype: str) -> None:
    grad = values_of(dtype, 6)
    got = getattr(raw_ops, op)(reverse_index_map=np.array([4, 0, 4]), grad_values=grad)
    assert got._fields == ("d_values", "d_default_value")
    assert same_bits(got.d_values, grad[[4, 0, 4]])
    assert same_bits(got.d_default_value, np.asarray(1 + 2 + 3 + 5).astype(grad.dtype))
    assert isinstance(got.d_default_value, np.ndarray)
    assert got.d_default_value.shape == ()


@pytest.mark.parametrize("dtype", [*NUMBERS, "qint8", "quint8", "qint32"])
def test_sparse_slice_grad(dtype: str) -> None:
    grad = values_of(dtype, 3)[1:]
    got = raw_ops.SparseSliceGrad(
        backprop_val_grad=raggrad.Tensor(grad, dtype) if dtype.startswith("q") else grad,
        input_indices=np.array([[0, 0], [1, 2], [3, 3], [4, 1]]),
        input_start=np.array([1, 1]),
        output_indices=np.array([[0, 1], [3, 0]]),
    )
    expected = np.zeros(4, grad.dtype)
    expected[[1, 3]] = grad
    if dtype.startswith("q"):
        assert isinstance(got, raggrad.Tensor)
        assert got.dtype == dtype
    assert same_bits(got, expected)


@pytest.mark.parametrize("dtype", RAGGED_TYPES)
@pytest.mark.parametrize("split_dtype", [np.int32, np.int64])
def test_ragged_tensor_to_variant_gradient(dtype: str, split_dtype: type) -> None:
    quantized = dtype.startswith("q")
    first, last = values_of(dtype, 2), values_of(dtype, 3)
    wrap = (lambda a: raggrad.Tensor(a, dtype)) if quantized else (lambda a: a)
    got = raw_ops.RaggedTensorToVariantGradient(
        encoded_ragged_grad=[Ragged([], wrap(first)), None, Ragged([], wrap(last))],
        row_splits=np.array([0, 2, 4, 7], split_dtype),
        dense_values_shape=np.array([7], np.int32),
        Tvalues=dtype,
    )
    missing = np.array([b"", b""], object) if dtype == "string" else np.zeros(2, first.dtype)
    assert isinstance(got, raggrad.Tensor if quantized else np.ndarray)
    assert same_bits(got, np.concatenate([first, missing, last]))


def test_empty_inputs() -> None:
    empty = np.zeros(0, np.int32)
    rows, numbers = raw_ops.SparseSegmentSumGradV2(
        grad=np.zeros((0, 3), np.float32), indices=empty, segment_ids=empty, dense_output_dim0=5
    )
    assert rows.shape == (0, 3)
    assert numbers.shape == (0,)
    assert (
        raw_ops.SparseSegmentSumGrad(
            grad=np.zeros((2, 3), np.float32), indices=empty, segment_ids=empty, output_dim0=2
        ).tolist()
        == [[0, 0, 0]] * 2
    )
    values, default = raw_ops.SparseFillEmptyRowsGrad(reverse_index_map=[], grad_values=[])
    assert values.shape == (0,)
    assert values.dtype == np.float32
    assert float(default) == 0
    joined = raw_ops.RaggedTensorToVariantGradient(
        encoded_ragged_grad=[], row_splits=[0], dense_values_shape=[0, 4], Tvalues="half"
    )
    assert joined.shape == (0, 4)
    assert joined.dtype == np.float16


def test_literals_take_the_dtype_that_the_argument_asks_for() -> None:
    r = raw_ops.SparseSegmentSumGradV2(grad=[[1, 2]], indices=(3,), segment_ids=range(1), dense_output_dim0=5)
    assert r.output.dtype == np.float32
    assert r.sorted_unique_indices.dtype == np.int32
    r = raw_ops.SparseSegmentSumGradV2(
        grad=[[1, 2]],
        indices=[3],
        segment_ids=[0],
        dense_output_dim0=5,
        T="bfloat16",
        Tidx=np.int64,
        Tsegmentids="int64",
    )
    assert r.output.dtype == ml_dtypes.bfloat16
    assert r.sorted_unique_indices.dtype == np.int64

    def dtype_of(values: object) -> np.dtype:
        return raw_ops.SparseFillEmptyRowsGrad(reverse_index_map=[0], grad_values=values).d_values.dtype

    assert dtype_of([1, 2]) == np.int32
    assert dtype_of([1, 2.5]) == np.float32
    assert dtype_of([1j]) == np.complex128
    assert dtype_of([np.float64(1), np.float64(2)]) == np.float32  # a list is a list, whatever is in it
    strings = raw_ops.RaggedTensorToVariantGradient(
        encoded_ragged_grad=Ragged([], [b"a", b"b\0", "\u00e9"]), row_splits=0, dense_values_shape=[3], Tvalues="string"
    )
    assert strings.tolist() == [b"a", b"b\0", b"\xc3\xa9"]


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([0.5], "expected int64, got float64"),
        ([True], "expected int64, got bool"),
        ([b"a"], "expected int64, got text or bytes"),
        ([[0], [1, 2]], "rectangular"),
        ([None], "expected int64, got NoneType"),
        ([2**70], "more than 64 bits"),
        (2**70, "does not fit int64"),
        (None, "got NoneType"),
        (object(), "expected an array"),
        ({}, "expected an array"),
    ],
)
def test_bad_literals(values: object, text: str) -> None:
    with pytest.raises(raggrad.errors.InvalidArgumentError, match=text) as caught:
        raw_ops.SparseFillEmptyRowsGrad(reverse_index_map=values, grad_values=[1.0])
    assert "SparseFillEmptyRowsGrad: reverse_index_map" in str(caught.value)


def test_integers_must_fit() -> None:
    with pytest.raises(raggrad.errors.InvalidArgumentError, match="dense_output_dim0: 2147483648 does not fit int32"):
        raw_ops.SparseSegmentSumGradV2(grad=[[1.0]], indices=[0], segment_ids=[0], dense_output_dim0=2**31)
    with pytest.raises(raggrad.errors.InvalidArgumentError, match="indices: -2147483649 does not fit int32"):
        raw_ops.SparseSegmentSumGradV2(grad=[[1.0]], indices=[-(2**31) - 1], segment_ids=[0], dense_output_dim0=1)
    with pytest.raises(raggrad.errors.InvalidArgumentError, match="grad_values: 128 does not fit int8"):
        raw_ops.SparseFillEmptyRowsGrad(reverse_index_map=[0], grad_values=[128], T="int8")


def test_arrays_are_never_converted() -> None:
    with pytest.raises(raggrad.errors.InvalidArgumentError, match=r"reverse_index_map .*int32"):
        raw_ops.SparseFillEmptyRowsGrad(reverse_index_map=np.array([0], np.int32), grad_values=[1.0])
    with pytest.raises(raggrad.errors.InvalidArgumentError, match=r"dense_output_dim0 .*int64"):
        raw_ops.SparseSegmentSumGradV2(grad=[[1.0]], indices=[0], segment_ids=[0], dense_output_dim0=np.int64(3))
    got = raw_ops.SparseFillEmptyRowsGrad(reverse_index_map=[0], grad_values=np.float64([1, 2]))
    assert got.d_values.dtype == np.float64


def test_attributes_must_agree() -> None:
    grad = np.ones((1, 1), np.float32)
    call_segment_grad("SparseSegmentSumGrad", grad, [0], [0], 1, T=np.dtype("float32"), Tidx="int32")
    for attributes, text in [
        ({"T": "half"}, "T says half but grad has dtype float32"),
        ({"T": "flaot32"}, "T: expected a dtype"),
        ({"Tidx": "int64"}, "Tidx says int64 but indices has dtype int32"),
        ({"Tsegmentids": np.int64}, "Tsegmentids says int64 but segment_ids has dtype int32"),
    ]:
        with pytest.raises(raggrad.errors.InvalidArgumentError, match=text):
            call_segment_grad("SparseSegmentSumGrad", grad, np.int32([0]), np.int32([0]), 1, **attributes)


class FakeTfDType:
    name = "float16"


class FakeTorchDType:
    def __str__(self) -> str:
        return "torch.float16"


@pytest.mark.parametrize(
    "tvalues", ["half", "float16", np.float16, np.dtype("float16"), FakeTfDType(), FakeTorchDType()]
)
def test_spellings_of_a_dtype(tvalues: object) -> None:
    got = raw_ops.RaggedTensorToVariantGradient(
        encoded_ragged_grad=[Ragged([], [1.0])], row_splits=[0, 1], dense_values_shape=[1], Tvalues=tvalues
    )
    assert got.dtype == np.float16


def test_tvalues_is_required() -> None:
    with pytest.raises(TypeError, match="Tvalues"):
        raw_ops.RaggedTensorToVariantGradient(encoded_ragged_grad=[], row_splits=[0], dense_values_shape=[0])
    with pytest.raises(raggrad.errors.InvalidArgumentError, match="Tvalues"):
        raw_ops.RaggedTensorToVariantGradient(
            encoded_ragged_grad=[], row_splits=[0], dense_values_shape=[0], Tvalues=None
        )


def awkward_layouts(array: np.ndarray) -> dict[str, np.ndarray]:
    """The same numbers, laid out in ways a C library does not take as they are."""
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


def test_outputs_own_writable_aligned_memory() -> None:
    out = raw_ops.SparseSegmentSumGrad(
        grad=np.ones((1, 4), np.float32), indices=[1], segment_ids=[0], output_dim0=2, T="float32"
    )
    assert out.flags.writeable
    assert out.flags.c_contiguous
    assert out.ctypes.data % 64 == 0
    out += 1
    view = out[1:]
    del out
    assert view.tolist() == [[2.0] * 4]


def test_accumulation() -> None:
    values = np.full(100_000, 0.1, np.float32)
    exact = raw_ops.SparseFillEmptyRowsGrad(reverse_index_map=[], grad_values=values).d_default_value
    with raggrad.accumulation("fast"):
        fast = raw_ops.SparseFillEmptyRowsGrad(reverse_index_map=[], grad_values=values).d_default_value
        with raggrad.accumulation("sequential"):
            again = raw_ops.SparseFillEmptyRowsGrad(reverse_index_map=[], grad_values=values).d_default_value
    assert same_bits(exact, again)
    true_sum = 100_000 * float(np.float32(0.1))
    assert abs(float(fast) - true_sum) < abs(float(exact) - true_sum)
    after = raw_ops.SparseFillEmptyRowsGrad(reverse_index_map=[], grad_values=values).d_default_value
    assert same_bits(exact, after)
    with pytest.raises(raggrad.errors.InvalidArgumentError, match="sequential"), raggrad.accumulation("quick"):
        pass


@pytest.mark.parametrize("op", SEGMENT_GRADS)
def test_fast_accumulation_reaches_the_segment_grads(op: str) -> None:
    rng = np.random.default_rng(1)
    grad = rng.standard_normal((1000, 1)).astype(np.float32)
    indices, segments = np.zeros(1000, np.int32), np.arange(1000, dtype=np.int32)
    exact = call_segment_grad(op, grad, indices, segments, 1)
    with raggrad.accumulation("fast"):
        fast = call_segment_grad(op, grad, indices, segments, 1)
    exact, fast = (np.asarray(r[0] if op.endswith("V2") else r) for r in (exact, fast))
    assert not same_bits(exact, fast)
    np.testing.assert_allclose(exact, fast, rtol=1e-3)


def test_numpy_dtype_helper_covers_all() -> None:
    assert {numpy_dtype(name).itemsize for name in RAGGED_TYPES} == {1, 2, 4, 8, 16}
