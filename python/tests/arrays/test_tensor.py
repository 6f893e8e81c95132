"""raggrad.Tensor: any dtype, shared memory, NumPy and DLPack."""

from __future__ import annotations

import pickle
import weakref

import ml_dtypes
import numpy as np
import pytest
import raggrad
from conftest import QUANTIZED, RAGGED_TYPES, SMALL_TYPES, numpy_dtype, same_bits, values_of
from raggrad import Tensor


def address(array: np.ndarray) -> int:
    return array.ctypes.data


@pytest.mark.parametrize("dtype", [*RAGGED_TYPES, *SMALL_TYPES])
def test_every_dtype(dtype: str) -> None:
    array = values_of(dtype, 6).reshape(2, 3)
    tensor = Tensor(array, dtype)
    assert tensor.dtype == dtype
    assert tensor.shape == (2, 3)
    assert len(tensor) == 2
    assert same_bits(tensor.numpy(), array)
    assert same_bits(np.asarray(tensor), array)
    if dtype != "string":
        assert address(tensor.numpy()) == address(array)
    again = pickle.loads(pickle.dumps(tensor))
    assert again.dtype == dtype
    assert same_bits(again.numpy(), array)


@pytest.mark.parametrize("dtype", RAGGED_TYPES)
def test_lists(dtype: str) -> None:
    data = [[b"a", b"\0"]] if dtype == "string" else [[True, False]] if dtype == "bool" else [[1, 2]]
    tensor = Tensor(data, dtype)
    assert tensor.dtype == dtype
    assert tensor.shape == (1, 2)
    assert tensor.numpy().dtype == numpy_dtype(dtype)
    assert tensor.numpy().tolist() == data


def test_default_dtypes_are_tensorflows() -> None:
    for data, dtype in [
        (1, "int32"),
        (1.5, "float32"),
        (True, "bool"),
        (1j, "complex128"),
        (b"a", "string"),
        ("a", "string"),
        ([], "float32"),
        (np.float64(1), "float64"),
        (np.zeros(1, np.uint16), "uint16"),
        (np.zeros(1, ml_dtypes.bfloat16), "bfloat16"),
    ]:
        assert Tensor(data).dtype == dtype
    assert Tensor(1).shape == ()
    assert Tensor(b"ab").numpy().item() == b"ab"


def test_arrays_keep_their_dtype() -> None:
    for array, dtype in [
        (np.zeros(1), "float32"),
        (np.zeros(1, np.int16), "qint8"),
        (np.zeros(1, np.uint16), "bfloat16"),
    ]:
        with pytest.raises(raggrad.errors.InvalidArgumentError, match="not converted"):
            Tensor(array, dtype)
    with pytest.raises(raggrad.errors.InvalidArgumentError, match="dtype: expected a dtype"):
        Tensor([1], "int7")


def test_memory_is_shared_both_ways() -> None:
    array = np.zeros(4, np.int8)
    tensor = Tensor(array, "qint8")
    array[0] = 5
    tensor.numpy()[1] = 6
    assert tensor.numpy().tolist() == array.tolist() == [5, 6, 0, 0]
    same = Tensor(tensor)
    assert same.dtype == "qint8"
    assert address(same.numpy()) == address(array)
    del tensor, same
    assert array.tolist() == [5, 6, 0, 0]


def test_read_only_stays_read_only() -> None:
    array = np.zeros(4, np.float32)
    array.flags.writeable = False
    tensor = Tensor(array)
    assert not tensor.numpy().flags.writeable
    assert not Tensor(tensor).numpy().flags.writeable
    assert not np.from_dlpack(tensor).flags.writeable
    assert Tensor(np.zeros(4)).numpy().flags.writeable


def test_a_strided_array_is_copied() -> None:
    array = np.arange(10, dtype=np.int32)[::3]
    tensor = Tensor(array)
    assert tensor.numpy().tolist() == [0, 3, 6, 9]
    assert address(tensor.numpy()) != address(array)
    assert tensor.numpy().flags.writeable


@pytest.mark.parametrize("dtype", ["half", "float32", "int64", "uint8", "complex64", "bool", *QUANTIZED])
def test_dlpack_shares_memory(dtype: str) -> None:
    array = values_of(dtype, 6).reshape(2, 3)
    tensor = Tensor(array, dtype)
    assert tensor.__dlpack_device__() == (1, 0)
    shared = np.from_dlpack(tensor)
    assert address(shared) == address(array)
    assert same_bits(shared, array)
    del tensor
    assert same_bits(shared, array)
    assert "dltensor" in repr(Tensor(array, dtype).__dlpack__())
    assert "dltensor_versioned" in repr(Tensor(array, dtype).__dlpack__(max_version=(1, 0)))


@pytest.mark.parametrize("dtype", ["string", "int4"])
def test_what_dlpack_lacks(dtype: str) -> None:
    with pytest.raises(BufferError, match=dtype):
        Tensor(values_of(dtype, 2), dtype).__dlpack__()


