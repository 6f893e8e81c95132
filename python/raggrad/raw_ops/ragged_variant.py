"""Ragged tensors as arrays of variants: RaggedTensorToVariant, its way back and its gradient."""

from __future__ import annotations

from typing import Any

from .. import _core
from ..ragged import variant_parts


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
