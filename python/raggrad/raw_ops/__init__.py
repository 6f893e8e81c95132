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

from .fill_empty_rows import FillEmptyRowsGradOutput, RaggedFillEmptyRowsGrad, SparseFillEmptyRowsGrad
from .ragged_variant import RaggedTensorToVariantGradient
from .sparse_segment import (
    SparseSegmentGradV2Output,
    SparseSegmentMeanGrad,
    SparseSegmentMeanGradV2,
    SparseSegmentSqrtNGrad,
    SparseSegmentSqrtNGradV2,
    SparseSegmentSumGrad,
    SparseSegmentSumGradV2,
)
from .sparse_slice import SparseSliceGrad

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
