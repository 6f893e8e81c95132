"""Calls with bad ids, splits and shapes. The error texts are the same in host memory and on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from device_calls import INDICES, SPLITS, TABLE, UNSORTED, WEIGHTS, Sparse
from raggrad import IndexedSlices, Ragged, ops

BAD_IDS: dict[str, Callable[[Any], Any]] = {
    "segment_sum": lambda put: ops.segment_sum(put(TABLE), put(UNSORTED - 1)),
    "segment_sum with a number": lambda put: ops.segment_sum(put(TABLE), put(UNSORTED), 4),
    "segment_sum of too few": lambda put: ops.segment_sum(put(TABLE), put(UNSORTED[:4])),
    "segment_sum of floats": lambda put: ops.segment_sum(put(TABLE), put(UNSORTED.astype(np.float32))),
    "segment_sum of a matrix": lambda put: ops.segment_sum(put(TABLE), put(UNSORTED.reshape(-1, 1))),
    "segment_mean_grad": lambda put: ops.segment_mean_grad(put(TABLE[:3]), put(UNSORTED)),
    "lookup": lambda put: ops.embedding_lookup_sparse(put(TABLE[:9]), Ragged([SPLITS], put(INDICES))),
    "lookup with weights": lambda put: ops.embedding_lookup_sparse(
        put(TABLE[:9]), Ragged([SPLITS], put(INDICES)), put(WEIGHTS)
    ),
    "lookup with few weights": lambda put: ops.embedding_lookup_sparse(
        put(TABLE), Ragged([SPLITS], put(INDICES)), put(WEIGHTS[:3])
    ),
    "lookup with other weights": lambda put: ops.embedding_lookup_sparse(
        put(TABLE), Ragged([SPLITS], put(INDICES)), Ragged([np.array([0, 1, 5, 5, 7, 8])], put(WEIGHTS))
    ),
    "lookup of bad splits": lambda put: ops.embedding_lookup_sparse(
        put(TABLE), Ragged([np.array([0, 5, 2, 5, 7, 8])], put(INDICES))
    ),
    "lookup of bad splits on the device": lambda put: ops.embedding_lookup_sparse(
        put(TABLE), Ragged([put(np.array([0, 5, 2, 5, 7, 8]))], put(INDICES))
    ),
    "lookup of unordered examples": lambda put: ops.embedding_lookup_sparse(
        put(TABLE), Sparse(put(np.array([[1, 0], [0, 0]])), put(INDICES[:2]), np.array([2, 9])), put(WEIGHTS[:2])
    ),
    "lookup of too many examples": lambda put: ops.embedding_lookup_sparse(
        put(TABLE), Sparse(put(np.array([[1, 0], [5, 0]])), put(INDICES[:2]), np.array([2, 9])), put(WEIGHTS[:2])
    ),
    "safe lookup": lambda put: ops.safe_embedding_lookup_sparse(put(TABLE[:9]), Ragged([SPLITS], put(INDICES))),
    "lookup grad of another shape": lambda put: ops.embedding_lookup_sparse_grad(
        put(TABLE), put(TABLE), Ragged([SPLITS], put(INDICES))
    ),
    "lookup of integers": lambda put: ops.embedding_lookup_sparse(put(INDICES), Ragged([SPLITS], put(INDICES))),
    "lookup in other shards": lambda put: ops.embedding_lookup_sparse(
        [put(TABLE), put(TABLE[:, :2].copy())], Ragged([SPLITS], put(INDICES))
    ),
    "slices + slices": lambda put: (
        IndexedSlices(put(TABLE), put(UNSORTED), (11, 3))
        + IndexedSlices(put(TABLE.astype(np.float64)), put(UNSORTED), (11, 3))
    ),
    "coalesce": lambda put: IndexedSlices(put(TABLE), put(UNSORTED), (4, 3)).coalesce(),
    "a mask of numbers": lambda put: Ragged([SPLITS], put(WEIGHTS))[Ragged([SPLITS], put(WEIGHTS))],
}
