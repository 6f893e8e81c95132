"""Memory of frameworks that have no C functions for it: arrays, streams, copies.

The bindings call these functions while the array's GPU is the current device, if it has one.
"""

from __future__ import annotations

import sys
from typing import Any


def torch_empty(shape: tuple[int, ...], dtype: str, device: int) -> tuple[Any, int]:
    """A new tensor of torch and its address."""
    torch = sys.modules["torch"]
    array = torch.empty(shape, dtype=getattr(torch, dtype), device=f"cuda:{device}")
    return array, array.data_ptr()


def torch_stream(device: int) -> int:
    """torch's current stream on a GPU."""
    return sys.modules["torch"].cuda.current_stream(device).cuda_stream


def cupy_empty(shape: tuple[int, ...], dtype: str, device: int) -> tuple[Any, int]:
    """A new array of CuPy and its address."""
    cupy = sys.modules["cupy"]
    with cupy.cuda.Device(device):
        array = cupy.empty(shape, dtype)
    return array, array.data.ptr


def cupy_stream(device: int) -> int:
    """CuPy's current stream on a GPU."""
    cupy = sys.modules["cupy"]
    with cupy.cuda.Device(device):
        return cupy.cuda.get_current_stream().ptr


def jax_array(tensor: Any) -> Any:
    """An array of JAX that shares the memory. Without jax_enable_x64 JAX would cut 64 bits to 32: other numbers."""
    jax = sys.modules["jax"]
    if hasattr(jax, "enable_x64"):
        enable_x64 = jax.enable_x64
    else:
        from jax.experimental import enable_x64  # before JAX 0.8
    with enable_x64(True):
        return jax.dlpack.from_dlpack(tensor)


def contiguous(array: Any) -> Any:
    """The array in row-major order, copied if it is not."""
    if hasattr(array, "contiguous"):  # torch
        return array.contiguous()
    return sys.modules["cupy"].ascontiguousarray(array)


def converted(array: Any, dtype: str) -> Any:
    """A copy of the array with another type of elements."""
    if hasattr(array, "astype"):
        return array.astype(dtype)
    return array.to(getattr(sys.modules["torch"], dtype))


def array_interface(array: Any) -> tuple[int, tuple[int, ...], str, int | None]:
    """Address, shape, dtype and stream of an array that has __cuda_array_interface__, if it is row-major."""
    import numpy as np

    interface = array.__cuda_array_interface__
    dtype = np.dtype(interface["typestr"])
    shape = tuple(interface["shape"])
    strides = interface.get("strides")
    if interface.get("mask") is not None:
        raise ValueError("masked arrays are not taken")
    if strides is not None and 0 not in shape:
        dense = np.cumprod((dtype.itemsize, *shape[:0:-1]))[::-1]
        if any(size > 1 and stride != want for size, stride, want in zip(shape, strides, dense, strict=True)):
            raise ValueError("the array is not in row-major order")
    return interface["data"][0], shape, dtype.name, interface.get("stream")
