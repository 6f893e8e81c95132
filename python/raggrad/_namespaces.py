"""The few array functions that raggrad needs, for NumPy, torch, CuPy and JAX.

All of them have the same methods. Operators and indices of the arrays do the rest, inside `with namespace:`, which
makes the arrays' GPU the current one and stops torch from recording.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import ml_dtypes
import numpy as np

from ._core import Tensor

_LARGEST = {"int32": 2**31 - 1, "int64": 2**63 - 1}


class Namespace:
    """The part that does not differ between frameworks."""

    def __init__(self, context: Callable[[], AbstractContextManager[Any]] = nullcontext) -> None:
        self._context = context
        self._entered: list[AbstractContextManager[Any]] = []

    def __enter__(self) -> Namespace:
        context = self._context()
        context.__enter__()
        self._entered.append(context)
        return self

    def __exit__(self, *error: Any) -> None:
        self._entered.pop().__exit__(*error)

    def dtype(self, array: Any) -> str:
        """The name of the dtype: "float16", "bfloat16", "int32", ..."""
        return str(array.dtype).rpartition(".")[2]

    def scalar(self, number: float, like: Any) -> Any:
        """A number that an operation rounds to the dtype of `like`. It does not change the dtype of the result."""
        name = self.dtype(like)
        return float(np.dtype(getattr(ml_dtypes, name, name)).type(number))

    def reaches(self, ids: Any, bound: int) -> Any:
        """Where ids are at least `bound`, which may be more than their dtype holds."""
        largest = _LARGEST.get(self.dtype(ids))
        return ids >= bound if largest is None or bound <= largest else ids != ids

    def never_falls(self, numbers: Any) -> Any:
        return (numbers[1:] >= numbers[:-1]).all()

    def divided(self, rows: Any, column: Any) -> Any:
        """Rows divided by one number each, correctly rounded."""
        return rows / column

    def rows_of_splits(self, splits: Any, count: int) -> Any:
        """The row of each of `count` values."""
        return self.searchsorted(splits[1:], self.arange(count, self.dtype(splits)), "right")

    def contains(self, ascending: Any, count: int) -> Any:
        """For each of the numbers below `count`, whether it is among the ascending ones."""
        numbers = self.arange(count, self.dtype(ascending))
        ends = (self.searchsorted(ascending, numbers, side) for side in ("left", "right"))
        return next(ends) < next(ends)


class NumpyLike(Namespace):
    """NumPy, CuPy and jax.numpy, which have the same functions."""

    def __init__(self, module: Any, context: Callable[[], AbstractContextManager[Any]] = nullcontext) -> None:
        super().__init__(context)
        self._module = module
        for name in ("where", "sqrt", "concatenate", "cumsum", "flatnonzero", "full"):
            setattr(self, name, getattr(module, name))

    def arange(self, count: int, dtype: str = "int64") -> Any:
        return self._module.arange(count, dtype=dtype)

    def filled(self, count: int, value: float, like: Any) -> Any:
        """A vector of one value, of the dtype of `like`."""
        return self._module.full(count, value, like.dtype)

    def contiguous(self, array: Any) -> Any:
        return self._module.ascontiguousarray(array)

    def astype(self, array: Any, dtype: str) -> Any:
        return array if self.dtype(array) == dtype else array.astype(dtype)

    def searchsorted(self, ascending: Any, numbers: Any, side: str) -> Any:
        return self._module.searchsorted(ascending, numbers, side=side)

    def unique(self, numbers: Any) -> tuple[Any, Any]:
        """The different numbers, ascending, and the place of each number among them."""
        different, places = self._module.unique(numbers, return_inverse=True)
        return different, places.reshape(-1)

    def argsort(self, numbers: Any) -> Any:
        """Positions in ascending order of their numbers. Equal numbers keep the order they have."""
        return self._module.argsort(numbers, kind="stable")

    def asarray(self, host: np.ndarray) -> Any:
        """A copy of an array in host memory."""
        return self._module.asarray(host)

    def first(self, mask: Any) -> int:
        """The first place where the mask is true."""
        return int(mask.argmax())


class Numpy(NumpyLike):
    """Arrays in host memory. Frameworks' arrays are read there without a copy."""

    def __init__(self) -> None:
        super().__init__(np)

    def __enter__(self) -> Namespace:
        return self

    def __exit__(self, *error: Any) -> None:
        pass

    def astype(self, array: np.ndarray, dtype: str) -> np.ndarray:
        return array.astype(getattr(ml_dtypes, dtype, dtype), copy=False)

    def scalar(self, number: float, like: np.ndarray) -> Any:
        return like.dtype.type(number)

    def reaches(self, ids: np.ndarray, bound: int) -> np.ndarray:
        return ids >= bound

    def rows_of_splits(self, splits: np.ndarray, count: int) -> np.ndarray:
        lengths = np.diff(splits)
        return np.repeat(np.arange(len(lengths)), lengths)

    def facts(self, *numbers: Any) -> list[int]:
        """The values of single numbers, by one copy to host memory."""
        return [int(number) for number in numbers]

    def host(self, array: Any) -> Any:
        """A copy in NumPy, for error texts and splits."""
        return array


