"""Sums, means and sums over square roots of rows, by segment."""

from __future__ import annotations

import torch
from torch import Tensor

from ._errors import check_tensor, named
from ._operators import segments as ops
from ._settings import order_of


def segment_sum(
    data: Tensor, segment_ids: Tensor, num_segments: int | None = None, *, accumulation: str | None = None
) -> Tensor:
    """Row s is the sum of data[i] over all i with segment_ids[i] == s. Ids come in any order.

    `num_segments` is the number of rows, by default the largest id plus one, which has to be read from a GPU then. An
    id out of range is a ValueError. Rows of a segment are added in the order they have in `data`; half and bfloat16 in
    float32, rounded once. The same bits on every run and with any number of threads. Takes 4 bytes per id, 24 if they
    are not in order, and 16 on a GPU; rows are read where they lie. `accumulation` is "sequential", "fast" or
    "reproducible", by default that of raggrad.accumulation.

    >>> import torch, raggrad.torch as rt
    >>> rt.segment_sum(torch.tensor([[1.0], [2.0], [4.0]]), torch.tensor([1, 0, 1]))
    tensor([[2.],
            [5.]])
    """
    return _segment("segment_sum", "sum", data, segment_ids, num_segments, accumulation)


def segment_mean(
    data: Tensor, segment_ids: Tensor, num_segments: int | None = None, *, accumulation: str | None = None
) -> Tensor:
    """Row s is the mean of data[i] over all i with segment_ids[i] == s. A segment without rows is zero.

    Arguments are those of segment_sum. Floating-point numbers only.

    >>> import torch, raggrad.torch as rt
    >>> rt.segment_mean(torch.tensor([[1.0], [2.0], [4.0]]), torch.tensor([1, 0, 1]))
    tensor([[2.0000],
            [2.5000]])
    """
    return _segment("segment_mean", "mean", data, segment_ids, num_segments, accumulation)


def segment_sqrtn(
    data: Tensor, segment_ids: Tensor, num_segments: int | None = None, *, accumulation: str | None = None
) -> Tensor:
    """segment_sum divided by the square root of the number of rows. A segment without rows is zero.

    Arguments are those of segment_sum. Floating-point numbers only.

    >>> import torch, raggrad.torch as rt
    >>> rt.segment_sqrtn(torch.tensor([[1.0], [2.0], [3.0], [4.0]]), torch.tensor([0, 0, 0, 0]))
    tensor([[5.]])
    """
    return _segment("segment_sqrtn", "sqrtn", data, segment_ids, num_segments, accumulation)


def sparse_segment_sum(
    data: Tensor,
    indices: Tensor,
    segment_ids: Tensor,
    num_segments: int | None = None,
    *,
    accumulation: str | None = None,
) -> Tensor:
    """Row s is the sum of data[indices[i]] over all i with segment_ids[i] == s: TensorFlow's SparseSegmentSum.

    `segment_ids` ascend and may skip. `num_segments` is the number of rows, by default the last id plus one, which has
    to be read from a GPU then. The gradient of `data` is dense. TensorFlow's bits on the CPU, with any number of
    threads. The forward takes no memory besides its result, backward up to 24 bytes per id. `accumulation` is
    "sequential", "fast" or "reproducible", by default that of raggrad.accumulation.

    >>> import torch, raggrad.torch as rt
    >>> rt.sparse_segment_sum(torch.tensor([[1.0], [2.0], [4.0]]), torch.tensor([2, 0, 2]), torch.tensor([0, 0, 1]))
    tensor([[5.],
            [4.]])
    """
    return _sparse_segment("sparse_segment_sum", "sum", data, indices, segment_ids, num_segments, accumulation)


def sparse_segment_mean(
    data: Tensor,
    indices: Tensor,
    segment_ids: Tensor,
    num_segments: int | None = None,
    *,
    accumulation: str | None = None,
) -> Tensor:
    """Row s is the mean of data[indices[i]] over all i with segment_ids[i] == s: TensorFlow's SparseSegmentMean.

    Arguments are those of sparse_segment_sum. Floating-point numbers only. A segment without rows is zero.

    >>> import torch, raggrad.torch as rt
    >>> rt.sparse_segment_mean(torch.tensor([[1.0], [2.0], [4.0]]), torch.tensor([2, 0, 2]), torch.tensor([0, 0, 1]))
    tensor([[2.5000],
            [4.0000]])
    """
    return _sparse_segment("sparse_segment_mean", "mean", data, indices, segment_ids, num_segments, accumulation)


def sparse_segment_sqrtn(
    data: Tensor,
    indices: Tensor,
    segment_ids: Tensor,
    num_segments: int | None = None,
    *,
    accumulation: str | None = None,
) -> Tensor:
    """sparse_segment_sum divided by the square root of the number of rows: TensorFlow's SparseSegmentSqrtN.

    Arguments are those of sparse_segment_sum. Floating-point numbers only. A segment without rows is zero.

    >>> import torch, raggrad.torch as rt
    >>> rt.sparse_segment_sqrtn(torch.tensor([[1.0], [3.0]]), torch.tensor([1, 1, 1, 1]), torch.tensor([0, 0, 0, 0]))
    tensor([[6.]])
    """
    return _sparse_segment("sparse_segment_sqrtn", "sqrtn", data, indices, segment_ids, num_segments, accumulation)


def _read_count(name: str, largest_id: Tensor) -> int:
    """How many segments there are, unless every example of torch.vmap may have another number."""
    if not torch.compiler.is_compiling() and torch._C._functorch.is_batchedtensor(largest_id):
        raise ValueError(f"raggrad.torch.{name}: num_segments: expected a number inside torch.vmap, got None")
    return int(largest_id) + 1


def _segment(
    name: str, combiner: str, data: Tensor, segment_ids: Tensor, num_segments: int | None, accumulation: str | None
) -> Tensor:
    check_tensor(name, "data", data)
    check_tensor(name, "segment_ids", segment_ids)
    if num_segments is None:
        num_segments = _read_count(name, segment_ids.max()) if segment_ids.numel() else 0
    try:
        return ops.segment(data, segment_ids, num_segments, combiner, order_of(accumulation))
    except RuntimeError as error:
        raise named(error, name) from None


def _sparse_segment(
    name: str,
    combiner: str,
    data: Tensor,
    indices: Tensor,
    segment_ids: Tensor,
    num_segments: int | None,
    accumulation: str | None,
) -> Tensor:
    check_tensor(name, "data", data)
    check_tensor(name, "indices", indices)
    check_tensor(name, "segment_ids", segment_ids)
    if num_segments is None:
        num_segments = _read_count(name, segment_ids.reshape(-1)[-1]) if segment_ids.numel() else 0
    try:
        return ops.sparse_segment(data, indices, segment_ids, num_segments, combiner, order_of(accumulation))
    except RuntimeError as error:
        raise named(error, name) from None
