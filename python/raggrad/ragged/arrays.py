"""Helpers of the conversions: any array as a NumPy array, uniform dimensions as splits, packages on demand."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np

from .._core import tensor_of
from ..errors import InvalidArgumentError


def needed(module: str, what: str) -> ModuleType:
    """Imports the package of a conversion. Only a program that converts needs it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(f"{what} needs the package {module.split('.')[0]}: {error}") from error


def numpy_of(array: Any, what: str, name: str, literals: str | None = None) -> np.ndarray:
    """The array in NumPy and in native byte order, without a copy where possible. Quantized types become integers.

    `what` and `name` are the function and the argument in errors. `literals` is the dtype that lists and numbers take.
    """
    if type(array) is np.ndarray and array.dtype.isnative:
        return array
    return tensor_of(array, what, name, literals).numpy()


def strings(texts: Sequence[bytes]) -> np.ndarray:
    """An array of bytes objects. NumPy's own strings drop zero bytes at their end."""
    array = np.empty(len(texts), object)
    array[:] = texts
    return array


def uniform_splits(rows: int, length: int, dtype: Any) -> np.ndarray:
    """The splits of rows that all have one length."""
    return np.arange(rows + 1, dtype=dtype) * np.asarray(length, dtype)


def of_one_type(splits: list[np.ndarray]) -> list[np.ndarray]:
    """The splits of all levels in one type, as operators need them: int32 beside int64 is widened."""
    widest = np.result_type(*splits) if splits else None
    return [s.astype(widest, copy=False) for s in splits]


def numpy_parts(nested_splits: list[Any], values: Any, what: str) -> tuple[list[np.ndarray], np.ndarray]:
    """Splits and values in NumPy. Raises unless the splits are valid, because other packages do not check them."""
    splits = [numpy_of(s, what, f"nested_splits[{level}]") for level, s in enumerate(nested_splits)]
    data = numpy_of(values, what, "values")
    if splits and not data.shape:
        raise InvalidArgumentError(f"{what}: values: expected rows for the splits, got a scalar")
    last = len(data) if splits else 0
    for level in reversed(range(len(splits))):
        if fault := _fault(splits[level], last):
            raise InvalidArgumentError(
                f"{what}: nested_splits[{level}]: expected a vector from 0 to {last} that never falls, got {fault}"
            )
        last = len(splits[level]) - 1
    return splits, data


def _fault(splits: np.ndarray, last: int) -> str:
    """Why an array cannot be the splits of `last` rows; empty if it can."""
    if splits.ndim != 1 or not len(splits):
        return f"shape {splits.shape}"
    if splits.dtype not in (np.int32, np.int64):
        return f"dtype {splits.dtype}, which is neither int32 nor int64"
    if splits[0] != 0:
        return f"{splits[0]} at its start"
    falls = splits[1:] < splits[:-1]
    if falls.any():
        place = int(falls.argmax())
        return f"{splits[place + 1]} after {splits[place]} at [{place + 1}]"
    return "" if splits[-1] == last else f"{splits[-1]} at its end"
