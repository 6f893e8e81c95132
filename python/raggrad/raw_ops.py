"""The operators, under TensorFlow's names, with the arguments, defaults and outputs of tf.raw_ops.

All arguments are keywords. Arrays may be NumPy arrays (bfloat16 as ml_dtypes.bfloat16, strings as arrays of bytes),
torch, JAX or TensorFlow arrays on the CPU, anything else with __dlpack__, raggrad.Tensor, or Python numbers and lists.
They are not copied if they are contiguous, and never converted: an array of another dtype is an InvalidArgumentError.
Numbers and lists take the dtype that the argument asks for. torch tensors that require gradients are read as if
detached: these are raw operators.

Outputs are of the kind of the first value input: NumPy in, NumPy out; torch in, torch out. Quantized types come back
as raggrad.Tensor. Attributes that the inputs imply (T, Tidx, ...) may be given and then have to agree. `name` is
ignored.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from . import _core
from .ragged import variant_parts
from .settings import fast_accumulation

__all__ = [
    "FillEmptyRowsGradOutput",
    "RaggedFillEmptyRowsGrad",
    "RaggedTensorToVariantGradient",
    "SparseFillEmptyRowsGrad",
    "SparseSegmentGradV2Output",
    "SparseSegmentMeanGrad",
    "SparseSegmentMeanGradV2",
    "SparseSegmentSqrtNGrad",
    "SparseSegmentSqrtNGradV2",
    "SparseSegmentSumGrad",
    "SparseSegmentSumGradV2",
    "SparseSliceGrad",
]

_fast = fast_accumulation.get
_tuple = tuple.__new__  # makes a named tuple without the detour over its constructor


class SparseSegmentGradV2Output(NamedTuple):
    output: Any
    sorted_unique_indices: Any


class FillEmptyRowsGradOutput(NamedTuple):
    d_values: Any
    d_default_value: Any


def SparseSegmentSumGradV2(
    *,
    grad: Any,
    indices: Any,
    segment_ids: Any,
    dense_output_dim0: Any,
    T: Any = None,
    Tidx: Any = None,
    Tsegmentids: Any = None,
    name: str | None = None,
) -> SparseSegmentGradV2Output:
    """Gradient of SparseSegmentSum with respect to the table, only the rows that were used.

    Row r is the sum of grad[segment_ids[i]] over all i with indices[i] == r, in the order of i.

    Args:
      grad: [segments, ...], half, bfloat16, float32 or float64.
      indices: [n], int32 or int64, in [0, dense_output_dim0).
      segment_ids: [n], int32 or int64, in [0, segments), in any order.
      dense_output_dim0: int32 scalar, the number of rows of the table.

    Returns:
      output: [u, ...], one row for each distinct index.
      sorted_unique_indices: [u], their numbers, ascending.

    >>> import numpy as np
    >>> from raggrad import raw_ops
    >>> r = raw_ops.SparseSegmentSumGradV2(
    ...     grad=np.float32([[1, 2], [10, 20]]), indices=[4, 0, 4], segment_ids=[0, 0, 1], dense_output_dim0=5)
    >>> print(r.sorted_unique_indices, r.output.tolist())
    [0 4] [[1.0, 2.0], [11.0, 22.0]]
    """
    return _tuple(
        SparseSegmentGradV2Output,
        _core.SparseSegmentSumGradV2(grad, indices, segment_ids, dense_output_dim0, T, Tidx, Tsegmentids, _fast()),
    )


def SparseSegmentMeanGradV2(
    *,
    grad: Any,
    indices: Any,
    segment_ids: Any,
    dense_output_dim0: Any,
    T: Any = None,
    Tidx: Any = None,
    Tsegmentids: Any = None,
    name: str | None = None,
) -> SparseSegmentGradV2Output:
    """Gradient of SparseSegmentMean with respect to the table, only the rows that were used.

    Row r is the sum of grad[s] / count(s), s = segment_ids[i], over all i with indices[i] == r, in the order of i;
    count(s) is how often s occurs in segment_ids. Arguments and outputs are those of SparseSegmentSumGradV2.

    >>> import numpy as np
    >>> from raggrad import raw_ops
    >>> r = raw_ops.SparseSegmentMeanGradV2(
    ...     grad=np.float32([[1, 2], [10, 20]]), indices=[4, 0, 4], segment_ids=[0, 0, 1], dense_output_dim0=5)
    >>> print(r.sorted_unique_indices, r.output.tolist())
    [0 4] [[0.5, 1.0], [10.5, 21.0]]
    """
    return _tuple(
        SparseSegmentGradV2Output,
        _core.SparseSegmentMeanGradV2(grad, indices, segment_ids, dense_output_dim0, T, Tidx, Tsegmentids, _fast()),
    )


def SparseSegmentSqrtNGradV2(
    *,
    grad: Any,
    indices: Any,
    segment_ids: Any,
    dense_output_dim0: Any,
    T: Any = None,
    Tidx: Any = None,
    Tsegmentids: Any = None,
    name: str | None = None,
) -> SparseSegmentGradV2Output:
    """Gradient of SparseSegmentSqrtN with respect to the table, only the rows that were used.

    Row r is the sum of grad[s] / sqrt(count(s)), s = segment_ids[i], over all i with indices[i] == r, in the order of
    i; count(s) is how often s occurs in segment_ids. Arguments and outputs are those of SparseSegmentSumGradV2.

    >>> import numpy as np
    >>> from raggrad import raw_ops
    >>> r = raw_ops.SparseSegmentSqrtNGradV2(
    ...     grad=np.float32([[8]]), indices=[1, 1, 2, 3], segment_ids=[0, 0, 0, 0], dense_output_dim0=5)
    >>> print(r.sorted_unique_indices, r.output.tolist())
    [1 2 3] [[8.0], [4.0], [4.0]]
    """
    return _tuple(
        SparseSegmentGradV2Output,
        _core.SparseSegmentSqrtNGradV2(grad, indices, segment_ids, dense_output_dim0, T, Tidx, Tsegmentids, _fast()),
    )


def SparseSegmentSumGrad(
    *,
    grad: Any,
    indices: Any,
    segment_ids: Any,
    output_dim0: Any,
    T: Any = None,
    Tidx: Any = None,
    Tsegmentids: Any = None,
    name: str | None = None,
) -> Any:
    """Gradient of SparseSegmentSum with respect to the table, as a dense array.

    The rows of SparseSegmentSumGradV2 in their places; all other rows are 0. Arguments as there;
    output_dim0 is the int32 number of rows.

    Returns:
      output: [output_dim0, ...].

    >>> import numpy as np
    >>> from raggrad import raw_ops
    >>> raw_ops.SparseSegmentSumGrad(
    ...     grad=np.float32([[1], [10]]), indices=[2, 0, 2], segment_ids=[0, 0, 1], output_dim0=3).tolist()
    [[1.0], [0.0], [11.0]]
    """
    return _core.SparseSegmentSumGrad(grad, indices, segment_ids, output_dim0, T, Tidx, Tsegmentids, _fast())


def SparseSegmentMeanGrad(
    *,
    grad: Any,
    indices: Any,
    segment_ids: Any,
    output_dim0: Any,
    T: Any = None,
    Tidx: Any = None,
    Tsegmentids: Any = None,
    name: str | None = None,
) -> Any:
    """Gradient of SparseSegmentMean with respect to the table, as a dense array.

    The rows of SparseSegmentMeanGradV2 in their places; all other rows are 0. Arguments as there;
    output_dim0 is the int32 number of rows.

    Returns:
      output: [output_dim0, ...].

    >>> import numpy as np
    >>> from raggrad import raw_ops
    >>> raw_ops.SparseSegmentMeanGrad(
    ...     grad=np.float32([[1], [10]]), indices=[2, 0, 2], segment_ids=[0, 0, 1], output_dim0=3).tolist()
    [[0.5], [0.0], [10.5]]
    """
    return _core.SparseSegmentMeanGrad(grad, indices, segment_ids, output_dim0, T, Tidx, Tsegmentids, _fast())


def SparseSegmentSqrtNGrad(
    *,
    grad: Any,
    indices: Any,
    segment_ids: Any,
    output_dim0: Any,
    T: Any = None,
    Tidx: Any = None,
    Tsegmentids: Any = None,
    name: str | None = None,
) -> Any:
    """Gradient of SparseSegmentSqrtN with respect to the table, as a dense array.

    The rows of SparseSegmentSqrtNGradV2 in their places; all other rows are 0. Arguments as there;
    output_dim0 is the int32 number of rows.

    Returns:
      output: [output_dim0, ...].

    >>> import numpy as np
    >>> from raggrad import raw_ops
    >>> raw_ops.SparseSegmentSqrtNGrad(
    ...     grad=np.float32([[8]]), indices=[1, 1, 2, 3], segment_ids=[0, 0, 0, 0], output_dim0=4).tolist()
    [[0.0], [8.0], [4.0], [4.0]]
    """
    return _core.SparseSegmentSqrtNGrad(grad, indices, segment_ids, output_dim0, T, Tidx, Tsegmentids, _fast())


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


def RaggedTensorToVariantGradient(
    *,
    encoded_ragged_grad: Any,
    row_splits: Any,
    dense_values_shape: Any,
    Tvalues: Any,
    Tsplits: Any = None,
    name: str | None = None,
) -> Any:
    """Gradient of RaggedTensorToVariant with respect to the dense values.

    Args:
      encoded_ragged_grad: raggrad.VariantArray, or a (nested) list of raggrad.Ragged and None. None stands for zeros.
      row_splits: [rows + 1], int32 or int64: the outermost splits of the forward's input; a scalar if it had none.
      dense_values_shape: [rank], int32: the shape of the forward's values.
      Tvalues: the dtype of the values: a name, a NumPy dtype, tf.DType or torch.dtype.

    Returns:
      dense_values_grad: the values of all elements, one after the other, in dense_values_shape.

    >>> from raggrad import Ragged, raw_ops
    >>> raw_ops.RaggedTensorToVariantGradient(
    ...     encoded_ragged_grad=[Ragged([], [1.0, 2.0]), None], row_splits=[0, 2, 3], dense_values_shape=[3],
    ...     Tvalues="float32").tolist()
    [1.0, 2.0, 0.0]
    """
    elements, shape = variant_parts(encoded_ragged_grad, "RaggedTensorToVariantGradient: encoded_ragged_grad")
    return _core.RaggedTensorToVariantGradient(elements, shape, row_splits, dense_values_shape, Tvalues, Tsplits)
