"""Where arrays lie, and the functions to compute with them there: NumPy's in host memory, else their framework's."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import numpy as np

from . import _core
from ._core import Tensor, ids_of, tensor_of
from ._namespaces import Cupy, Jax, Namespace, Numpy, Torch
from .errors import InvalidArgumentError, UnimplementedError

HOST = "host memory"
NUMPY = Numpy()

_FRAMEWORKS = {"torch": ("Tensor", Torch), "cupy": ("ndarray", Cupy), "jax": ("Array", Jax)}
_SMALL = ("int8", "int16", "uint8", "uint16")
_INDEX_TYPES = {**dict.fromkeys(_SMALL, "int32"), "uint32": "int64", "uint64": "int64"}
_CUDA = (2, 13)  # DLPack's numbers of CUDA memory and managed memory


def device_of(array: Any) -> str:
    """ "host memory" or "cuda:0", without a copy. Lists and numbers are in host memory."""
    if type(array) is np.ndarray:
        return HOST
    place = getattr(array, "__dlpack_device__", None)
    if place is None:
        return Tensor(array).device if hasattr(array, "__cuda_array_interface__") else HOST
    try:
        kind, number = place()
    except Exception:  # the array cannot be shared; operators say why
        return HOST
    return f"cuda:{number}" if kind in _CUDA else HOST


def is_on_device(array: Any) -> bool:
    return device_of(array) != HOST


def check_one_device(op: str, first_name: str, first: Any, **others: Any) -> None:
    """Raises unless all arrays lie where the first one does. None stands for an argument that was not given."""
    expected = device_of(first)
    for name, array in others.items():
        got = expected if array is None else device_of(array)
        if got != expected:
            raise InvalidArgumentError(
                f"{op}: operands are on different devices [{name}: expected that of {first_name} ({expected}), "
                f"got {got}]"
            )


def of(*arrays: Any) -> Namespace:
    """The functions for these arrays: those of the first one in device memory, else NumPy's."""
    for array in arrays:
        if is_on_device(array):
            return _on_device(array)
    return NUMPY


def is_of_framework(array: Any) -> bool:
    """Whether the array belongs to torch, CuPy or JAX."""
    return any(
        name in sys.modules and isinstance(array, getattr(sys.modules[name], kind))
        for name, (kind, _) in _FRAMEWORKS.items()
    )


def _on_device(array: Any) -> Namespace:
    for name, (kind, namespace) in _FRAMEWORKS.items():
        module = sys.modules.get(name)
        if module is not None and isinstance(array, getattr(module, kind)):
            return namespace(module, array)
    # A raggrad.Tensor, or an array of a package that cannot compute: any of the frameworks does it.
    shared = Tensor(array)
    for name, (_, namespace) in sorted(_FRAMEWORKS.items(), key=lambda item: item[0] not in sys.modules):
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue
        from_dlpack = module.dlpack.from_dlpack if name == "jax" else module.from_dlpack
        return namespace(module, from_dlpack(shared))
    raise UnimplementedError(
        f"computing with arrays on {shared.device} needs torch, CuPy or JAX, and none of them is installed"
    )


def values(op: str, name: str, array: Any, xp: Namespace, literals: str | None = None) -> Any:
    """An array of the namespace, without a copy. Lists and numbers take the dtype `literals`."""
    if xp is NUMPY:
        native = type(array) is np.ndarray and array.dtype.isnative
        return array if native else tensor_of(array, op, name, literals).numpy()
    return xp.view(array if is_of_framework(array) else tensor_of(array, op, name, literals))


def ids(op: str, name: str, array: Any, xp: Namespace) -> Any:
    """Ids of the namespace. Integers other than int32 and int64 are copied into one of them."""
    if xp is NUMPY:
        return ids_of(array, op, name).numpy()
    numbers = values(op, name, array, xp)
    wanted = _INDEX_TYPES.get(xp.dtype(numbers))
    return numbers if wanted is None else xp.astype(numbers, wanted)


def equal(op: str, a: Any, b: Any) -> bool:
    """Whether two arrays on one device have the same shape and numbers."""
    if tuple(a.shape) != tuple(b.shape):
        return False
    check_one_device(op, "one array", a, **{"the other": b})
    if not is_on_device(a):
        return np.array_equal(a, b)
    with of(a) as xp:
        return bool((xp.view(a) == xp.view(b)).all())


def operand(array: Any, xp: Namespace) -> Any:
    """The array as operators get it: their stream is that of the namespace, also for arrays of other packages."""
    return array if xp is NUMPY or is_of_framework(array) else xp.view(Tensor(array))


def in_kind_of(array: Any, like: Any) -> Any:
    """The array as the kind of `like`: a copy in host memory, the array itself in device memory.

    For packages that cannot compute, such as Numba, it is a raggrad.Tensor.
    """
    if type(array) is np.ndarray:
        return _core.in_kind_of(array, like)
    return array if is_of_framework(like) or not is_on_device(array) else Tensor(array)
