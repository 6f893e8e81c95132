"""IndexedSlices: a gradient that has only some rows of a table."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from . import _core, optimizers
from .errors import InvalidArgumentError

__all__ = ["IndexedSlices"]


class IndexedSlices:
    """Rows `values[i]` of a dense array, at `indices[i]`; everything else is zero.

    Row numbers may repeat and come in any order: rows with the same number are added, in the order they have here
    (float32 sums for half and bfloat16, rounded once). All results are the same for any number of threads.

    Args:
      values: [n, ...], half, bfloat16, float32 or float64.
      indices: [n], int32 or int64, in [0, dense_shape[0]).
      dense_shape: of the dense array: the number of rows, then the shape of a row.

    >>> import numpy as np
    >>> from raggrad import IndexedSlices
    >>> slices = IndexedSlices(np.float32([[1, 2], [10, 20], [3, 4]]), np.array([4, 0, 4]), (5, 2))
    >>> slices
    IndexedSlices(3 rows of a float32 [5, 2] at [4, 0, 4])
    >>> slices.coalesce().values.tolist()
    [[10.0, 20.0], [4.0, 6.0]]
    >>> slices.to_dense().tolist()
    [[10.0, 20.0], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0], [4.0, 6.0]]
    """

    __slots__ = ("dense_shape", "indices", "values")

    def __init__(self, values: Any, indices: Any, dense_shape: Sequence[int]) -> None:
        self.values = values
        self.indices = indices
        try:
            self.dense_shape = tuple(operator.index(d) for d in dense_shape)
        except TypeError:
            raise InvalidArgumentError(
                f"IndexedSlices: dense_shape is no shape [dense_shape: expected whole numbers, got {dense_shape!r}]"
            ) from None
        row_shape = tuple(getattr(values, "shape", ("?", *self.dense_shape[1:])))[1:]
        if not self.dense_shape or row_shape != self.dense_shape[1:]:
            raise InvalidArgumentError(
                f"IndexedSlices: values and dense_shape do not agree [dense_shape: expected "
                f"({', '.join(['rows', *map(str, row_shape)])}), got {self.dense_shape}]"
            )

    def coalesce(self) -> IndexedSlices:
        """The same array with every row number once, ascending."""
        values, indices = _core.coalesce(self.values, self.indices, self.dense_shape[0])
        return IndexedSlices(values, indices, self.dense_shape)

    def to_dense(self) -> Any:
        """The dense array."""
        return _core.to_dense(self.values, self.indices, self.dense_shape[0])

    def apply_(self, table: Any, optimizer: optimizers.Optimizer) -> None:
        """One optimizer step on the rows of `table` that the slices name; the table changes in place.

        The table has dense_shape. It may be half, bfloat16 or float32 for slices of any of these.
        """
        _core.apply_rows(self.values, self.indices, self.dense_shape[0], optimizers.begin(optimizer), table)
        optimizers.end(optimizer)

    def __len__(self) -> int:
        return len(self.indices)

    def __repr__(self) -> str:
        numbers = [int(i) for i in self.indices[:8]]
        more = ", ..." if len(self) > len(numbers) else ""
        dtype = str(getattr(self.values, "dtype", "float32")).rpartition(".")[2]
        return (
            f"IndexedSlices({len(self)} rows of a {dtype} {list(self.dense_shape)} at "
            f"[{', '.join(map(str, numbers))}{more}])"
        )
