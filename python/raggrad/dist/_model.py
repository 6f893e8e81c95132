"""The bytes and messages of a training step, by every way to train a table."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

HEADER_BYTES = 2048  # of an agreement
ID_BYTES = 4  # of an id on its way, in tables below 2^31 rows; and of the length of a piece
PACKED_BYTES = 1 << 20  # several arrays up to this size are sent as one message


class Sent(NamedTuple):
    """One way to train a table: what a rank sends in a step, and the bytes that it keeps."""

    name: str
    bytes: float
    messages: float
    memory: float


def id_bytes(table_rows: int) -> int:
    """Bytes that travel for an id."""
    return ID_BYTES if table_rows < 2**31 else 8


def piece_bytes(width: int, element_bytes: int, exact: bool) -> int:
    """Bytes that travel for the sum of a piece: a row; or a magnitude, a grid and an exact sum."""
    if not exact:
        return width * element_bytes
    return 2 * _magnitude_bytes(element_bytes) + 8 + _exact_row(width, element_bytes)


def _magnitude_bytes(element_bytes: int) -> int:
    return 8 if element_bytes == 8 else 4


def _exact_row(width: int, element_bytes: int) -> int:
    return 8 * width * (2 if element_bytes == 8 else 1)


class Step(NamedTuple):
    """The work of one rank in a step."""

    rows: int
    width: int
    ids: float
    bags: float
    ranks: int
    element_bytes: int
    exact: bool

    @property
    def row_bytes(self) -> int:
        return self.width * self.element_bytes

    @property
    def sent_row_bytes(self) -> int:
        """Of a row and its id."""
        return id_bytes(self.rows) + self.row_bytes

    @property
    def table_bytes(self) -> int:
        return self.rows * self.row_bytes

    @property
    def others(self) -> int:
        return self.ranks - 1

    @property
    def share(self) -> float:
        """The part of evenly divided things that belongs to other ranks."""
        return self.others / self.ranks

    def named_rows(self, frequencies: np.ndarray | None, ranks: int) -> float:
        """How many rows the ids of so many ranks name."""
        if frequencies is None:
            return self.rows * (1 - (1 - 1 / self.rows) ** (self.ids * ranks))
        chance = np.clip(frequencies / max(self.ids, 1), 0, 1)
        return float((1 - (1 - chance) ** (self.ids * ranks)).sum())

    def dense(self) -> Sent:
        table = self.table_bytes
        return Sent("dense all-reduce (torch)", 2 * self.share * table, 2 * self.others, 2 * table)

    def gathered(self) -> Sent:
        sent = self.others * self.ids * (8 + self.row_bytes)
        memory = self.table_bytes + self.ids * self.row_bytes * self.ranks
        return Sent("gather of all ids' rows (torch)", sent, 2 * self.others, memory)

    def reduced(self, mine: float, union: float) -> Sent:
        """With `mine` rows that this rank names, and `union` that all name."""
        to_owners, its_messages = self._to_owners(mine)
        to_all = union * self.share * self.sent_row_bytes
        sent = to_owners + to_all + self.others * (HEADER_BYTES + 16)
        messages = 3 * self.others + its_messages + self._messages(to_all)
        memory = self.table_bytes + union * (8 + self.row_bytes)
        return Sent("sparse all-reduce (rd.all_reduce, register)", sent, messages, memory)

    def sharded(self, mine: float, hot: int = 0, hot_ids: float = 0.0) -> Sent:
        """With `hot` rows that go ahead, which `hot_ids` of the ids name."""
        pieces, ids = self._asked(hot_ids)
        ahead = hot * self.share * self.sent_row_bytes
        forward = ahead + ids * id_bytes(self.rows) + pieces * (ID_BYTES + self._piece_bytes())
        to_owners, its_messages = self._to_owners(mine)
        sent = forward + to_owners + self.others * (2 * HEADER_BYTES + 16 + 8 + 8)
        messages = self.others * (6 + (3 if self.exact else 1)) + its_messages
        memory = (self.table_bytes + mine * (8 + self.row_bytes)) / self.ranks
        if not hot:
            return Sent("sharding (rd.ShardedEmbeddingBag)", sent, messages, memory)
        name = f"sharding, {hot:,} hot rows ahead"
        return Sent(name, sent, messages + self._messages(ahead), memory + hot * (8 + self.row_bytes))

    def best_hot_rows(self, frequencies: np.ndarray | None) -> tuple[int, float]:
        """How many rows to send ahead, the most frequent first, so that the fewest bytes are sent; and their ids."""
        if frequencies is None or not self.others or not self.ids:
            return 0, 0.0
        named = np.append(0, np.cumsum(np.sort(frequencies)[::-1]))
        pieces, ids = self._asked(np.minimum(named, self.ids))
        sent = np.arange(len(named)) * self.share * self.sent_row_bytes
        sent = sent + ids * id_bytes(self.rows) + pieces * (ID_BYTES + self._piece_bytes())
        best = int(np.argmin(sent))
        return best, min(float(named[best]), self.ids)

    def _piece_bytes(self) -> int:
        return piece_bytes(self.width, self.element_bytes, self.exact)

    def _asked(self, hot_ids: np.ndarray | float) -> tuple[np.ndarray | float, np.ndarray | float]:
        """Pieces and ids that go to others: pieces with a row that is not hot. Bags are taken as equally long."""
        length = self.ids / self.bags if self.bags else 0.0
        cold = 1 - hot_ids / max(self.ids, 1e-300)
        all_hot = 1 - cold / self.ranks  # chance of an id to be of another owner, or hot
        pieces = self.bags * self.others * (1 - all_hot**length)
        return pieces, self.ids * self.share * (1 - (1 - cold) * all_hot ** max(length - 1, 0))

    def _to_owners(self, mine: float) -> tuple[float, float]:
        """Bytes and messages of the gradient's rows on their way to their owners."""
        if self.exact:
            magnitude = 2 * (_magnitude_bytes(self.element_bytes) + 8)
            row = id_bytes(self.rows) + magnitude + _exact_row(self.width, self.element_bytes)
            return mine * self.share * row, 3 * self.others
        sent = mine * self.share * self.sent_row_bytes
        return sent, self._messages(sent)

    def _messages(self, sent: float) -> float:
        """Ids and rows, in one message to each rank if they are small."""
        return self.others * (2 if self.others and sent / self.others > PACKED_BYTES else 1)
