"""Operators on irregular data (sparse, ragged, batched) and their gradients.

They give TensorFlow's exact results and do not need TensorFlow.

>>> import numpy as np, raggrad
>>> grad = np.float32([[2.0, 4.0], [1.0, 1.0]])
>>> r = raggrad.raw_ops.SparseSegmentMeanGradV2(
...     grad=grad, indices=[7, 3, 7], segment_ids=[0, 0, 1], dense_output_dim0=1_000_000)
>>> r.sorted_unique_indices
array([3, 7], dtype=int32)
>>> r.output
array([[1., 2.],
       [2., 3.]], dtype=float32)
"""

from . import _signatures as _signatures
from . import batching, errors, ops, optimizers, raw_ops, typing
from ._core import SegmentPlan, Tensor
from ._core import version as _version
from .indexed_slices import IndexedSlices
from .ragged import Ragged, VariantArray
from .settings import (
    accumulation,
    get_memory_limit,
    get_memory_pool,
    get_num_threads,
    set_memory_limit,
    set_memory_pool,
    set_num_threads,
)

__version__ = _version()

__all__ = [
    "IndexedSlices",
    "Ragged",
    "SegmentPlan",
    "Tensor",
    "VariantArray",
    "accumulation",
    "batching",
    "errors",
    "get_memory_limit",
    "get_memory_pool",
    "get_num_threads",
    "ops",
    "optimizers",
    "raw_ops",
    "set_memory_limit",
    "set_memory_pool",
    "set_num_threads",
    "typing",
]
