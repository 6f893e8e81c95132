"""IndexedSlices: some rows of a table, for gradients that touch only these."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from . import _arrays, _core, optimizers
from ._named import named
from .errors import InvalidArgumentError
from .ragged.arrays import needed, numpy_of
from .settings import Accumulation, accumulation_or_current

__all__ = ["IndexedSlices"]

MAX_ROWS = 2**32  # of a table: their numbers are sorted in 32 bits


class IndexedSlices:
    """Rows `values[i]` of a dense array, at `indices[i]`; everything else is zero.

    Row numbers may repeat and come in any order. Rows with the same number are added in the order they have here;
    half and bfloat16 are summed in float32 and rounded once. Results do not depend on the number of threads. On a GPU
    rows are added by a fixed tree. raggrad.accumulation, or `accumulation` in the methods that add rows, changes this.

    Args:
      values: [n, ...], half, bfloat16, float32 or float64.
      indices: [n], integers in [0, dense_shape[0]).
      dense_shape: the shape of the dense array. Its first dimension, the number of rows, is at most 2^32.

    Lists become NumPy arrays; arrays are kept as they are.

    >>> import numpy as np
    >>> from raggrad import IndexedSlices
    >>> slices = IndexedSlices(np.float32([[1, 2], [10, 20], [3, 4]]), np.array([4, 0, 4]), (5, 2))
    >>> slices
    IndexedSlices(3 rows of a float32 [5, 2] at [4, 0, 4])
    >>> slices.coalesce().values.tolist()
    [[10.0, 20.0], [4.0, 6.0]]
    >>> (slices * 2 + slices).to_dense().tolist()
    [[30.0, 60.0], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0], [12.0, 18.0]]
    """

    __slots__ = ("dense_shape", "indices", "values")
    __array_ufunc__ = None  # makes NumPy leave np.float32(2) * slices to __rmul__

    values: Any
    indices: Any
    dense_shape: tuple[int, ...]

    def __init__(self, values: Any, indices: Any, dense_shape: Sequence[int]) -> None:
        op = "IndexedSlices"
        self.values = values if hasattr(values, "shape") else numpy_of(values, op, "values", "float32")
        self.indices = indices if hasattr(indices, "shape") else _core.ids_of(indices, op, "indices").numpy()
        try:
            self.dense_shape = tuple(operator.index(d) for d in dense_shape)
        except TypeError:
            raise InvalidArgumentError(
                f"{op}: dense_shape is not a shape [dense_shape: expected whole numbers, got {dense_shape!r}]"
            ) from None
        shape, ids = tuple(self.values.shape), tuple(self.indices.shape)
        if len(ids) != 1 or shape[:1] != ids:
            raise InvalidArgumentError(
                f"{op}: every row needs a number [indices: expected a vector of {shape[0] if shape else 'some'} for "
                f"values of shape {shape}, got shape {ids}]"
            )
        if not self.dense_shape or shape[1:] != self.dense_shape[1:]:
            raise InvalidArgumentError(
                f"{op}: values and dense_shape do not agree [dense_shape: expected "
                f"({', '.join(['rows', *map(str, shape[1:])])}), got {self.dense_shape}]"
            )
        if not 0 <= self.dense_shape[0] <= MAX_ROWS:
            raise InvalidArgumentError(
                f"{op}: the number of rows is out of range [dense_shape[0]: expected 0 to {MAX_ROWS}, "
                f"got {self.dense_shape[0]}]"
            )

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the dense array."""
        return self.dense_shape

    @property
    def dtype(self) -> Any:
        """The dtype of the values."""
        return self.values.dtype

    @named(table_rows="dense_shape[0]")
    def coalesce(self, *, accumulation: Accumulation | None = None) -> IndexedSlices:
        """The same array with every row number once, ascending."""
        mode = accumulation_or_current(accumulation)
        values, indices = _core.coalesce(self.values, self.indices, self.dense_shape[0], mode)
        return IndexedSlices(values, indices, self.dense_shape)

    @named(table_rows="dense_shape[0]")
    def to_dense(self, *, accumulation: Accumulation | None = None) -> Any:
        """The dense array."""
        mode = accumulation_or_current(accumulation)
        return _core.to_dense(self.values, self.indices, self.dense_shape[0], mode)

    @named(grad="values", table_rows="dense_shape[0]")
    def apply_(self, table: Any, optimizer: optimizers.Optimizer, *, accumulation: Accumulation | None = None) -> None:
        """Makes an optimizer step on the rows of `table` that the slices name, in place.

        The table has dense_shape. half, bfloat16 and float32 can be mixed between table and slices. torch is told of
        the change: a graph that read the table before refuses to run backwards.
        """
        update = optimizers.begin("IndexedSlices.apply_", optimizer)
        mode = accumulation_or_current(accumulation)
        _core.apply_rows(self.values, self.indices, self.dense_shape[0], update, table, mode)
        optimizers.end(optimizer)

    def __add__(self, other: Any) -> IndexedSlices:
        """Joins the slices of both, these first, in a copy. coalesce() and the others add rows with the same number."""
        if not isinstance(other, IndexedSlices):
            return NotImplemented
        op = "IndexedSlices.__add__"
        _arrays.check_one_device(op, "values", self.values, **{"the other values": other.values})
        with _arrays.of(self.values) as xp:
            mine, others = (_arrays.values(op, "values", slices.values, xp) for slices in (self, other))
            for what, expected, got in [
                ("dense_shape", self.dense_shape, other.dense_shape),
                ("values", xp.dtype(mine), xp.dtype(others)),
            ]:
                if expected != got:
                    raise InvalidArgumentError(f"{op}: different arrays [{what}: expected {expected}, got {got}]")
            for slices in (self, other):
                _arrays.check_one_device(op, "values", slices.values, indices=slices.indices)
            indices = [_arrays.ids(op, "indices", slices.indices, xp) for slices in (self, other)]
            return self._with(xp.concatenate([mine, others]), xp.concatenate(indices))

    def __mul__(self, factor: Any) -> IndexedSlices:
        """Multiplies all values by a real number, rounded to their type, in a copy."""
        if isinstance(factor, (np.generic, np.ndarray)) and factor.dtype.kind == "c":
            return NotImplemented  # its __float__ would drop the imaginary part
        try:
            number = float(factor) if hasattr(factor, "__float__") else None
        except TypeError:  # an array
            number = None
        if number is None:
            return NotImplemented
        with _arrays.of(self.values) as xp:
            values = _arrays.values("IndexedSlices.__mul__", "values", self.values, xp)
            return self._with(xp.astype(values * xp.scalar(number, values), xp.dtype(values)), self.indices)

    __rmul__ = __mul__

    def _with(self, values: Any, indices: Any) -> IndexedSlices:
        """Slices of the same dense array, whose arrays have the kind (NumPy, torch, ...) of this one's values."""
        both = (_arrays.in_kind_of(array, self.values) for array in (values, indices))
        return IndexedSlices(*both, self.dense_shape)

    def to_torch(self) -> Any:
        """A torch.sparse_coo_tensor with one sparse dimension, as torch's optimizers take it. It shares the values."""
        torch = needed("torch", "IndexedSlices.to_torch")
        values, indices = (_in_torch(torch, array) for array in (self.values, self._ids("to_torch")))
        return torch.sparse_coo_tensor(indices.reshape(1, -1).to(torch.int64), values, self.dense_shape)

    def to_tf(self) -> Any:
        """A tf.IndexedSlices, as Keras' optimizers take it."""
        tf = needed("tensorflow", "IndexedSlices.to_tf")
        values, indices = (
            array if isinstance(array, tf.Tensor) else tf.constant(numpy_of(array, "IndexedSlices.to_tf", "values"))
            for array in (self.values, self._ids("to_tf"))
        )
        return tf.IndexedSlices(values, indices, tf.constant(self.dense_shape, tf.int64))

    def to_scipy(self) -> Any:
        """A scipy.sparse.coo_array with all columns of each slice. Needs a matrix; SciPy has no half and bfloat16."""
        op = "IndexedSlices.to_scipy"
        sparse = needed("scipy.sparse", op)
        values = numpy_of(self.values, op, "values")
        if values.ndim != 2 or values.dtype not in (np.float32, np.float64):
            raise InvalidArgumentError(
                f"{op}: SciPy has matrices of float32 and float64 [values: expected rank 2, "
                f"got {values.dtype} of shape {values.shape}]"
            )
        count, width = values.shape
        rows = np.repeat(_core.ids_of(self.indices, op, "indices").numpy(), width)
        columns = np.tile(np.arange(width, dtype=rows.dtype), count)
        return sparse.coo_array((values.reshape(-1), (rows, columns)), shape=self.dense_shape)

    def _ids(self, name: str) -> Any:
        """The indices as int32 or int64, which every framework has; without a copy if they are."""
        if str(self.indices.dtype).rpartition(".")[2] in ("int32", "int64"):
            return self.indices
        with _arrays.of(self.indices) as xp:
            return _arrays.ids(f"IndexedSlices.{name}", "indices", self.indices, xp)

    def __len__(self) -> int:
        return int(self.indices.shape[0])

    def __repr__(self) -> str:
        with _arrays.of(self.indices) as xp:
            numbers = xp.host(_arrays.values("IndexedSlices", "indices", self.indices, xp)[:8]).tolist()
        more = ", ..." if len(self) > len(numbers) else ""
        dtype = getattr(self.dtype, "name", str(self.dtype)).rpartition(".")[2]
        return (
            f"IndexedSlices({len(self)} rows of a {dtype} {list(self.dense_shape)} at "
            f"[{', '.join(map(str, numbers))}{more}])"
        )


def _in_torch(torch: Any, array: Any) -> Any:
    return array if isinstance(array, torch.Tensor) else torch.from_dlpack(_core.Tensor(array))