class Cupy(NumpyLike):
    """Arrays of CuPy on one GPU."""

    def __init__(self, module: Any, like: Any) -> None:
        super().__init__(module, lambda: module.cuda.Device(like.device.id))

    def view(self, array: Any) -> Any:
        return array if isinstance(array, self._module.ndarray) else self._module.from_dlpack(Tensor(array))

    def facts(self, *numbers: Any) -> list[int]:
        return self._module.stack([number.astype("int64") for number in numbers]).get().tolist()

    def host(self, array: Any) -> np.ndarray:
        return array.get()


class Jax(NumpyLike):
    """Arrays of JAX on one GPU. Without jax_enable_x64 they have at most 32 bits."""

    def __init__(self, module: Any, like: Any) -> None:
        (device,) = like.devices()
        super().__init__(module.numpy, lambda: module.default_device(device))
        self._jax = module
        self._index = "int64" if module.config.jax_enable_x64 else "int32"

    def arange(self, count: int, dtype: str | None = None) -> Any:
        return self._module.arange(count, dtype=dtype or self._index)

    def contiguous(self, array: Any) -> Any:
        return array  # all arrays of JAX are

    def view(self, array: Any) -> Any:
        return array if isinstance(array, self._jax.Array) else self._jax.dlpack.from_dlpack(Tensor(array))

    def argsort(self, numbers: Any) -> Any:
        return self._module.argsort(numbers, stable=True)

    def divided(self, rows: Any, column: Any) -> Any:
        # XLA would multiply by the reciprocals of a broadcast column: two roundings instead of one.
        return rows / self._module.broadcast_to(column, rows.shape)

    def facts(self, *numbers: Any) -> list[int]:
        return np.asarray(self._module.stack([number.astype(self._index) for number in numbers])).tolist()

    def host(self, array: Any) -> np.ndarray:
        return np.asarray(array)


class Torch(Namespace):
    """Tensors of torch on one GPU."""

    def __init__(self, module: Any, like: Any) -> None:
        super().__init__(module.no_grad)
        self._torch = module
        self._device = like.device
        for name in ("where", "sqrt"):
            setattr(self, name, getattr(module, name))

    def view(self, array: Any) -> Any:
        is_tensor = isinstance(array, self._torch.Tensor)
        return array.detach() if is_tensor else self._torch.from_dlpack(Tensor(array))

    def arange(self, count: int, dtype: str = "int64") -> Any:
        return self._torch.arange(count, dtype=getattr(self._torch, dtype), device=self._device)

    def full(self, shape: tuple[int, ...], value: float, dtype: str) -> Any:
        return self._torch.full(shape, value, dtype=getattr(self._torch, dtype), device=self._device)

    def filled(self, count: int, value: float, like: Any) -> Any:
        return like.new_full((count,), value)

    def contiguous(self, array: Any) -> Any:
        return array.contiguous()

    def astype(self, array: Any, dtype: str) -> Any:
        return array.to(getattr(self._torch, dtype))

    def concatenate(self, arrays: list[Any]) -> Any:
        return self._torch.cat(arrays)

    def cumsum(self, numbers: Any) -> Any:
        return self._torch.cumsum(numbers, 0)

    def flatnonzero(self, mask: Any) -> Any:
        return mask.nonzero().reshape(-1)

    def searchsorted(self, ascending: Any, numbers: Any, side: str) -> Any:
        return self._torch.searchsorted(ascending.contiguous(), numbers, side=side)

    def unique(self, numbers: Any) -> tuple[Any, Any]:
        return self._torch.unique(numbers, return_inverse=True)

    def argsort(self, numbers: Any) -> Any:
        return self._torch.argsort(numbers, stable=True)

    def asarray(self, host: np.ndarray) -> Any:
        return self._torch.as_tensor(np.ascontiguousarray(host), device=self._device)

    def first(self, mask: Any) -> int:
        return int(mask.to(self._torch.uint8).argmax())

    def facts(self, *numbers: Any) -> list[int]:
        return self._torch.stack([number.to(self._torch.int64) for number in numbers]).tolist()

    def host(self, array: Any) -> np.ndarray:
        return Tensor(array.cpu()).numpy()
