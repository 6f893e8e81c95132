"""Sparse arrays: empty rows filled, windows cut out. Ragged arrays: cut into rows and put together again."""

from __future__ import annotations

from typing import Any

from .. import _core, raw_ops
from .._named import named
from ..errors import InvalidArgumentError
from ..ragged import Ragged, VariantArray, variant_parts
from ..raw_ops import (
    FillEmptyRowsGradOutput,
    RaggedFillEmptyRowsOutput,
    SparseFillEmptyRowsOutput,
    SparseSliceOutput,
)
from ..settings import Accumulation, using


@named()
def fill_empty_rows(indices: Any, values: Any, dense_shape: Any, default_value: Any) -> SparseFillEmptyRowsOutput:
    """Orders the entries of a sparse array by row and gives every empty row one entry: raw_ops.SparseFillEmptyRows.

    Args:
      indices: [n, d], int64: where the entries are; column 0 is the row.
      values: [n], numbers, bool or string.
      dense_shape: [d], int64; its first number is the number of rows.
      default_value: the value of the entry of an empty row, at (row, 0, 0, ...).

    Returns:
      (output_indices, output_values, empty_row_indicator, reverse_index_map). empty_row_indicator has a bool for each
      row. Entry i of the input is at place reverse_index_map[i] of the output.

    >>> from raggrad import ops
    >>> ops.fill_empty_rows([[2, 7], [0, 5]], [1.5, 2.5], dense_shape=[4, 9], default_value=0.0).output_values.tolist()
    [2.5, 0.0, 1.5, 0.0]
    """
    return raw_ops.SparseFillEmptyRows(
        indices=indices, values=values, dense_shape=dense_shape, default_value=default_value
    )


@named()
def fill_empty_rows_grad(
    reverse_index_map: Any, grad_values: Any, *, accumulation: Accumulation | None = None
) -> FillEmptyRowsGradOutput:
    """Gradient of fill_empty_rows with respect to values and default_value: raw_ops.SparseFillEmptyRowsGrad.

    Args:
      reverse_index_map: [n], int64, as fill_empty_rows returns it.
      grad_values: [n_full], numbers: the gradient of output_values.
      accumulation: how the gradient of default_value is summed: "sequential", "fast" or "reproducible"; None: that of
        raggrad.accumulation.

    Returns:
      (d_values, d_default_value): [n], and a scalar, the sum of what no place of the map names.

    >>> from raggrad import ops
    >>> grad = ops.fill_empty_rows_grad(reverse_index_map=[2, 0], grad_values=[1.0, 10.0, 2.0, 20.0])
    >>> print(grad.d_values, grad.d_default_value)
    [2. 1.] 30.0
    """
    with using(accumulation):
        return raw_ops.SparseFillEmptyRowsGrad(reverse_index_map=reverse_index_map, grad_values=grad_values)


@named()
def ragged_fill_empty_rows(value_rowids: Any, values: Any, nrows: Any, default_value: Any) -> RaggedFillEmptyRowsOutput:
    """fill_empty_rows for values of which only the row is known: raw_ops.RaggedFillEmptyRows.

    Its gradient is fill_empty_rows_grad.

    Args:
      value_rowids: [n], int64: the row of each value.
      values: [n], numbers, bool or string.
      nrows: the number of rows.
      default_value: the value that an empty row gets.

    Returns:
      (output_value_rowids, output_values, empty_row_indicator, reverse_index_map), as from fill_empty_rows.

    >>> from raggrad import ops
    >>> ops.ragged_fill_empty_rows([0, 2], [1.5, 2.5], nrows=3, default_value=0.0).output_values.tolist()
    [1.5, 0.0, 2.5]
    """
    return raw_ops.RaggedFillEmptyRows(
        value_rowids=value_rowids, values=values, nrows=nrows, default_value=default_value
    )


@named()
def slice(indices: Any, values: Any, shape: Any, start: Any, size: Any) -> SparseSliceOutput:
    """Cuts the box [start, start + size) out of a sparse array: raw_ops.SparseSlice.

    Args:
      indices: [n, d], int64, in any order.
      values: [n], numbers, bool or string.
      shape, start, size: [d], int64.

    Returns:
      (output_indices, output_values, output_shape): the entries in the box, in their order, with indices counted from
      `start`. output_shape is `size`, or less where the box ends beyond `shape`.

    >>> from raggrad import ops
    >>> out = ops.slice([[0, 1], [2, 3]], [5.0, 7.0], shape=[4, 4], start=[2, 0], size=[2, 4])
    >>> out.output_indices.tolist(), out.output_values.tolist(), out.output_shape.tolist()
    ([[0, 3]], [7.0], [2, 4])
    """
    return raw_ops.SparseSlice(indices=indices, values=values, shape=shape, start=start, size=size)


