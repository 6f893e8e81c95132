"""The runtime of the batching operators, and their calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

from .. import _core
from .._core import Cancellation
from ..typing import ArrayLike, DTypeLike
from .futures import Call, awaited
from .resources import Kind, Limits, Resource

Done = Callable[[Any, BaseException | None], None]

_tuple = tuple.__new__  # skips the slow constructor of named tuples


class BatchOutput(NamedTuple):
    """The owner of a batch gets all rows and the index, the other calls none. Every call gets its id."""

    batched_tensors: list[Any]
    batch_index: Any
    id: Any


class Runtime(_core.BatchingRuntime):
    """Owns resources. close(), or the end of a `with` block, closes them all; the runtime can be used again.

    Args:
      limits: of every resource that is made in it; Resource.limits changes those of a single one.
    """

    def __init__(self, limits: Limits = Limits()) -> None:  # noqa: B008 (immutable)
        super().__init__(limits)

    def unbatch_grad(
        self,
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
        strict: bool = False,
        done: Done | None = None,
    ) -> Any:
        """raw_ops.UnbatchGrad in this runtime.

        Args:
          timeout_micros: how long this call may wait. None: the resource's default; math.inf: no limit.
          cancellation: ends the wait with CancelledError.
          strict: refuses likely mistakes that TensorFlow accepts: an owner that is missing from its own index, ranges
            that are not contiguous or do not match the pieces, an index of another shape than [calls, 3] ([0, 3] for
            calls that are not owners), an original_input with rows but no elements.
          done: called with (value, None) or (None, error) when the call is over, by this thread or by the one that ends
            it. With `done`, this call returns None at once.
        """
        return super().unbatch_grad(
            original_input, batch_index, grad, id, container, shared_name, T, timeout_micros, cancellation, strict, done
        )

    def unbatch(
        self,
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
        done: Done | None = None,
    ) -> Any:
        """raw_ops.Unbatch in this runtime.

        Args:
          timeout_micros: TensorFlow's attribute. If this call makes the resource: how long calls wait and pieces are
            kept there; otherwise it has no effect. None: the runtime's limits.
          wait_micros: how long this call may wait. None: the resource's default; math.inf: no limit.
          cancellation, done: as in unbatch_grad.
        """
        return super().unbatch(
            batched_tensor, batch_index, id, timeout_micros, container, shared_name, T, wait_micros, cancellation, done
        )

    def batch(
        self,
        *,
        in_tensors: Sequence[ArrayLike],
        num_batch_threads: int,
        max_batch_size: int,
        batch_timeout_micros: int,
        grad_timeout_micros: int = 0,
        max_enqueued_batches: int = 10,
        allowed_batch_sizes: Sequence[int] = (),
        container: str = "",
        shared_name: str = "",
        batching_queue: str = "",
        T: Sequence[DTypeLike] | None = None,
        timeout_micros: float | None = None,
        cancellation: Cancellation | None = None,
        done: Done | None = None,
    ) -> BatchOutput:
        """raw_ops.Batch in this runtime.

        Args:
          grad_timeout_micros: has no effect, as in TensorFlow.
          timeout_micros: how long this call may wait. None: until its batch is processed.
          cancellation, done: as in unbatch_grad. A cancelled call leaves its batch, which goes on without it.
        """
        output = super().batch(
            in_tensors, num_batch_threads, max_batch_size, batch_timeout_micros, max_enqueued_batches,
            allowed_batch_sizes, container, shared_name, batching_queue, T, timeout_micros, cancellation,
            None if done is None else lambda value, error: done(value and _tuple(BatchOutput, value), error),
        )  # fmt: skip
        return output and _tuple(BatchOutput, output)

    def unbatch_grad_future(self, **arguments: Any) -> Future[Any]:
        """unbatch_grad(**arguments) as a future."""
        return Call(self.unbatch_grad, arguments)

    def unbatch_future(self, **arguments: Any) -> Future[Any]:
        """unbatch(**arguments) as a future."""
        return Call(self.unbatch, arguments)

    def batch_future(self, **arguments: Any) -> Future[Any]:
        """batch(**arguments) as a future."""
        return Call(self.batch, arguments)

    async def unbatch_grad_async(self, **arguments: Any) -> Any:
        """unbatch_grad(**arguments) for asyncio."""
        return await awaited(self.unbatch_grad_future(**arguments))

    async def unbatch_async(self, **arguments: Any) -> Any:
        """unbatch(**arguments) for asyncio."""
        return await awaited(self.unbatch_future(**arguments))

    async def batch_async(self, **arguments: Any) -> BatchOutput:
        """batch(**arguments) for asyncio."""
        return await awaited(self.batch_future(**arguments))

    def resource(self, kind: Kind, name: str = "", container: str = "") -> Resource:
        """The resource of calls of `kind` with this shared_name and container."""
        return Resource(self, kind, name, container)

    def close(self) -> None:
        """Closes all resources: waiting calls raise CancelledError, pieces are dropped."""
        self.close_all()

    def __enter__(self) -> Runtime:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
