"""Rows without entries get one: SparseFillEmptyRows, RaggedFillEmptyRows and their gradients."""

from __future__ import annotations

from typing import Any, NamedTuple

from .. import _core
from ..settings import fast_accumulation

_fast = fast_accumulation.get
_tuple = tuple.__new__  # makes a named tuple without the detour over its constructor


class FillEmptyRowsGradOutput(NamedTuple):
    d_values: Any
    d_default_value: Any


def SparseFillEmptyRowsGrad(
    *, reverse_index_map: Any, grad_values: Any, T: Any = None, name: str | None = None
) -> FillEmptyRowsGradOutput:
    """Gradient of SparseFillEmptyRows.

    Args:
      reverse_index_map: [n], int64: where the forward put entry i, in [0, n_full).
      grad_values: [n_full], half, bfloat16, float32, float64, [u]int8/16/32/64, complex64 or complex128.

    Returns:
      d_values: [n], grad_values[reverse_index_map].
      d_default_value: scalar, the sum of the grad_values that the map does not name.

    >>> from raggrad import raw_ops
    >>> r = raw_ops.SparseFillEmptyRowsGrad(reverse_index_map=[0, 2], grad_values=[1.0, 20.0, 3.0, 40.0])
    >>> print(r.d_values, r.d_default_value)
    [1. 3.] 60.0
    """
    return _tuple(FillEmptyRowsGradOutput, _core.SparseFillEmptyRowsGrad(reverse_index_map, grad_values, T, _fast()))


def RaggedFillEmptyRowsGrad(
    *, reverse_index_map: Any, grad_values: Any, T: Any = None, name: str | None = None
) -> FillEmptyRowsGradOutput:
    """Gradient of RaggedFillEmptyRows. The same as SparseFillEmptyRowsGrad.

    >>> from raggrad import raw_ops
    >>> r = raw_ops.RaggedFillEmptyRowsGrad(reverse_index_map=[1], grad_values=[5, 7, 5])
    >>> print(r.d_values, r.d_default_value)
    [7] 10
    """
    return _tuple(FillEmptyRowsGradOutput, _core.RaggedFillEmptyRowsGrad(reverse_index_map, grad_values, T, _fast()))
