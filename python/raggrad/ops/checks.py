"""Checks that several functions of raggrad.ops share."""

from __future__ import annotations

from typing import Any

from .. import _arrays, _core
from .._namespaces import Namespace
from ..errors import InvalidArgumentError


def integers(op: str, name: str, array: Any, rank: int, xp: Namespace) -> Any:
    """Ids as int32 or int64 of the rank that is asked for. Arrays of these types are not copied."""
    numbers = _arrays.ids(op, name, array, xp)
    if xp.dtype(numbers) not in ("int32", "int64") or numbers.ndim != rank:
        raise InvalidArgumentError(
            f"{op}: {name} has the wrong dtype or shape [{name}: expected int32 or int64 of rank {rank}, "
            f"or other integers that fit, got {xp.dtype(numbers)} of shape {tuple(numbers.shape)}]"
        )
    return numbers


def rows_of(op: str, name: str, array: Any, literals: str | None) -> int:
    """The first dimension of an array or of nested lists, without a copy of an array.

    `literals` is the dtype that lists take; None leaves the choice to their numbers.
    """
    shape = array.shape if hasattr(array, "shape") else _core.tensor_of(array, op, name, literals).shape
    if not shape:
        raise InvalidArgumentError(f"{op}: {name} must have rows [{name}: expected at least rank 1, got a scalar]")
    return int(shape[0])


def up_to(count: int, why_none: str) -> str:
    """The numbers below `count`, for an error; `why_none` explains that there are none."""
    return f"0 to {count - 1}" if count else f"none, as {why_none}"
