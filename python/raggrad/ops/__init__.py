"""The operators by the names people expect, with gradients of tables as IndexedSlices.

raw_ops has the same kernels, with the same bits, under TensorFlow's names and signatures.

>>> import numpy as np
>>> from raggrad import ops, optimizers
>>> table = np.arange(10, dtype=np.float32).reshape(5, 2)
>>> pooled = ops.sparse_segment_mean(table, indices=[4, 0, 4], segment_ids=[0, 0, 1])
>>> pooled.tolist()
[[4.0, 5.0], [8.0, 9.0]]
>>> grad = ops.sparse_segment_mean_grad(np.ones_like(pooled), indices=[4, 0, 4], segment_ids=[0, 0, 1], num_rows=5)
>>> grad.apply_(table, optimizers.SGD(learning_rate=1.0))
>>> table.tolist()
[[-0.5, 0.5], [2.0, 3.0], [4.0, 5.0], [6.0, 7.0], [6.5, 7.5]]
"""

from .lookup import (
    LookupGrad,
    embedding_lookup_sparse,
    embedding_lookup_sparse_grad,
    safe_embedding_lookup_sparse,
    safe_embedding_lookup_sparse_grad,
)
from .segments import (
    segment_mean,
    segment_mean_grad,
    segment_sqrtn,
    segment_sqrtn_grad,
    segment_sum,
    segment_sum_grad,
)
from .sparse import (
    fill_empty_rows,
    fill_empty_rows_grad,
    ragged_fill_empty_rows,
    slice_grad,
    stack,
    unstack,
    unstack_grad,
)
from .sparse import (
    slice as slice,
)
from .sparse_segments import (
    sparse_segment_mean,
    sparse_segment_mean_grad,
    sparse_segment_mean_grad_apply_,
    sparse_segment_mean_weights_grad,
    sparse_segment_sqrtn,
    sparse_segment_sqrtn_grad,
    sparse_segment_sqrtn_grad_apply_,
    sparse_segment_sqrtn_weights_grad,
    sparse_segment_sum,
    sparse_segment_sum_grad,
    sparse_segment_sum_grad_apply_,
    sparse_segment_sum_weights_grad,
)

# Without slice, so that `from raggrad.ops import *` does not hide Python's own.
__all__ = [
    "LookupGrad",
    "embedding_lookup_sparse",
    "embedding_lookup_sparse_grad",
    "fill_empty_rows",
    "fill_empty_rows_grad",
    "ragged_fill_empty_rows",
    "safe_embedding_lookup_sparse",
    "safe_embedding_lookup_sparse_grad",
    "segment_mean",
    "segment_mean_grad",
    "segment_sqrtn",
    "segment_sqrtn_grad",
    "segment_sum",
    "segment_sum_grad",
    "slice_grad",
    "sparse_segment_mean",
    "sparse_segment_mean_grad",
    "sparse_segment_mean_grad_apply_",
    "sparse_segment_mean_weights_grad",
    "sparse_segment_sqrtn",
    "sparse_segment_sqrtn_grad",
    "sparse_segment_sqrtn_grad_apply_",
    "sparse_segment_sqrtn_weights_grad",
    "sparse_segment_sum",
    "sparse_segment_sum_grad",
    "sparse_segment_sum_grad_apply_",
    "sparse_segment_sum_weights_grad",
    "stack",
    "unstack",
    "unstack_grad",
]
