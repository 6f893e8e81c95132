"""Pooled embeddings: SparseSegment{Sum,Mean,SqrtN} and ...WithNumSegments."""

from __future__ import annotations

from typing import Any

from .. import _core
from ..settings import current_accumulation
from ..typing import ArrayLike, DTypeLike

_accumulation = current_accumulation.get


def SparseSegmentSum(
    *,
    data: ArrayLike,
    indices: ArrayLike,
    segment_ids: ArrayLike,
    sparse_gradient: bool = False,
    T: DTypeLike | None = None,
    Tidx: DTypeLike | None = None,
    Tsegmentids: DTypeLike | None = None,
    name: str | None = None,
) -> Any:
    """Row s of the output is the sum of data[indices[i]] over all i with segment_ids[i] == s.

    Args:
      data: [rows, ...], half, bfloat16, float32, float64, or integers of any size.
      indices: [n], int32 or int64, in [0, rows).
      segment_ids: [n], int32 or int64, ascending; may skip numbers.
      sparse_gradient: has no effect; both forms of the gradient are operators of their own.

    Returns:
      output: [last segment id + 1, ...]; zeros for segments that no id names.

    >>> import numpy as np
    >>> from raggrad import raw_ops
    >>> raw_ops.SparseSegmentSum(
    ...     data=np.float32([[1], [2], [4]]), indices=[0, 1, 2], segment_ids=[0, 0, 2]).tolist()
    [[3.0], [0.0], [4.0]]
    """
    return _core.SparseSegmentSum(data, indices, segment_ids, T, Tidx, Tsegmentids, _accumulation())


def SparseSegmentSumWithNumSegments(
    *,
    data: ArrayLike,
    indices: ArrayLike,
    segment_ids: ArrayLike,
    num_segments: ArrayLike,
    sparse_gradient: bool = False,
    T: DTypeLike | None = None,
    Tidx: DTypeLike | None = None,
    Tsegmentids: DTypeLike | None = None,
    Tnumsegments: DTypeLike | None = None,
    name: str | None = None,
) -> Any:
    """SparseSegmentSum with a given number of rows: [num_segments, ...].

    num_segments: scalar, int32 or int64, above the last segment id.

    >>> import numpy as np
    >>> from raggrad import raw_ops
    >>> raw_ops.SparseSegmentSumWithNumSegments(
    ...     data=np.float32([[1], [2], [4]]), indices=[0, 1, 2], segment_ids=[0, 0, 2], num_segments=4).tolist()
    [[3.0], [0.0], [4.0], [0.0]]
    """
    return _core.SparseSegmentSumWithNumSegments(
        data, indices, segment_ids, num_segments, T, Tidx, Tsegmentids, Tnumsegments, _accumulation()
    )


def SparseSegmentMean(
    *,
    data: ArrayLike,
    indices: ArrayLike,
    segment_ids: ArrayLike,
    sparse_gradient: bool = False,
    T: DTypeLike | None = None,
    Tidx: DTypeLike | None = None,
    Tsegmentids: DTypeLike | None = None,
    name: str | None = None,
) -> Any:
    """Row s of the output is the mean of data[indices[i]] over all i with segment_ids[i] == s.

    Arguments and output are those of SparseSegmentSum, without integers.

    >>> import numpy as np
    >>> from raggrad import raw_ops
    >>> raw_ops.SparseSegmentMean(
    ...     data=np.float32([[1], [2], [4]]), indices=[0, 1, 2], segment_ids=[0, 0, 2]).tolist()
    [[1.5], [0.0], [4.0]]
    """
    return _core.SparseSegmentMean(data, indices, segment_ids, T, Tidx, Tsegmentids, _accumulation())


def SparseSegmentMeanWithNumSegments(
    *,
    data: ArrayLike,
    indices: ArrayLike,
    segment_ids: ArrayLike,
    num_segments: ArrayLike,
    sparse_gradient: bool = False,
    T: DTypeLike | None = None,
    Tidx: DTypeLike | None = None,
    Tsegmentids: DTypeLike | None = None,
    Tnumsegments: DTypeLike | None = None,
    name: str | None = None,
) -> Any:
    """SparseSegmentMean with a given number of rows: [num_segments, ...].

    num_segments: scalar, int32 or int64, above the last segment id.

    >>> import numpy as np
    >>> from raggrad import raw_ops
    >>> raw_ops.SparseSegmentMeanWithNumSegments(
    ...     data=np.float32([[1], [2], [4]]), indices=[0, 1, 2], segment_ids=[0, 0, 2], num_segments=4).tolist()
    [[1.5], [0.0], [4.0], [0.0]]
    """
    return _core.SparseSegmentMeanWithNumSegments(
        data, indices, segment_ids, num_segments, T, Tidx, Tsegmentids, Tnumsegments, _accumulation()
    )


def SparseSegmentSqrtN(
    *,
    data: ArrayLike,
    indices: ArrayLike,
    segment_ids: ArrayLike,
    sparse_gradient: bool = False,
    T: DTypeLike | None = None,
    Tidx: DTypeLike | None = None,
    Tsegmentids: DTypeLike | None = None,
    name: str | None = None,
) -> Any:
    """Row s of the output is sum(x) / sqrt(n) of the n rows x = data[indices[i]] with segment_ids[i] == s.

    Arguments and output are those of SparseSegmentSum, without integers.

    >>> import numpy as np
    >>> from raggrad import raw_ops
    >>> raw_ops.SparseSegmentSqrtN(
    ...     data=np.float32([[1], [2], [4], [1]]), indices=[0, 1, 2, 3], segment_ids=[0, 0, 0, 0]).tolist()
    [[4.0]]
    """
    return _core.SparseSegmentSqrtN(data, indices, segment_ids, T, Tidx, Tsegmentids, _accumulation())


def SparseSegmentSqrtNWithNumSegments(
    *,
    data: ArrayLike,
    indices: ArrayLike,
    segment_ids: ArrayLike,
    num_segments: ArrayLike,
    sparse_gradient: bool = False,
    T: DTypeLike | None = None,
    Tidx: DTypeLike | None = None,
    Tsegmentids: DTypeLike | None = None,
    Tnumsegments: DTypeLike | None = None,
    name: str | None = None,
) -> Any:
    """SparseSegmentSqrtN with a given number of rows: [num_segments, ...].

    num_segments: scalar, int32 or int64, above the last segment id.

    >>> import numpy as np
    >>> from raggrad import raw_ops
    >>> data = np.float32([[1], [2], [4], [1]])
    >>> raw_ops.SparseSegmentSqrtNWithNumSegments(
    ...     data=data, indices=[0, 1, 2, 3], segment_ids=[0, 0, 0, 0], num_segments=2).tolist()
    [[4.0], [0.0]]
    """
    return _core.SparseSegmentSqrtNWithNumSegments(
        data, indices, segment_ids, num_segments, T, Tidx, Tsegmentids, Tnumsegments, _accumulation()
    )
