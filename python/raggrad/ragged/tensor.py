"""Ragged: row splits over values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from .. import _arrays
from .._core import tensor_of
from ..errors import InvalidArgumentError
from . import arrow, convert, text
from .arrays import needed, parts_where_they_lie
from .rows import elements, numbers_of, place_of, row, rows


class Ragged:
    """A ragged tensor: row splits, outermost first, over dense values.

    Splits and values are arrays of any kind that operators take. They are kept as they are and not checked. Without
    splits it is a dense tensor. Values may be in device memory; their splits are in host memory then, and rows, slices,
    masks and lists of row numbers give values in device memory.

    >>> r = Ragged([[0, 2, 2, 3]], np.float32([1, 2, 3]))
    >>> r
    Ragged([[1., 2.],
            [],
            [3.]], dtype='float32', shape=[3, (None)])
    >>> len(r), r.ragged_rank, r.shape
    (3, 1, (3, None))

    Its rows, by number or by iteration, are Ragged with one level less, or arrays if there is only one level:

    >>> r[-1], [row.tolist() for row in r]
    (array([3.], dtype=float32), [[1.0, 2.0], [], [3.0]])

    Slices, masks and lists of row numbers select rows. A Ragged of booleans with the same splits selects elements:

    >>> r[1:].to_lists(), r[[True, False, True]].to_lists(), r[[2, 0]].to_lists()
    ([[], [3.0]], [[1.0, 2.0], [3.0]], [[3.0], [1.0, 2.0]])
    >>> r[Ragged(r.nested_splits, r.values > 1)].to_lists()
    [[2.0], [], [3.0]]

    Two are equal if their splits and values are the same numbers, whatever kinds of arrays hold them:

    >>> r == Ragged.from_lists([[1, 2], [], [3]])
    True
    """

    __slots__ = ("__weakref__", "nested_splits", "values")

    nested_splits: list[Any]
    values: Any

    def __init__(self, nested_splits: Sequence[Any], values: Any) -> None:
        if not isinstance(nested_splits, (list, tuple)):
            raise InvalidArgumentError(
                "Ragged: nested_splits: expected a list with one array of splits per ragged level, "
                f"got {type(nested_splits).__name__}"
            )
        for level, splits in enumerate(nested_splits):
            if splits is None or isinstance(splits, (int, float, str, bytes)):
                raise InvalidArgumentError(
                    f"Ragged: nested_splits[{level}]: expected an array of row splits, got {splits!r}; "
                    "nested_splits is a list of such arrays"
                )
        if values is None:
            raise InvalidArgumentError("Ragged: values: expected an array, got None")
        self.nested_splits = list(nested_splits)
        self.values = values

    @property
    def ragged_rank(self) -> int:
        """How many levels of splits there are."""
        return len(self.nested_splits)

    @property
    def shape(self) -> tuple[int | None, ...]:
        """The number of rows, None for every ragged dimension, and the inner dimensions of the values."""
        values = tuple(np.shape(self.values))
        if not self.nested_splits:
            return values
        return (len(self.nested_splits[0]) - 1, *[None] * self.ragged_rank, *values[1:])

    @property
    def dtype(self) -> str:
        """TensorFlow's name for the type of the values; for lists, the type that operators would give them."""
        return tensor_of(self.values, "Ragged", "values").dtype

    def __len__(self) -> int:
        if self.nested_splits:
            return len(self.nested_splits[0]) - 1
        if not self.shape:
            raise TypeError("a Ragged of shape () has no length")
        return int(np.shape(self.values)[0])

    def __getitem__(self, index: int | slice | Sequence[int] | Sequence[bool] | np.ndarray[Any, Any] | Ragged) -> Any:
        parts = self.nested_splits, self.values
        if isinstance(index, Ragged):
            return Ragged(*elements(*parts, index))
        chosen = index if isinstance(index, slice) else numbers_of(index, len(self))
        if chosen is not None:
            return Ragged(*rows(*parts, chosen))
        ways = "integers, slices, masks and lists of integers"
        splits, values = row(*parts, place_of(index, len(self), "Ragged", ways))
        return Ragged(splits, values) if splits else values

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Ragged):
            return NotImplemented
        op = "Ragged.__eq__"
        _arrays.check_one_device(op, "values", self.values, **{"the other values": other.values})
        mine, theirs = (parts_where_they_lie(r.nested_splits, r.values, op) for r in (self, other))
        pairs = zip([*mine[0], mine[1]], [*theirs[0], theirs[1]], strict=False)
        return len(mine[0]) == len(theirs[0]) and all(_arrays.equal(op, a, b) for a, b in pairs)

    __hash__ = None  # type: ignore[assignment]  # it can change, like a list

    def __repr__(self) -> str:
        return text.ragged(self)

    def _repr_html_(self) -> str:
        """A table, for notebooks."""
        return text.html(self)

    # Conversions. docs/ragged.md says what is shared and what is copied.

    @classmethod
    def from_lists(
        cls, rows: Any, dtype: Any = None, *, ragged_rank: int | None = None, splits_dtype: str = "int64"
    ) -> Ragged:
        """From nested Python lists, or lists of arrays, by a copy. All leaves must be equally deep.

        ragged_rank is the number of levels that become splits; the lists below must be rectangular. The default is all
        levels but the innermost, and 1 for an empty list.

        dtype is a TensorFlow name that all values must fit. Without it, arrays and NumPy's numbers keep their type (by
        NumPy's promotion where they differ). Python's numbers become what tf.ragged.constant makes of them: integers
        int32, or int64 if one does not fit; floats float32; bool, complex128 and strings. Without any values the dtype
        is int32, so that they can be ids (TensorFlow: float32).

        >>> Ragged.from_lists([[1, 2], [], [3]])
        Ragged([[1, 2],
                [],
                [3]], dtype='int32', shape=[3, (None)])
        >>> Ragged.from_lists([np.float64([1, 2]), []]).dtype, Ragged.from_lists([[], [2**40]]).dtype
        ('float64', 'int64')
        """
        return cls(*convert.from_lists(rows, dtype, ragged_rank, splits_dtype))

    def to_lists(self) -> list[Any]:
        """Nested Python lists of numbers or bytes.

        >>> Ragged([[0, 2, 2, 3]], np.float32([1, 2, 3])).to_lists()
        [[1.0, 2.0], [], [3.0]]
        """
        return convert.to_lists(self.nested_splits, self.values)

    @classmethod
    def from_arrow(cls, array: Any) -> Ragged:
        """From an Arrow list array of pyarrow, polars, nanoarrow, duckdb, or anything with the Arrow PyCapsule methods.

        Lists of any depth become levels of splits (int32 for list, int64 for large_list). Fixed-size lists become inner
        dimensions of the values. Splits and values are read-only views of Arrow's memory. Copies are made of the splits
        of a slice that does not begin where its buffers do, of arrays in several chunks, of booleans (Arrow packs bits)
        and of strings. A null raises InvalidArgumentError, which names its position.
        """
        return cls(*arrow.read(array))

    def to_arrow(self) -> Any:
        """A pyarrow.Array of (large) lists. Other packages take the Ragged itself: polars.Series(ragged), ...

        Splits and values are shared. Booleans and strings (as large_binary) are copied. Arrow has no bfloat16, complex
        and quantized types.
        """
        return needed("pyarrow", "Ragged.to_arrow").array(self)

    def __arrow_c_array__(self, requested_schema: Any = None) -> tuple[Any, Any]:
        return arrow.export(self.nested_splits, self.values)

    def __arrow_c_schema__(self) -> Any:
        return arrow.export(self.nested_splits, self.values)[0]

    @classmethod
    def from_awkward(cls, array: Any) -> Ragged:
        """From an awkward.Array of lists of numbers or strings.

        Offsets and values are shared if awkward stores the rows one after the other. Other layouts, such as the result
        of indexing with arrays, and strings are copied. Regular dimensions below the ragged ones become inner
        dimensions of the values. A missing value raises InvalidArgumentError, which names its position.
        """
        return cls(*convert.from_awkward(array))

    def to_awkward(self) -> Any:
        """An awkward.Array that shares splits and values. Strings are copied into bytestrings."""
        return convert.to_awkward(self.nested_splits, self.values)

    @classmethod
    def from_torch(cls, nested: Any) -> Ragged:
        """From a torch nested tensor. The jagged layout is shared, gradients included; the strided layout is copied."""
        return cls(*convert.from_torch(nested))

    def to_torch(self) -> Any:
        """A torch nested tensor of jagged layout that shares splits and values. Needs one level of splits."""
        return convert.to_torch(self.nested_splits, self.values)

    @classmethod
    def from_tf(cls, ragged: Any) -> Ragged:
        """From a tf.RaggedTensor, or a dense tf.Tensor. Splits and values stay TensorFlow's tensors."""
        return cls(*convert.from_tf(ragged))

    def to_tf(self) -> Any:
        """A tf.RaggedTensor. Arrays that are not TensorFlow's are copied."""
        return convert.to_tf(self.nested_splits, self.values)

    @classmethod
    def from_scipy(cls, matrix: Any, part: str = "data") -> Ragged:
        """From the rows of a scipy.sparse matrix or array: the stored numbers, or with part="indices" their columns.

        CSR is shared; other formats are converted first.
        """
        return cls(*convert.from_scipy(matrix, part))

    def to_scipy(self, columns: Any, num_columns: int) -> Any:
        """A scipy.sparse.csr_array with these values at `columns`, a Ragged with the same splits or its values."""
        return convert.to_scipy(self.nested_splits, self.values, columns, num_columns)
