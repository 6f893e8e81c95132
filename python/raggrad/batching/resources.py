"""Resources of a batching runtime: where calls meet, with limits and statistics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from ..errors import OpError

if TYPE_CHECKING:
    from .runtime import Runtime

Kind = Literal["Batch", "Unbatch", "UnbatchGrad"]


class Limits(NamedTuple):
    """Limits of one resource. None means no limit.

    A call that would exceed one of the first three raises ResourceExhaustedError. A call that completes a batch makes
    room and is never refused. Unclaimed pieces older than max_piece_age_micros are dropped. A resource of Unbatch takes
    both times from the timeout_micros of the call that makes it; limits that are set later replace them.

    Args:
      max_pieces: pieces that are kept at the same time.
      max_bytes: bytes of these pieces.
      max_waiters: calls that wait at the same time.
      max_piece_age_micros: how long a piece is kept that no call asks for.
      default_timeout_micros: how long a call waits that does not say it.

    >>> from raggrad.batching import Limits, Runtime
    >>> with Runtime(limits=Limits(max_pieces=100, default_timeout_micros=1_000_000)) as runtime:
    ...     batch = runtime.batch(
    ...         in_tensors=[[[1.0]]], num_batch_threads=1, max_batch_size=1, batch_timeout_micros=0)
    ...     runtime.resource("Batch").limits.max_pieces
    100
    """

    max_pieces: int | None = 1 << 20
    max_bytes: int | None = None
    max_waiters: int | None = 1 << 16
    max_piece_age_micros: int | None = 600_000_000
    default_timeout_micros: int | None = 600_000_000


class Statistics(NamedTuple):
    """Counters since the resource was made. The last three fields are what it holds now.

    calls == succeeded + failed whenever no call runs or waits. `refused` counts calls that a limit or lack of memory
    turned away.

    >>> from raggrad.batching import Runtime
    >>> with Runtime() as runtime:
    ...     batch = runtime.batch(
    ...         in_tensors=[[[1.0]]], num_batch_threads=1, max_batch_size=1, batch_timeout_micros=0)
    ...     counted = runtime.resource("Batch").statistics()
    >>> counted.calls, counted.succeeded, counted.waiters
    (1, 1, 0)
    """

    calls: int
    succeeded: int
    failed: int
    cancelled: int
    deadline_exceeded: int
    refused: int
    pieces_expired: int
    pieces_dropped: int
    pieces: int
    bytes: int
    waiters: int


class Resource:
    """A named resource of a runtime; Runtime.resource returns it.

    The first call that names it creates it. Before that, and after close(), its methods raise NotFoundError. Leaving a
    `with` block closes it, if it exists.

    >>> import raggrad
    >>> from raggrad.batching import Limits, Runtime
    >>> with Runtime() as runtime, runtime.resource("UnbatchGrad", "tower") as tower:
    ...     nothing = runtime.unbatch_grad(
    ...         original_input=[], batch_index=[], grad=[[1.0]], id=7, shared_name="tower")
    ...     print(tower, tower.statistics().pieces)
    ...     tower.limits = Limits(max_pieces=1)
    <UnbatchGrad resource 'tower' in container ''> 1
    """

    def __init__(self, runtime: Runtime, kind: Kind, name: str = "", container: str = "") -> None:
        self._runtime = runtime
        self._key = (kind, container, name)

    def __repr__(self) -> str:
        kind, container, name = self._key
        return f"<{kind} resource {name!r} in container {container!r}>"

    @property
    def limits(self) -> Limits:
        """The limits. New ones can be assigned and hold at once, also for pieces already there."""
        return Limits(*self._runtime.get_limits(*self._key))

    @limits.setter
    def limits(self, limits: Limits) -> None:
        self._runtime.set_limits(*self._key, limits)

    def statistics(self) -> Statistics:
        """Counts of calls since the resource was made, and of what it holds now."""
        return Statistics(*self._runtime.statistics(*self._key))

    def close(self) -> None:
        """Ends waiting calls with CancelledError, drops the pieces and frees the name."""
        self._runtime.close_resource(*self._key)

    def __enter__(self) -> Resource:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.close()
        except OpError as error:
            if error.code != "NOT_FOUND":
                raise