def test_array_protocol() -> None:
    tensor = Tensor([1, 2, 3], "quint8")
    assert np.asarray(tensor).dtype == np.uint8
    assert np.asarray(tensor, dtype=np.float32).tolist() == [1.0, 2.0, 3.0]
    assert address(np.asarray(tensor)) == address(tensor.numpy())
    copy = np.array(tensor, copy=True)
    assert address(copy) != address(tensor.numpy())


@pytest.mark.skipif(np.lib.NumpyVersion(np.__version__) < "2.0.0", reason="there copy=False means: if needed")
def test_no_copy_means_no_copy() -> None:
    tensor = Tensor([1, 2, 3], "quint8")
    assert address(np.array(tensor, copy=False)) == address(tensor.numpy())
    assert address(np.array(tensor, dtype=np.uint8, copy=False)) == address(tensor.numpy())
    with pytest.raises(ValueError, match="without a copy"):
        np.array(tensor, dtype=np.float32, copy=False)
    with pytest.raises(ValueError, match="without a copy"):
        np.array(Tensor([b"a"]), copy=False)
    assert np.array(Tensor([b"a"]), copy=True).tolist() == [b"a"]


def test_a_numpy_scalar_is_copied() -> None:
    for number in (np.int32(3), np.int64(3), np.float32(3), np.float64(3)):
        tensor = Tensor(number)
        assert (tensor.dtype, tensor.shape) == (number.dtype.name, ())
        tensor.numpy()[...] = 5
        assert number == 3


@pytest.mark.parametrize("dtype", [*RAGGED_TYPES, *SMALL_TYPES])
@pytest.mark.parametrize("index", [0, -1, slice(1), (1, 2), (slice(None), 1), ..., None, ([0, 1], [2, 0]), ()])
def test_indices_are_numpys(dtype: str, index: object) -> None:
    array = values_of(dtype, 6).reshape(2, 3)
    expected = np.asarray(array[index], array.dtype)
    selected = Tensor(array, dtype)[index]
    assert (selected.dtype, selected.shape) == (dtype, expected.shape)
    assert same_bits(selected.numpy(), expected)
    assert selected.tolist() == expected.tolist()


def test_contiguous_indices_share_memory() -> None:
    array = np.zeros((4, 2), np.int8)
    Tensor(array, "qint8")[2:].numpy()[0, 0] = 5
    assert array[2, 0] == 5
    assert [row.tolist() for row in Tensor(array, "qint8")] == array.tolist()
    for index, error in ((4, IndexError), ("a", IndexError), (0.5, IndexError)):
        with pytest.raises(error):
            Tensor(array)[index]


def test_tolist() -> None:
    assert Tensor([[1, 2]], "qint8").tolist() == [[1, 2]]
    assert Tensor(b"a").tolist() == b"a"
    assert Tensor(2.5).tolist() == 2.5


def test_integers_that_need_64_bits_are_int64() -> None:
    assert Tensor([5_000_000_000]).dtype == "int64"
    with pytest.raises(raggrad.errors.InvalidArgumentError, match="5000000000 does not fit int32"):
        Tensor([5_000_000_000], "int32")
    assert Tensor(2**40).dtype == "int64"
    assert Tensor(-(2**31)).dtype == "int32"
    with pytest.raises(raggrad.errors.InvalidArgumentError, match="does not fit int64"):
        Tensor(2**63)


def test_weak_references() -> None:
    for value in (Tensor([1]), raggrad.batching.Cancellation(), raggrad.batching.Runtime()):
        assert weakref.ref(value)() is value


def test_repr() -> None:
    assert repr(Tensor([[1, 2]], "qint16")) == "Tensor([[1, 2]], dtype='qint16', shape=(1, 2))"
    assert repr(Tensor([b"ab"])) == "Tensor([b'ab'], dtype='string', shape=(1,))"
    assert "..." in repr(Tensor(np.zeros(1000)))
    assert repr(Tensor(np.zeros((0, 3), np.float32))) == "Tensor([], dtype='float32', shape=(0, 3))"


def test_scalars_have_no_length() -> None:
    with pytest.raises(TypeError, match="no length"):
        len(Tensor(1))


def test_outputs_are_tensors_where_the_value_input_is_one() -> None:
    out = raggrad.raw_ops.SparseFillEmptyRowsGrad(
        reverse_index_map=np.array([1]), grad_values=Tensor([1.0, 2.0], "bfloat16")
    )
    assert isinstance(out.d_values, Tensor)
    assert out.d_values.dtype == "bfloat16"
    assert out.d_default_value.shape == ()
    view = out.d_values.numpy()
    del out
    assert view.tolist() == [2.0]
    strings = raggrad.raw_ops.RaggedTensorToVariantGradient(
        encoded_ragged_grad=[raggrad.Ragged([], Tensor([b"abc", b""])), None],
        row_splits=[0, 2, 3],
        dense_values_shape=[3],
        Tvalues="string",
    )
    assert isinstance(strings, Tensor)
    assert strings.numpy().tolist() == [b"abc", b"", b""]
