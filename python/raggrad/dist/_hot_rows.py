"""Hot rows of a divided table: sent to all ranks at the start of a call, instead of being asked for.

A row that others ask for again and again in one batch is sent back once for every bag. Where sending it to everybody is
cheaper, its owner does that. Nothing is kept between calls, so a copy is never old. The owner decides, from what others
asked of it in one call of every 64, in which nothing goes ahead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ._messages import Ranks
from ._model import ID_BYTES
from ._routes import gather, short_ids
from .cost import Network

_CALLS_PER_COUNT = 64


class Pieces(NamedTuple):
    """Parts of bags: the ids of every bag that one rank owns, bag by bag."""

    ids: Tensor  # [n]: rows of a table at hand
    lengths: Tensor  # [pieces]
    weights: Tensor | None  # [n]

    @property
    def starts(self) -> Tensor:
        return torch.cumsum(self.lengths, 0) - self.lengths

    @property
    def piece_of_id(self) -> Tensor:
        count = self.lengths.shape[0]
        return torch.repeat_interleave(torch.arange(count, device=self.ids.device), self.lengths)


class Copies(NamedTuple):
    """Rows that came ahead, from all ranks."""

    ids: Tensor  # ascending, in the whole table
    values: Tensor

    def cover(self, pieces: Pieces) -> Tensor:
        """For every piece, whether all of its rows are here."""
        missing = self.ids[self.places(pieces.ids).clamp(max=self.ids.shape[0] - 1)] != pieces.ids
        counts = torch.zeros_like(pieces.lengths).index_add_(0, pieces.piece_of_id, missing.to(torch.int64))
        return counts == 0

    def places(self, ids: Tensor) -> Tensor:
        return torch.searchsorted(self.ids, ids)


class HotRows:
    """The rows of this rank that are worth sending ahead."""

    def __init__(self, network: Network | None) -> None:
        self._network = network
        self._calls = 0
        self.rows = torch.empty(0, dtype=torch.int64, device="cpu")  # in the shard, ascending

    def begin_call(self) -> Tensor:
        """The rows that go ahead in this call."""
        counts_now = self._calls % _CALLS_PER_COUNT == 0
        self._calls += 1
        if counts_now:
            self.rows = self.rows[:0]
        return self.rows

    def see(self, asked: Pieces, own: Sequence[slice], ranks: Ranks, row_bytes: int, piece_bytes: int) -> None:
        """Chooses rows from what all ranks asked for in a call. own: the ids and the pieces of this rank."""
        if self._network is None or ranks.count == 1 or self._calls % _CALLS_PER_COUNT != 1:
            return
        ids, lengths = (_without(array, part) for array, part in zip((asked.ids, asked.lengths), own, strict=True))
        others = Pieces(ids.to(torch.int64), lengths, None)
        self.rows = choose(others, ranks.count - 1, row_bytes, piece_bytes, self._network)


def choose(asked: Pieces, others: int, row_bytes: int, piece_bytes: int, network: Network) -> Tensor:
    """The rows for which sending ahead to `others` ranks costs fewer bytes than the pieces that they save.

    A piece is saved if all of its rows go ahead. Each of them gets an equal part of what that saves: the row that comes
    back with all that belongs to it, its ids and its length. Rows were counted in one call only, so their gain has to
    be there with two standard deviations less.
    """
    rows, place = torch.unique(asked.ids, return_inverse=True)
    piece = asked.piece_of_id
    saved_by_piece = (piece_bytes + ID_BYTES * (1 + asked.lengths)).to(torch.float64)
    share = (saved_by_piece / asked.lengths)[piece]
    ahead = others * float(row_bytes + ID_BYTES)

    def of_rows(numbers: Tensor) -> Tensor:
        return torch.zeros_like(rows, dtype=torch.float64).index_add_(0, place, numbers)

    hot = torch.ones_like(rows, dtype=torch.bool)
    for _ in range(8):  # rows that do not pay leave pieces to be asked for, so that others may not pay either
        saved = share * _all_hot(asked, piece, hot[place])[piece]
        paying = hot & (of_rows(saved) - 2 * of_rows(saved * saved).sqrt() > ahead)
        if torch.equal(paying, hot):
            break
        hot = paying
    saved = float(saved_by_piece[_all_hot(asked, piece, hot[place])].sum()) - ahead * int(hot.sum())
    pays = saved > others * network.latency * network.bandwidth  # it takes one more message to every rank
    return rows[hot] if pays else rows[:0]


def send_ahead(
    ranks: Ranks, rows: Tensor, counts: Sequence[int], shard: Tensor, bounds: Sequence[int]
) -> Copies | None:
    """Exchanges hot rows, counts[r] of every rank r; None if there are none."""
    if not any(counts):
        return None
    rows = rows.to(shard.device)
    ids = short_ids(rows + bounds[ranks.rank], bounds[-1])
    ((ids, values),) = gather(ranks, "hot rows", [[ids, shard.detach()[rows]]], [[count] for count in counts])
    return Copies(ids.to(torch.int64), values)


def _all_hot(asked: Pieces, piece: Tensor, hot: Tensor) -> Tensor:
    return torch.zeros_like(asked.lengths).index_add_(0, piece, hot.to(asked.lengths.dtype)) == asked.lengths


def _without(array: Tensor, part: slice) -> Tensor:
    return torch.cat([array[: part.start], array[part.stop :]])
