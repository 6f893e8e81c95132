"""Helpers of the conversions: any array as a NumPy array, uniform dimensions as splits, packages on demand."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np

from .. import _arrays
from .._namespaces import Namespace
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
    if (device := _arrays.device_of(array)) != _arrays.HOST:
        raise InvalidArgumentError(
            f"{what}: an operand is on the wrong device [{name}: expected {_arrays.HOST}, got {device}]"
        )
    return _arrays.values(what, name, array, _arrays.NUMPY, literals)


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
    data = numpy_of(values, what, "values")
    return host_splits(nested_splits, data, what), data


def host_splits(nested_splits: list[Any], values: Any, what: str) -> list[np.ndarray]:
    """Splits in NumPy, wherever the values lie. Raises unless they are valid."""
    splits = [numpy_of(s, what, f"nested_splits[{level}]") for level, s in enumerate(nested_splits)]
    array = values if hasattr(values, "shape") else numpy_of(values, what, "values")
    _check(splits, tuple(array.shape), what)
    return splits


def parts_where_they_lie(nested_splits: list[Any], values: Any, what: str) -> tuple[list[Any], Any]:
    """Splits and values: in NumPy if they are in host memory, else as arrays of their framework.

    Splits of values in device memory may be in either. Checking those in device memory copies three numbers a level.
    """
    if not _arrays.is_on_device(values):
        return numpy_parts(nested_splits, values, what)
    data = _arrays.values(what, "values", values, _arrays.of(values))
    splits = [
        _arrays.values(what, f"nested_splits[{level}]", s, _arrays.of(s)) for level, s in enumerate(nested_splits)
    ]
    _check(splits, tuple(data.shape), what)
    return splits, data


def _check(splits: list[Any], shape: tuple[int, ...], what: str) -> None:
    """Raises unless these are the splits of values of this shape."""
    if splits and not shape:
        raise InvalidArgumentError(f"{what}: values: expected rows for the splits, got a scalar")
    last = shape[0] if splits else 0
    for level in reversed(range(len(splits))):
        with _arrays.of(splits[level]) as xp:
            fault = _fault(splits[level], last, xp)
        if fault:
            raise InvalidArgumentError(
                f"{what}: nested_splits[{level}]: expected a vector from 0 to {last} that never falls, got {fault}"
            )
        last = len(splits[level]) - 1


def _fault(splits: Any, last: int, xp: Namespace) -> str:
    """Why an array cannot be the splits of `last` rows; empty if it can."""
    if splits.ndim != 1 or not len(splits):
        return f"shape {tuple(splits.shape)}"
    if xp.dtype(splits) not in ("int32", "int64"):
        return f"dtype {xp.dtype(splits)}, which is neither int32 nor int64"
    begin, end, ascends = xp.facts(splits[0], splits[-1], xp.never_falls(splits))
    if begin != 0:
        return f"{begin} at its start"
    if not ascends:
        place = xp.first(splits[1:] < splits[:-1])
        return f"{int(splits[place + 1])} after {int(splits[place])} at [{place + 1}]"
    return "" if end == last else f"{end} at its end"
