"""A window of a sparse array: SparseSlice and its gradient."""

from __future__ import annotations

from typing import Any

from .. import _core


def SparseSliceGrad(
    *,
    backprop_val_grad: Any,
    input_indices: Any,
    input_start: Any,
    output_indices: Any,
    T: Any = None,
    name: str | None = None,
) -> Any:
    """Gradient of SparseSlice with respect to the values.

    Args:
      backprop_val_grad: [m], the numbers of SparseFillEmptyRowsGrad or qint8, quint8, qint32.
      input_indices: [n, d], int64: the entries before the slice.
      input_start: [d], int64: where the slice starts.
      output_indices: [m, d], int64: the entries of the slice, in the same order.

    Returns:
      val_grad: [n], the gradient where an entry is in the slice, otherwise 0.

    >>> from raggrad import raw_ops
    >>> raw_ops.SparseSliceGrad(
    ...     backprop_val_grad=[5.0], input_indices=[[0, 1], [2, 3]], input_start=[2, 0],
    ...     output_indices=[[0, 3]]).tolist()
    [0.0, 5.0]
    """
    return _core.SparseSliceGrad(backprop_val_grad, input_indices, input_start, output_indices, T)
