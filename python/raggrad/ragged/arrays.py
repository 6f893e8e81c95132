"""What the conversions share: any array as a NumPy array, uniform dimensions as splits, packages on demand."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np

from .._core import Tensor
from ..errors import InvalidArgumentError


def needed(module: str, what: str) -> ModuleType:
    """The package a conversion is about. Only who converts needs it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(f"{what} needs the package {module.split('.')[0]}: {error}") from error


def numpy_of(array: Any) -> np.ndarray:
    """The array in NumPy, without a copy where that is possible. Quantized types are their integers."""
    return array if isinstance(array, np.ndarray) else Tensor(array).numpy()


def strings(texts: Sequence[bytes]) -> np.ndarray:
    """An array of bytes objects; NumPy's own strings would lose zeros at their ends."""
    array = np.empty(len(texts), object)
    array[:] = texts
    return array


def uniform_splits(rows: int, length: int, dtype: Any) -> np.ndarray:
    """The splits of rows that all have one length."""
    return np.arange(rows + 1, dtype=dtype) * np.asarray(length, dtype)


def of_one_type(splits: list[np.ndarray]) -> list[np.ndarray]:
    """Operators want the splits of all levels in one type: int32 beside int64 is widened."""
    widest = np.result_type(*splits) if splits else None
    return [s.astype(widest, copy=False) for s in splits]


def lengths_of(splits: list[np.ndarray], values: np.ndarray, what: str) -> list[int]:
    """How many rows each level has, the values last. Raises unless the splits are splits: others trust them blindly."""
    rows = [len(s) - 1 for s in splits] + list(values.shape[:1])
    for level, array in enumerate(splits):
        ordered = array.ndim == 1 and len(array) > 0 and array[0] == 0 and not (array[1:] < array[:-1]).any()
        if not ordered or array[-1] != rows[level + 1]:
            raise InvalidArgumentError(
                f"{what}: nested_splits[{level}]: expected a vector from 0 to {rows[level + 1]} that does not decrease"
            )
    return rows
