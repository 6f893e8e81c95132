"""Counts the bytes that the operations of raggrad.dist send."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager


class Traffic:
    """Bytes and messages that this rank has sent to others, in all and by phase of an operation."""

    def __init__(self) -> None:
        self.bytes_of: Counter[str] = Counter()
        self.messages_of: Counter[str] = Counter()

    @property
    def bytes(self) -> int:
        """All that was sent, without what the network adds."""
        return self.bytes_of.total()

    @property
    def messages(self) -> int:
        """How many messages there were."""
        return self.messages_of.total()

    def __repr__(self) -> str:
        phases = ", ".join(f"{phase} {count:,}" for phase, count in self.bytes_of.items())
        return f"Traffic({self.bytes:,} bytes in {self.messages:,} messages: {phases})"


_everywhere: list[Traffic] = []  # backward passes may run on threads that do not know the caller's context


@contextmanager
def traffic() -> Iterator[Traffic]:
    """Counts what operations of raggrad.dist send from this rank while the context is open.

    >>> import raggrad.dist as rd
    >>> with rd.traffic() as sent:
    ...     pass
    >>> sent.bytes, sent.messages
    (0, 0)
    """
    count = Traffic()
    _everywhere.append(count)
    try:
        yield count
    finally:
        _everywhere.remove(count)


def note(phase: str, sent: int) -> None:
    for count in _everywhere:
        count.bytes_of[phase] += sent
        count.messages_of[phase] += 1
