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
    """A named resource of a runtime.

    The first call that names it creates it. Before that, and after close(), its methods raise NotFoundError. Leaving a
    `with` block closes it, if it exists.
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
