"""VariantArray: an array of Ragged."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Sequence
from typing import Any

from ..errors import InvalidArgumentError
from . import text
from .rows import place_of
from .tensor import Ragged


class VariantArray:
    """An array of any rank whose elements are Ragged, or None where one is missing.

    VariantArray(elements) takes the shape from the nesting of the lists; VariantArray(elements, shape) takes a flat
    list, row-major. A Ragged by itself, or shape=(), makes a scalar.

    >>> v = VariantArray([Ragged([], [1.0]), None])
    >>> v.shape, v[1]
    ((2,), None)
    """

    __slots__ = ("__weakref__", "_elements", "_shape")

    def __init__(self, elements: Any, shape: Sequence[int] | None = None) -> None:
        flat, nested_shape = _flatten(elements, "VariantArray")
        try:
            wanted = nested_shape if shape is None else tuple(operator.index(dim) for dim in shape)
        except TypeError:
            raise InvalidArgumentError(f"VariantArray: shape: expected whole numbers, got {shape!r}") from None
        if any(dim < 0 for dim in wanted) or math.prod(wanted) != len(flat):
            raise InvalidArgumentError(f"VariantArray: shape {wanted} does not hold {len(flat)} elements")
        for position, element in enumerate(flat):
            if element is not None and not isinstance(element, Ragged):
                raise InvalidArgumentError(
                    f"VariantArray: element {position}: expected a Ragged, or None for a missing element, "
                    f"got {type(element).__name__}"
                )
        self._elements = flat
        self._shape = wanted

    @classmethod
    def of_pieces(cls, pieces: Any, shape: tuple[int, ...]) -> VariantArray:
        """Wraps the elements that an operator made (_core.Pieces). They become Ragged when they are read."""
        array = cls.__new__(cls)
        array._elements = pieces
        array._shape = shape
        return array

    @property
    def shape(self) -> tuple[int, ...]:
        """The dimensions of the array; () for a scalar."""
        return self._shape

    def __len__(self) -> int:
        if not self._shape:
            raise TypeError("a VariantArray of shape () has no length")
        return self._shape[0]

    def __getitem__(self, index: int | tuple[int, ...]) -> Ragged | VariantArray | None:
        indices = index if isinstance(index, tuple) else (index,)
        if len(indices) > len(self._shape):
            raise IndexError(f"{len(indices)} indices for a VariantArray of rank {len(self._shape)}")
        start, count = 0, len(self._elements)
        for i, size in zip(indices, self._shape, strict=False):
            place = place_of(i, size, "VariantArray")
            count //= size
            start += place * count
        rest = self._shape[len(indices) :]
        if not rest:
            return self._elements[start]
        return VariantArray([self._elements[i] for i in range(start, start + count)], rest)

    def __iter__(self) -> Iterator[Ragged | VariantArray | None]:
        return (self[i] for i in range(len(self)))

    def __reduce__(self) -> tuple[Any, ...]:
        return VariantArray, ([self._elements[i] for i in range(len(self._elements))], self._shape)

    def __repr__(self) -> str:
        return text.variant_array(self._elements, self._shape)


def variant_parts(value: Any, what: str) -> tuple[Any, tuple[int, ...]]:
    """The elements, row-major, and the shape of a VariantArray, or of lists that stand for one."""
    if type(value) is list and value and not isinstance(value[0], (list, tuple)):
        return value, (len(value),)  # the usual case, without a copy
    if isinstance(value, VariantArray):
        return value._elements, value._shape
    if value is not None and not isinstance(value, (Ragged, list, tuple)):
        raise InvalidArgumentError(
            f"{what}: expected a raggrad.VariantArray, or a list of raggrad.Ragged and None, got {type(value).__name__}"
        )
    return _flatten(value, what)


def _flatten(value: Any, what: str) -> tuple[list[Any], tuple[int, ...]]:
    """The leaves of nested lists and their shape. Leaves are not checked."""
    shape: list[int] = []
    level = [value]
    while level and isinstance(level[0], (list, tuple)):
        size = len(level[0])
        for item in level:
            if not isinstance(item, (list, tuple)) or len(item) != size:
                raise InvalidArgumentError(f"{what}: the lists at depth {len(shape)} differ in length")
        shape.append(size)
        level = list(level[0]) if len(level) == 1 else [leaf for item in level for leaf in item]
    return level, tuple(shape)
