"""A window of a sparse array: SparseSlice and its gradient."""

from __future__ import annotations

from typing import Any, NamedTuple

from .. import _core
from ..typing import ArrayLike, DTypeLike


class SparseSliceOutput(NamedTuple):
    """The entries that are kept, with indices counted from `start`, and the shape of the slice."""

    output_indices: Any
    output_values: Any
    output_shape: Any


def SparseSlice(
    *,
    indices: ArrayLike,
    values: ArrayLike,
    shape: ArrayLike,
    start: ArrayLike,
    size: ArrayLike,
    T: DTypeLike | None = None,
    name: str | None = None,
) -> SparseSliceOutput:
    """Keeps the entries with start <= index < start + size in every dimension, in their order.

    Args:
      indices: [n, d], int64, in any order.
      values: [n], half, bfloat16, float32, float64, [u]int8/16/32/64, complex64, complex128, bool or strings.
      shape: [d], int64: the shape of the sparse array.
      start, size: [d], int64: the box.

    Returns:
      output_indices: [m, d], moved by -start.
      output_values: [m].
      output_shape: [d]: size, cut off where the box leaves shape.

    >>> from raggrad import raw_ops
    >>> r = raw_ops.SparseSlice(
    ...     indices=[[0, 1], [2, 3]], values=[1.5, 2.5], shape=[4, 5], start=[1, 2], size=[2, 9])
    >>> r.output_indices.tolist(), r.output_values.tolist(), r.output_shape.tolist()
    ([[1, 1]], [2.5], [2, 3])
    """
    return _core.SparseSlice(indices, values, shape, start, size, T)


def SparseSliceGrad(
    *,
    backprop_val_grad: ArrayLike,
    input_indices: ArrayLike,
    input_start: ArrayLike,
    output_indices: ArrayLike,
    T: DTypeLike | None = None,
    name: str | None = None,
) -> Any:
    """Gradient of SparseSlice with respect to the values.

    Args:
      backprop_val_grad: [m], the types of SparseFillEmptyRowsGrad or qint8, quint8, qint32.
      input_indices: [n, d], int64: the entries before the slice.
      input_start: [d], int64: the start of the slice.
      output_indices: [m, d], int64: the entries of the slice, in the same order.

    Returns:
      val_grad: [n], the gradient of entries in the slice, 0 for the others.

    >>> from raggrad import raw_ops
    >>> raw_ops.SparseSliceGrad(
    ...     backprop_val_grad=[5.0], input_indices=[[0, 1], [2, 3]], input_start=[2, 0],
    ...     output_indices=[[0, 3]]).tolist()
    [0.0, 5.0]
    """
    return _core.SparseSliceGrad(backprop_val_grad, input_indices, input_start, output_indices, T)
