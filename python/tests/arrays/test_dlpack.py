"""DLPack in and out without copies, with producers of all kinds, odd ones included."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
import raggrad
from raggrad import Tensor, raw_ops


class Producer:
    """An object that has only __dlpack__, around a NumPy array."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        self.calls = 0

    def __dlpack__(self, **options: object) -> object:
        self.calls += 1
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()


class ArrayApiProducer(Producer):
    """A producer that names its array namespace, as the array API standard asks."""

    def __array_namespace__(self) -> object:
        class Namespace:
            @staticmethod
            def from_dlpack(source: object) -> ArrayApiProducer:
                return ArrayApiProducer(np.from_dlpack(source))

        return Namespace


def test_inputs_are_not_copied() -> None:
    array = np.arange(4, dtype=np.float32)
    assert Tensor(Producer(array)).numpy().ctypes.data == array.ctypes.data
    assert Tensor(array).numpy().ctypes.data == array.ctypes.data


def test_outputs_are_not_copied() -> None:
    out = raw_ops.SparseFillEmptyRowsGrad(reverse_index_map=[0], grad_values=Tensor([1.0, 2.0]))
    assert np.from_dlpack(out.d_values).ctypes.data == out.d_values.numpy().ctypes.data
    shared = np.from_dlpack(out.d_values)
    del out
    assert shared.tolist() == [1.0]


def test_an_unknown_producer_gives_numpy() -> None:
    got = raw_ops.SparseFillEmptyRowsGrad(
        reverse_index_map=Producer(np.array([1])), grad_values=Producer(np.float64([1, 2]))
    )
    assert isinstance(got.d_values, np.ndarray)
    assert got.d_values.tolist() == [2.0]


def test_an_array_api_producer_gives_its_own_kind() -> None:
    got = raw_ops.SparseFillEmptyRowsGrad(reverse_index_map=[1], grad_values=ArrayApiProducer(np.float64([1, 2])))
    assert isinstance(got.d_values, ArrayApiProducer)
    assert got.d_values.array.tolist() == [2.0]


@pytest.mark.parametrize(
    "array",
    [
        np.arange(24, dtype=np.float32).reshape(4, 6)[::2, 1::2],
        np.arange(24, dtype=np.float32).reshape(4, 6).T,
        np.arange(24, dtype=np.float32).reshape(4, 6)[::-1, ::-1],
        np.broadcast_to(np.float32(3), (2, 5)),
        np.zeros((0, 3), np.float32)[:, ::2],
    ],
)
def test_strided_arrays_are_copied(array: np.ndarray) -> None:
    if not array.flags.writeable:
        array = array.copy()[...]
    assert Tensor(Producer(array)).numpy().tolist() == array.tolist()


class DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
        ("manager", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    ]


class HandMade:
    """A producer of any DLTensor."""

    def __init__(self, data: np.ndarray, **fields: int) -> None:
        self.data = data
        self.shape = (ctypes.c_int64 * 1)(len(data))
        self.tensor = DLTensor(data=data.ctypes.data, device_type=1, ndim=1, code=2, bits=32, lanes=1, shape=self.shape)
        for name, value in fields.items():
            setattr(self.tensor, name, value)

    def __dlpack__(self, **options: object) -> object:
        new = ctypes.pythonapi.PyCapsule_New
        new.restype = ctypes.py_object
        new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return new(ctypes.addressof(self.tensor), b"dltensor", None)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (self.tensor.device_type, self.tensor.device_id)


def fill(values: object) -> object:
    return raw_ops.SparseFillEmptyRowsGrad(reverse_index_map=[0], grad_values=values).d_values


def test_a_hand_made_tensor_without_strides_and_with_an_offset() -> None:
    data = np.float32([1, 2, 3])
    assert fill(HandMade(data)).tolist() == [1.0]
    shifted = HandMade(data, byte_offset=4)
    shifted.shape[0] = 2
    assert fill(shifted).tolist() == [2.0]


@pytest.mark.parametrize(("device_type", "name"), [(10, "rocm:3"), (8, "metal:3"), (14, "14")])
def test_other_devices_are_unimplemented(device_type: int, name: str) -> None:
    with pytest.raises(raggrad.errors.UnimplementedError, match=name) as caught:
        fill(HandMade(np.float32([1]), device_type=device_type, device_id=3))
    assert "grad_values" in caught.value.message


@pytest.mark.parametrize("device_type", [2, 13])  # CUDA, CUDA managed
def test_host_operands_beside_device_memory_are_refused(device_type: int) -> None:
    with pytest.raises(raggrad.errors.InvalidArgumentError, match=r"got cuda:3\]") as caught:
        fill(HandMade(np.float32([1]), device_type=device_type, device_id=3))
    assert "grad_values: expected that of reverse_index_map (host memory)" in caught.value.message


def test_batching_takes_host_memory() -> None:
    grad = HandMade(np.float32([1]), device_type=2)
    with pytest.raises(raggrad.errors.UnimplementedError, match=r"UnbatchGrad.*got cuda:0\]"):
        raw_ops.UnbatchGrad(
            original_input=np.float32([1]), batch_index=np.zeros((0, 3), np.int64), grad=grad, id=np.int64(0)
        )


def test_pinned_host_memory_is_memory() -> None:
    assert fill(HandMade(np.float32([5]), device_type=3)).tolist() == [5.0]


def test_types_that_tensorflow_lacks() -> None:
    with pytest.raises(raggrad.errors.InvalidArgumentError, match="DLPack code 2, 128 bits"):
        fill(HandMade(np.float32([5]), bits=128))
    with pytest.raises(raggrad.errors.InvalidArgumentError, match="DLPack"):
        fill(HandMade(np.float32([5]), lanes=4))


class Refuser:
    def __init__(self, error: BaseException | None) -> None:
        self.error = error

    def __dlpack__(self, **options: object) -> object:
        if self.error:
            raise self.error
        return "no capsule"


def test_producers_that_refuse() -> None:
    with pytest.raises(raggrad.errors.InvalidArgumentError, match=r"cannot read grad_values \(Refuser\): not today"):
        fill(Refuser(RuntimeError("not today")))
    with pytest.raises(raggrad.errors.InvalidArgumentError, match="gives nothing that can be read"):
        fill(Refuser(None))
    with pytest.raises(KeyboardInterrupt):
        fill(Refuser(KeyboardInterrupt()))


def test_arrays_that_numpy_cannot_read() -> None:
    class Opaque:
        def __array__(self, dtype: object = None, copy: bool | None = None) -> np.ndarray:
            raise TypeError("keys are no numbers")

    with pytest.raises(raggrad.errors.InvalidArgumentError, match=r"cannot read grad_values \(Opaque\): keys are no"):
        fill(Opaque())
