"""Batching across threads: Batch, Unbatch and their gradient."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import _core
from ..batching import BatchOutput, Cancellation, default_runtime
from ..typing import ArrayLike, DTypeLike

_unbatch_grad = _core.BatchingRuntime.unbatch_grad


def Batch(
    *,
    in_tensors: Sequence[ArrayLike],
    num_batch_threads: int,
    max_batch_size: int,
    batch_timeout_micros: int,
    grad_timeout_micros: int,
    max_enqueued_batches: int = 10,
    allowed_batch_sizes: Sequence[int] = (),
    container: str = "",
    shared_name: str = "",
    batching_queue: str = "",
    T: Sequence[DTypeLike] | None = None,
    timeout_micros: float | None = None,
    cancellation: Cancellation | None = None,
    name: str | None = None,
) -> BatchOutput:
    """Gathers the rows of calls of several threads into a batch. Waits until the batch is processed.

    The last call of a batch is its owner and gets all rows. The other calls get tensors without rows.

    Args:
      in_tensors: a list of [rows, ...], half, bfloat16, float32, float64, [u]int8/16/32/64, bool, complex64, complex128
        or string.
      num_batch_threads: checked, but no threads are started.
      max_batch_size: in rows. A batch is processed when it is full, when the next call does not fit, or
        batch_timeout_micros after its first call. The call that makes the resource decides these values.
      batch_timeout_micros: see max_batch_size.
      grad_timeout_micros: has no effect, as in TensorFlow.
      max_enqueued_batches: if 1, a call that does not fit into the open batch raises UnavailableError.
      allowed_batch_sizes: batches are padded to the next of these sizes with copies of the first row.
      container, shared_name, batching_queue: where calls meet.
      timeout_micros: how long this call may wait before it raises DeadlineExceededError.
      cancellation: raggrad.batching.Cancellation, ends the wait with CancelledError.

    Returns:
      batched_tensors: a list of [all rows, ...] for the owner, [0, ...] for the others.
      batch_index: [calls, 3], int64: id, first row, end; [0, 3] for the others.
      id: int64 scalar, the id of this call.

    >>> from raggrad import raw_ops
    >>> r = raw_ops.Batch(in_tensors=[[[1.0], [2.0]]], num_batch_threads=1, max_batch_size=2,
    ...                   batch_timeout_micros=1000, grad_timeout_micros=0)
    >>> print(r.batched_tensors[0].tolist(), r.batch_index[:, 1:].tolist(), r.batch_index[0, 0] == r.id)
    [[1.0], [2.0]] [[0, 2]] True
    """
    return default_runtime().batch(
        in_tensors=in_tensors,
        num_batch_threads=num_batch_threads,
        max_batch_size=max_batch_size,
        batch_timeout_micros=batch_timeout_micros,
        max_enqueued_batches=max_enqueued_batches,
        allowed_batch_sizes=allowed_batch_sizes,
        container=container,
        shared_name=shared_name,
        batching_queue=batching_queue,
        T=T,
        timeout_micros=timeout_micros,
        cancellation=cancellation,
    )


def Unbatch(
    *,
    batched_tensor: ArrayLike,
    batch_index: ArrayLike,
    id: ArrayLike,
    timeout_micros: int | None = None,
    container: str = "",
    shared_name: str = "",
    T: DTypeLike | None = None,
    wait_micros: float | None = None,
    cancellation: Cancellation | None = None,
    name: str | None = None,
) -> Any:
    """Undoes Batch: the owner brings the rows of a batch, and every call leaves with its own.

    Args:
      batched_tensor: [rows, ...] of the owner, [0, ...] of the others; types as in Batch.
      batch_index: [calls, 3], int64, as Batch gave it to this call.
      id: int64 scalar, as Batch gave it to this call.
      timeout_micros: TensorFlow's attribute. If this call makes the resource: how long calls wait there for their rows,
        and rows for their call; otherwise it has no effect. None: the runtime's limits, 10 minutes by default.
      container, shared_name: where calls meet.
      wait_micros: how long this call may wait before it raises DeadlineExceededError. None: the resource's default.
      cancellation: raggrad.batching.Cancellation, ends the wait with CancelledError.

    Returns:
      unbatched_tensor: [end - first row, ...].

    >>> import numpy as np
    >>> from raggrad import raw_ops
    >>> raw_ops.Unbatch(batched_tensor=[1.0, 2.0, 3.0], batch_index=[[7, 0, 1], [8, 1, 3]], id=8).tolist()
    [2.0, 3.0]
    >>> raw_ops.Unbatch(batched_tensor=[], batch_index=np.zeros((0, 3), np.int64), id=7).tolist()
    [1.0]
    """
    return default_runtime().unbatch(
        batched_tensor=batched_tensor,
        batch_index=batch_index,
        id=id,
        timeout_micros=timeout_micros,
        container=container,
        shared_name=shared_name,
        T=T,
        wait_micros=wait_micros,
        cancellation=cancellation,
    )


def UnbatchGrad(
    *,
    original_input: ArrayLike,
    batch_index: ArrayLike,
    grad: ArrayLike,
    id: ArrayLike,
    container: str = "",
    shared_name: str = "",
    T: DTypeLike | None = None,
    timeout_micros: float | None = None,
    cancellation: Cancellation | None = None,
    name: str | None = None,
) -> Any:
    """Gradient of Unbatch: every call brings the gradient of its rows, and the owner leaves with all of them.

    The owner waits for the other calls, which return at once.

    Args:
      original_input: the batched_tensor of Unbatch. A call is an owner if it has elements here; they are not read.
      batch_index: [calls, 3], int64, as Unbatch got it. Only the ids of an owner's index are read.
      grad: [rows, ...], the gradient of the rows that Unbatch returned; types as in Batch. It is not copied: do not
        write to the array before the owner has returned.
      id: int64 scalar, as Unbatch got it.
      container, shared_name: where calls meet.
      timeout_micros: how long an owner may wait before it raises DeadlineExceededError. None: the resource's default,
        10 minutes; math.inf: no limit.
      cancellation: raggrad.batching.Cancellation, ends the wait with CancelledError.

    Returns:
      batched_grad: the gradients in the order of batch_index for the owner, [0, ...] for the others.

    >>> from raggrad import raw_ops
    >>> index = [[7, 0, 1], [8, 1, 2]]
    >>> raw_ops.UnbatchGrad(original_input=[], batch_index=[], grad=[[0.5]], id=7).shape
    (0, 1)
    >>> raw_ops.UnbatchGrad(original_input=[[1.0], [2.0]], batch_index=index, grad=[[0.25]], id=8).tolist()
    [[0.5], [0.25]]
    """
    # Skips Runtime.unbatch_grad: passing ten keywords once more would be a sixth of a small call.
    return _unbatch_grad(
        default_runtime(), original_input, batch_index, grad, id, container, shared_name, T, timeout_micros,
        cancellation, False, None,
    )  # fmt: skip
