"""Python numbers, bytes and lists as arrays. The bindings call it for arguments that are not arrays yet."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from .errors import InvalidArgumentError

# The kinds of literals that each kind of dtype accepts: floats accept integers, integers do not accept floats.
_ACCEPTED_KINDS = {"b": "b", "i": "iu", "u": "iu", "f": "iuf", "c": "iufc"}

# The dtypes of literals whose argument does not ask for one; that of integers is an argument of `array`.
_DEFAULT_DTYPES = {"b": "bool", "f": "float32", "c": "complex128"}


def array(value: Any, dtype: str, integers: str, what: str) -> np.ndarray:
    """Makes an array of a literal. Strings become an array of objects.

    Args:
      dtype: a TensorFlow name; "" stands for TensorFlow's defaults.
      integers: the default dtype of integers. If it is int32 and a number does not fit, they become int64.
      what: names the argument in errors.
    """
    try:
        natural = np.asarray(value)
        if dtype == "string" or (natural.dtype.kind in "SU" and not dtype):
            return np.asarray(value, dtype=object)  # NumPy's own strings drop zero bytes at their end
    except ValueError as error:
        raise InvalidArgumentError(f"{what}: the list is not a rectangular array: {error}") from None
    kind = natural.dtype.kind
    if kind == "O":
        found = _foreign_leaf(value) or "an integer of more than 64 bits"
        raise InvalidArgumentError(f"{what}: expected {dtype or 'numbers or bytes'}, got {found}")
    target = _numpy_dtype(dtype or (integers if kind in "iu" else _DEFAULT_DTYPES[kind]))
    if natural.size == 0:
        return natural.astype(target)
    if not dtype and kind == "i" and target == np.int32 and not _fits(natural, target):
        return natural  # int64, as NumPy made it
    if kind not in _ACCEPTED_KINDS[_kind(target)]:
        found = "text or bytes" if kind in "SU" else natural.dtype.name
        raise InvalidArgumentError(f"{what}: expected {target.name}, got {found}")
    if _kind(target) in "iu" and not _fits(natural, target):
        extreme = natural.max() if _fits(natural.min(), target) else natural.min()
        raise InvalidArgumentError(f"{what}: {extreme} does not fit {target.name}")
    with np.errstate(over="ignore"):
        return natural.astype(target)


def _fits(numbers: Any, dtype: np.dtype) -> bool:
    limits = ml_dtypes.iinfo(dtype)
    return bool(limits.min <= int(numbers.min()) and int(numbers.max()) <= limits.max)


def _numpy_dtype(name: str) -> np.dtype:
    return np.dtype("float16" if name == "half" else getattr(ml_dtypes, name, name))


def _kind(dtype: np.dtype) -> str:
    """NumPy's letter for the kind of a dtype. Types of ml_dtypes do not state theirs; it follows from their names."""
    if dtype.kind in _ACCEPTED_KINDS:
        return dtype.kind
    return "i" if "int" in dtype.name else "f"


def _foreign_leaf(value: Any) -> str:
    """The type of the first leaf that is neither number nor bytes; empty if there is none."""
    if isinstance(value, (list, tuple)):
        found = (_foreign_leaf(item) for item in value)
        return next((name for name in found if name), "")
    return "" if isinstance(value, (int, float, complex, bytes, str, np.generic)) else type(value).__name__
