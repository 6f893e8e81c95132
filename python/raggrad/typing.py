"""Types of the arguments that functions of raggrad take, for annotations.

Results have the kind of the first value input: NumPy in, NumPy out; torch in, torch out. Annotations cannot express
that, so results are Any.
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
    """Matches tf.DType."""

    @property
    def name(self) -> str: ...


# An array of any kind, or a literal: a number, bytes, text, a range, or nested lists of them.
ArrayLike = Union[SupportsDlpack, SupportsArray, complex, bytes, str, range, Sequence[Any]]  # noqa: UP007

# TensorFlow's name of a type, or the dtype object of NumPy, torch or TensorFlow.
DTypeLike = Union[str, np.dtype[Any], type, _Named]  # noqa: UP007
