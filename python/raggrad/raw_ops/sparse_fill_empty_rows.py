"""One entry for every empty row: SparseFillEmptyRows, RaggedFillEmptyRows and their gradients."""

from __future__ import annotations

from typing import Any, NamedTuple

from .. import _core
from ..settings import current_accumulation
from ..typing import ArrayLike, DTypeLike

_accumulation = current_accumulation.get


class SparseFillEmptyRowsOutput(NamedTuple):
    """Entries in the order of their rows, which rows were empty, and where each entry of the input went."""

    output_indices: Any
    output_values: Any
    empty_row_indicator: Any
    reverse_index_map: Any


class RaggedFillEmptyRowsOutput(NamedTuple):
    """Values in the order of their rows, which rows were empty, and where each value of the input went."""

    output_value_rowids: Any
    output_values: Any
    empty_row_indicator: Any
    reverse_index_map: Any


class FillEmptyRowsGradOutput(NamedTuple):
    """The gradients of the values and of the default value."""

    d_values: Any
    d_default_value: Any


def SparseFillEmptyRows(
    *,
    indices: ArrayLike,
    values: ArrayLike,
    dense_shape: ArrayLike,
    default_value: ArrayLike,
    T: DTypeLike | None = None,
    name: str | None = None,
) -> SparseFillEmptyRowsOutput:
    """Orders the entries of a sparse array by row, and gives every row without entries one with the default value.

    Args:
      indices: [n, d], int64. Only column 0, the row, is read.
      values: [n], half, bfloat16, float32, float64, [u]int8/16/32/64, complex64, complex128, bool or strings.
      dense_shape: [d], int64. Only dense_shape[0], the number of rows, is read.
      default_value: scalar of the dtype of values.

    Returns:
      output_indices: [n_full, d]; new entries are at (row, 0, 0, ...).
      output_values: [n_full].
      empty_row_indicator: [dense_shape[0]], bool: true for rows that had no entries.
      reverse_index_map: [n], int64: the place of each entry in the output.

    >>> from raggrad import raw_ops
    >>> r = raw_ops.SparseFillEmptyRows(
    ...     indices=[[2, 7], [0, 5]], values=[1.5, 2.5], dense_shape=[4, 9], default_value=0.0)
    >>> r.output_indices.tolist(), r.output_values.tolist()
    ([[0, 5], [1, 0], [2, 7], [3, 0]], [2.5, 0.0, 1.5, 0.0])
    >>> print(r.empty_row_indicator, r.reverse_index_map)
    [False  True False  True] [2 0]
    """
    return _core.SparseFillEmptyRows(indices, values, dense_shape, default_value, T)


def RaggedFillEmptyRows(
    *,
    value_rowids: ArrayLike,
    values: ArrayLike,
    nrows: ArrayLike,
    default_value: ArrayLike,
    T: DTypeLike | None = None,
    name: str | None = None,
) -> RaggedFillEmptyRowsOutput:
    """Gives every empty row of a ragged array one value, the default value.

    Args:
      value_rowids: [n], int64: the row of each value.
      values: [n], as for SparseFillEmptyRows.
      nrows: int64 scalar.
      default_value: scalar of the dtype of values.

    Returns:
      output_value_rowids: [n_full]; of shape [0, 1] if nrows is 0, as in TensorFlow.
      output_values, empty_row_indicator, reverse_index_map: as from SparseFillEmptyRows.

    >>> from raggrad import raw_ops
    >>> r = raw_ops.RaggedFillEmptyRows(value_rowids=[0, 0, 2], values=[5, 6, 7], nrows=4, default_value=-1)
    >>> print(r.output_value_rowids, r.output_values)
    [0 0 1 2 3] [ 5  6 -1  7 -1]
    """
    return _core.RaggedFillEmptyRows(value_rowids, values, nrows, default_value, T)


def SparseFillEmptyRowsGrad(
    *, reverse_index_map: ArrayLike, grad_values: ArrayLike, T: DTypeLike | None = None, name: str | None = None
) -> FillEmptyRowsGradOutput:
    """Gradient of SparseFillEmptyRows.

    Args:
      reverse_index_map: [n], int64, in [0, n_full): the place that the forward gave to each entry.
      grad_values: [n_full], half, bfloat16, float32, float64, [u]int8/16/32/64, complex64 or complex128.

    Returns:
      d_values: [n], grad_values[reverse_index_map].
      d_default_value: scalar, the sum of the grad_values that the map does not name.

    >>> from raggrad import raw_ops
    >>> r = raw_ops.SparseFillEmptyRowsGrad(reverse_index_map=[0, 2], grad_values=[1.0, 20.0, 3.0, 40.0])
    >>> print(r.d_values, r.d_default_value)
    [1. 3.] 60.0
    """
    return _core.SparseFillEmptyRowsGrad(reverse_index_map, grad_values, T, _accumulation())


def RaggedFillEmptyRowsGrad(
    *, reverse_index_map: ArrayLike, grad_values: ArrayLike, T: DTypeLike | None = None, name: str | None = None
) -> FillEmptyRowsGradOutput:
    """Gradient of RaggedFillEmptyRows. The same as SparseFillEmptyRowsGrad.

    >>> from raggrad import raw_ops
    >>> r = raw_ops.RaggedFillEmptyRowsGrad(reverse_index_map=[1], grad_values=[5, 7, 5])
    >>> print(r.d_values, r.d_default_value)
    [7] 10
    """
    return _core.RaggedFillEmptyRowsGrad(reverse_index_map, grad_values, T, _accumulation())