@named(backprop_val_grad="grad")
def slice_grad(grad: Any, input_indices: Any, input_start: Any, output_indices: Any) -> Any:
    """Gradient of slice with respect to values: raw_ops.SparseSliceGrad.

    Args:
      grad: [m], numbers: the gradient of output_values.
      input_indices: [n, d], int64: the indices that slice got.
      input_start: [d], int64: its start.
      output_indices: [m, d], int64: the indices that it returned.

    Returns:
      [n]; zeros for entries outside of the box.

    >>> from raggrad import ops
    >>> ops.slice_grad([5.0], [[0, 1], [2, 3]], input_start=[2, 0], output_indices=[[0, 3]]).tolist()
    [0.0, 5.0]
    """
    return raw_ops.SparseSliceGrad(
        backprop_val_grad=grad, input_indices=input_indices, input_start=input_start, output_indices=output_indices
    )


@named(rt_nested_splits="ragged.nested_splits", rt_dense_values="ragged.values")
def unstack(ragged: Ragged) -> VariantArray:
    """Cuts a ragged array into its rows, which share one copy of the values: raw_ops.RaggedTensorToVariant.

    Args:
      ragged: a raggrad.Ragged.

    Returns:
      A raggrad.VariantArray with one Ragged for each row, with one level of splits fewer, if there are any.

    >>> from raggrad import Ragged, ops
    >>> [row.values.tolist() for row in ops.unstack(Ragged.from_lists([[1.0, 2.0], [3.0]]))]
    [[1.0, 2.0], [3.0]]
    """
    _check_ragged("unstack", ragged)
    return raw_ops.RaggedTensorToVariant(
        rt_nested_splits=ragged.nested_splits, rt_dense_values=ragged.values, batched_input=True
    )


@named(encoded_ragged_grad="grad", row_splits="ragged.nested_splits[0]", dense_values_shape="ragged.values.shape")
def unstack_grad(grad: Any, ragged: Ragged) -> Any:
    """Gradient of unstack with respect to ragged.values: raw_ops.RaggedTensorToVariantGradient.

    Args:
      grad: one raggrad.Ragged for each row, in a list or a VariantArray; None stands for zeros.
      ragged: what unstack got.

    Returns:
      An array of the shape of ragged.values.

    >>> from raggrad import Ragged, ops
    >>> ragged = Ragged.from_lists([[1.0, 2.0], [3.0]])
    >>> ops.unstack_grad([Ragged([], ragged.values[:2]), None], ragged).tolist()
    [1.0, 2.0, 0.0]
    """
    _check_ragged("unstack_grad", ragged)
    values = _core.tensor_of(ragged.values, "unstack_grad", "ragged.values")
    return raw_ops.RaggedTensorToVariantGradient(
        encoded_ragged_grad=grad,
        row_splits=ragged.nested_splits[0] if ragged.nested_splits else 0,
        dense_values_shape=list(values.shape),
        Tvalues=values.dtype,
    )


@named(encoded_ragged="rows")
def stack(rows: Any) -> Ragged:
    """Puts ragged rows of one depth together: raw_ops.RaggedTensorFromVariant. The way back from unstack.

    Args:
      rows: raggrad.Ragged with the same number of levels, in a list or a VariantArray.

    Returns:
      A raggrad.Ragged with one level more for each dimension of `rows`.

    >>> from raggrad import Ragged, ops
    >>> ops.stack([Ragged([], [1.0, 2.0]), Ragged([], [3.0])]).nested_splits[0].tolist()
    [0, 2, 3]
    """
    pieces = rows if isinstance(rows, VariantArray) else VariantArray(rows)
    elements, shape = variant_parts(pieces, "stack")
    given = (elements[i] for i in range(len(elements)))
    first = next((piece for piece in given if piece is not None), Ragged([], []))
    depth = first.ragged_rank
    splits = first.nested_splits[0] if depth else []
    out = raw_ops.RaggedTensorFromVariant(
        encoded_ragged=pieces,
        input_ragged_rank=depth,
        output_ragged_rank=depth + len(shape),
        Tvalues=_core.tensor_of(first.values, "stack", "values of a row").dtype,
        Tsplits=_core.tensor_of(splits, "stack", "nested_splits[0] of a row", "int64").dtype,
    )
    return Ragged(out.output_nested_splits, out.output_dense_values)


def _check_ragged(op: str, value: Any) -> None:
    if not isinstance(value, Ragged):
        raise InvalidArgumentError(f"{op}: ragged: expected a raggrad.Ragged, got {type(value).__name__}")
