"""Gradients of pooled embeddings: SparseSegment{Sum,Mean,SqrtN}Grad and ...GradV2."""

from __future__ import annotations

from typing import Any, NamedTuple

from .. import _core
from ..settings import current_accumulation
from ..typing import ArrayLike, DTypeLike

_accumulation = current_accumulation.get


class SparseSegmentGradV2Output(NamedTuple):
    """The rows of the gradient, each once, and their indices in ascending order."""

    output: Any
    sorted_unique_indices: Any


def SparseSegmentSumGradV2(
    *,
    grad: ArrayLike,
    indices: ArrayLike,
    segment_ids: ArrayLike,
    dense_output_dim0: ArrayLike,
    T: DTypeLike | None = None,
    Tidx: DTypeLike | None = None,
    Tsegmentids: DTypeLike | None = None,
    name: str | None = None,
) -> SparseSegmentGradV2Output:
    """Gradient of SparseSegmentSum with respect to the table: the rows that indices name.

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
    return _core.SparseSegmentSumGradV2(
        grad, indices, segment_ids, dense_output_dim0, T, Tidx, Tsegmentids, _accumulation()
    )


def SparseSegmentMeanGradV2(
    *,
    grad: ArrayLike,
    indices: ArrayLike,
    segment_ids: ArrayLike,
    dense_output_dim0: ArrayLike,
    T: DTypeLike | None = None,
    Tidx: DTypeLike | None = None,
    Tsegmentids: DTypeLike | None = None,
    name: str | None = None,
) -> SparseSegmentGradV2Output:
    """Gradient of SparseSegmentMean with respect to the table: the rows that indices name.

    Row r is the sum of grad[s] / count(s), s = segment_ids[i], over all i with indices[i] == r, in the order of i;
    count(s) is how often s occurs in segment_ids. Arguments and outputs are those of SparseSegmentSumGradV2.

    >>> import numpy as np
    >>> from raggrad import raw_ops
    >>> r = raw_ops.SparseSegmentMeanGradV2(
    ...     grad=np.float32([[1, 2], [10, 20]]), indices=[4, 0, 4], segment_ids=[0, 0, 1], dense_output_dim0=5)
    >>> print(r.sorted_unique_indices, r.output.tolist())
    [0 4] [[0.5, 1.0], [10.5, 21.0]]
    """
    return _core.SparseSegmentMeanGradV2(
        grad, indices, segment_ids, dense_output_dim0, T, Tidx, Tsegmentids, _accumulation()
    )


def SparseSegmentSqrtNGradV2(
    *,
    grad: ArrayLike,
    indices: ArrayLike,
    segment_ids: ArrayLike,
    dense_output_dim0: ArrayLike,
    T: DTypeLike | None = None,
    Tidx: DTypeLike | None = None,
    Tsegmentids: DTypeLike | None = None,
    name: str | None = None,
) -> SparseSegmentGradV2Output:
    """Gradient of SparseSegmentSqrtN with respect to the table: the rows that indices name.

    Row r is the sum of grad[s] / sqrt(count(s)), s = segment_ids[i], over all i with indices[i] == r, in the order of
    i; count(s) is how often s occurs in segment_ids. Arguments and outputs are those of SparseSegmentSumGradV2.

    >>> import numpy as np
    >>> from raggrad import raw_ops
    >>> r = raw_ops.SparseSegmentSqrtNGradV2(
    ...     grad=np.float32([[8]]), indices=[1, 1, 2, 3], segment_ids=[0, 0, 0, 0], dense_output_dim0=5)
    >>> print(r.sorted_unique_indices, r.output.tolist())
    [1 2 3] [[8.0], [4.0], [4.0]]
    """
    return _core.SparseSegmentSqrtNGradV2(
        grad, indices, segment_ids, dense_output_dim0, T, Tidx, Tsegmentids, _accumulation()
    )


def SparseSegmentSumGrad(
    *,
    grad: ArrayLike,
    indices: ArrayLike,
    segment_ids: ArrayLike,
    output_dim0: ArrayLike,
    T: DTypeLike | None = None,
    Tidx: DTypeLike | None = None,
    Tsegmentids: DTypeLike | None = None,
    name: str | None = None,
) -> Any:
    """Gradient of SparseSegmentSum with respect to the table, as a dense array.

    It has the rows of SparseSegmentSumGradV2 in their places; all others are 0. The arguments are the same, but the
    int32 number of rows is called output_dim0.

    Returns:
      output: [output_dim0, ...].

    >>> import numpy as np
    >>> from raggrad import raw_ops
    >>> raw_ops.SparseSegmentSumGrad(
    ...     grad=np.float32([[1], [10]]), indices=[2, 0, 2], segment_ids=[0, 0, 1], output_dim0=3).tolist()
    [[1.0], [0.0], [11.0]]
    """
    return _core.SparseSegmentSumGrad(grad, indices, segment_ids, output_dim0, T, Tidx, Tsegmentids, _accumulation())


def SparseSegmentMeanGrad(
    *,
    grad: ArrayLike,
    indices: ArrayLike,
    segment_ids: ArrayLike,
    output_dim0: ArrayLike,
    T: DTypeLike | None = None,
    Tidx: DTypeLike | None = None,
    Tsegmentids: DTypeLike | None = None,
    name: str | None = None,
) -> Any:
    """Gradient of SparseSegmentMean with respect to the table, as a dense array.

    It has the rows of SparseSegmentMeanGradV2 in their places; all others are 0. The arguments are the same, but the
    int32 number of rows is called output_dim0.

    Returns:
      output: [output_dim0, ...].

    >>> import numpy as np
    >>> from raggrad import raw_ops
    >>> raw_ops.SparseSegmentMeanGrad(
    ...     grad=np.float32([[1], [10]]), indices=[2, 0, 2], segment_ids=[0, 0, 1], output_dim0=3).tolist()
    [[0.5], [0.0], [10.5]]
    """
    return _core.SparseSegmentMeanGrad(grad, indices, segment_ids, output_dim0, T, Tidx, Tsegmentids, _accumulation())


def SparseSegmentSqrtNGrad(
    *,
    grad: ArrayLike,
    indices: ArrayLike,
    segment_ids: ArrayLike,
    output_dim0: ArrayLike,
    T: DTypeLike | None = None,
    Tidx: DTypeLike | None = None,
    Tsegmentids: DTypeLike | None = None,
    name: str | None = None,
) -> Any:
    """Gradient of SparseSegmentSqrtN with respect to the table, as a dense array.

    It has the rows of SparseSegmentSqrtNGradV2 in their places; all others are 0. The arguments are the same, but the
    int32 number of rows is called output_dim0.

    Returns:
      output: [output_dim0, ...].

    >>> import numpy as np
    >>> from raggrad import raw_ops
    >>> raw_ops.SparseSegmentSqrtNGrad(
    ...     grad=np.float32([[8]]), indices=[1, 1, 2, 3], segment_ids=[0, 0, 0, 0], output_dim0=4).tolist()
    [[0.0], [8.0], [4.0], [4.0]]
    """
    return _core.SparseSegmentSqrtNGrad(grad, indices, segment_ids, output_dim0, T, Tidx, Tsegmentids, _accumulation())
