"""The operators, under TensorFlow's names, with the arguments, defaults and outputs of tf.raw_ops.

All arguments are keywords. Arrays may be NumPy arrays (bfloat16 as ml_dtypes.bfloat16, strings as arrays of bytes),
torch, JAX or TensorFlow arrays on the CPU, anything else with __dlpack__, raggrad.Tensor, or Python numbers and lists.
Contiguous arrays are not copied. No array is converted: one of another dtype raises InvalidArgumentError. Numbers and
lists take the dtype that the argument asks for. torch tensors that require gradients are read as if detached.

Outputs have the kind of the first value input: NumPy in, NumPy out; torch in, torch out. Quantized types come back as
raggrad.Tensor. Attributes that the inputs imply (T, Tidx, ...) may be given and must then agree. `name` is ignored.
TensorFlow has no argument for the order of sums: raggrad.accumulation(...) around the call sets it.
"""

from .batching import Batch, BatchOutput, Unbatch, UnbatchGrad
from .ragged_variant import (
    RaggedTensorFromVariant,
    RaggedTensorFromVariantOutput,
    RaggedTensorToVariant,
    RaggedTensorToVariantGradient,
)
from .sparse_fill_empty_rows import (
    FillEmptyRowsGradOutput,
    RaggedFillEmptyRows,
    RaggedFillEmptyRowsGrad,
    RaggedFillEmptyRowsOutput,
    SparseFillEmptyRows,
    SparseFillEmptyRowsGrad,
    SparseFillEmptyRowsOutput,
)
from .sparse_segment import (
    SparseSegmentMean,
    SparseSegmentMeanWithNumSegments,
    SparseSegmentSqrtN,
    SparseSegmentSqrtNWithNumSegments,
    SparseSegmentSum,
    SparseSegmentSumWithNumSegments,
)
from .sparse_segment_grad import (
    SparseSegmentGradV2Output,
    SparseSegmentMeanGrad,
    SparseSegmentMeanGradV2,
    SparseSegmentSqrtNGrad,
    SparseSegmentSqrtNGradV2,
    SparseSegmentSumGrad,
    SparseSegmentSumGradV2,
)
from .sparse_slice import SparseSlice, SparseSliceGrad, SparseSliceOutput

__all__ = [
    "Batch",
    "BatchOutput",
    "FillEmptyRowsGradOutput",
    "RaggedFillEmptyRows",
    "RaggedFillEmptyRowsGrad",
    "RaggedFillEmptyRowsOutput",
    "RaggedTensorFromVariant",
    "RaggedTensorFromVariantOutput",
    "RaggedTensorToVariant",
    "RaggedTensorToVariantGradient",
    "SparseFillEmptyRows",
    "SparseFillEmptyRowsGrad",
    "SparseFillEmptyRowsOutput",
    "SparseSegmentGradV2Output",
    "SparseSegmentMean",
    "SparseSegmentMeanGrad",
    "SparseSegmentMeanGradV2",
    "SparseSegmentMeanWithNumSegments",
    "SparseSegmentSqrtN",
    "SparseSegmentSqrtNGrad",
    "SparseSegmentSqrtNGradV2",
    "SparseSegmentSqrtNWithNumSegments",
    "SparseSegmentSum",
    "SparseSegmentSumGrad",
    "SparseSegmentSumGradV2",
    "SparseSegmentSumWithNumSegments",
    "SparseSlice",
    "SparseSliceGrad",
    "SparseSliceOutput",
    "Unbatch",
    "UnbatchGrad",
]
