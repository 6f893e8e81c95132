"""Types of the arguments that functions of raggrad take, for annotations.

Results are of the kind of their first value input (NumPy in, NumPy out; torch in, torch out), which annotations cannot
say: they are Any.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, Union

import numpy as np

__all__ = ["ArrayLike", "DTypeLike", "SupportsArray", "SupportsDlpack"]


class SupportsDlpack(Protocol):
    """Arrays of NumPy, torch, JAX and TensorFlow, raggrad.Tensor, and whatever else has __dlpack__."""

    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any: ...


class SupportsArray(Protocol):
    def __array__(self, *args: Any, **kwargs: Any) -> Any: ...


class _Named(Protocol):
    """tf.DType."""

    @property
    def name(self) -> str: ...


# An array of any kind, or a literal: a number, bytes, text, a range, or nested lists of them.
ArrayLike = Union[SupportsDlpack, SupportsArray, complex, bytes, str, range, Sequence[Any]]  # noqa: UP007

# TensorFlow's name of a type, or what NumPy, torch or TensorFlow have for it.
DTypeLike = Union[str, np.dtype[Any], type, _Named]  # noqa: UP007
