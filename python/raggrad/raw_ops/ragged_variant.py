"""Ragged tensors as arrays of variants: RaggedTensorToVariant, its inverse and its gradient."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from .. import _core
from ..errors import InvalidArgumentError
from ..ragged import Ragged, VariantArray, variant_parts
from ..typing import ArrayLike, DTypeLike


class RaggedTensorFromVariantOutput(NamedTuple):
    """A ragged tensor: its levels of splits, outermost first, and its values."""

    output_nested_splits: list[Any]
    output_dense_values: Any


def RaggedTensorToVariant(
    *,
    rt_nested_splits: Sequence[ArrayLike],
    rt_dense_values: ArrayLike,
    batched_input: bool,
    Tvalues: DTypeLike | None = None,
    Tsplits: DTypeLike | None = None,
    name: str | None = None,
) -> VariantArray:
    """Cuts a ragged tensor into its rows.

    Args:
      rt_nested_splits: list of [rows + 1], int32 or int64, outermost first: the splits of the ragged tensor.
      rt_dense_values: its values.
      batched_input: whether to cut. If not, the result is a scalar that holds the whole ragged tensor.

    Returns:
      encoded_ragged: a raggrad.VariantArray. Its elements share one copy of the values.

    >>> from raggrad import raw_ops
    >>> raw_ops.RaggedTensorToVariant(
    ...     rt_nested_splits=[[0, 2, 3]], rt_dense_values=[1.0, 2.0, 3.0], batched_input=True)
    VariantArray([
        Ragged([1., 2.], dtype='float32', shape=[2]),
        Ragged([3.], dtype='float32', shape=[1]),
    ], shape=(2,))
    """
    if not isinstance(rt_nested_splits, (list, tuple)):
        raise InvalidArgumentError(
            "RaggedTensorToVariant: rt_nested_splits: expected a list with one array of splits per ragged level, "
            f"got {type(rt_nested_splits).__name__}"
        )
    batched = bool(batched_input)
    pieces = _core.RaggedTensorToVariant(list(rt_nested_splits), rt_dense_values, batched, Tvalues, Tsplits)
    return VariantArray.of_pieces(pieces, (len(pieces),) if batched else ())


def RaggedTensorFromVariant(
    *,
    encoded_ragged: VariantArray | Ragged | Sequence[Any] | None,
    input_ragged_rank: int,
    output_ragged_rank: int,
    Tvalues: DTypeLike,
    Tsplits: DTypeLike = "int64",
    name: str | None = None,
) -> RaggedTensorFromVariantOutput:
    """Puts the elements of an array together; the inverse of RaggedTensorToVariant.

    Args:
      encoded_ragged: raggrad.VariantArray, or a (nested) list of raggrad.Ragged. Its rank is d.
      input_ragged_rank: how many levels of splits each element has; -1: output_ragged_rank - d.
      output_ragged_rank: how many levels the result has: input_ragged_rank + d; or 0, to stack values of one shape.
      Tvalues: the dtype of the values: a name, a NumPy dtype, tf.DType or torch.dtype.
      Tsplits: the dtype of the splits.

    Returns:
      output_nested_splits: list of splits, outermost first.
      output_dense_values: the values of all elements, one after the other.

    >>> from raggrad import Ragged, raw_ops
    >>> r = raw_ops.RaggedTensorFromVariant(
    ...     encoded_ragged=[Ragged([], [1.0, 2.0]), Ragged([], [3.0])], input_ragged_rank=-1, output_ragged_rank=1,
    ...     Tvalues="float32")
    >>> r.output_nested_splits[0].tolist(), r.output_dense_values.tolist()
    ([0, 2, 3], [1.0, 2.0, 3.0])
    """
    elements, shape = variant_parts(encoded_ragged, "RaggedTensorFromVariant: encoded_ragged")
    splits, values = _core.RaggedTensorFromVariant(
        elements, shape, input_ragged_rank, output_ragged_rank, Tvalues, Tsplits
    )
    return RaggedTensorFromVariantOutput(splits, values)


def RaggedTensorToVariantGradient(
    *,
    encoded_ragged_grad: VariantArray | Ragged | Sequence[Any] | None,
    row_splits: ArrayLike,
    dense_values_shape: ArrayLike,
    Tvalues: DTypeLike,
    Tsplits: DTypeLike | None = None,
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
