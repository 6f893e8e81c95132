"""Bags of ids of a table whose rows lie on several ranks: pooled, and their gradient."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..torch._operators.embeddings import embedding_bag_grad_rows
from . import _reproducible as exact
from ._bags import Bags
from ._cuts import slices_of
from ._hot_rows import Copies, Pieces
from ._messages import Ranks
from ._routes import Routes, short_ids
from ._sums import Rows

_ops = torch.ops.raggrad


class Lookup:
    """One exchange of ids: what this rank asked of others, and what others asked of it.

    Ids go to their owners, ordered by owner and bag. A piece is the part of a bag that one owner has: owners pool
    pieces, and only these rows travel. Pieces of which all rows have come ahead are pooled here.
    """

    def __init__(self, ranks: Ranks, bags: Bags, bounds: Sequence[int], copies: Copies | None) -> None:
        self.ranks, self._bags, self._bounds, self._copies = ranks, bags, bounds, copies
        limits = torch.tensor(bounds, dtype=torch.int64, device=bags.ids.device)
        owners = torch.bucketize(bags.ids, limits[1:-1], right=True)
        owners, self._order = torch.sort(owners, stable=True)
        num_bags = max(bags.sizes.shape[0], 1)
        pieces, lengths = torch.unique_consecutive(
            owners * num_bags + bags.bags[self._order], return_counts=True
        )  # ascending: by owner, then by bag
        self._bag_of_piece = pieces % num_bags
        owner_of_piece = pieces // num_bags
        weights = None if bags.weights is None else bags.weights.detach()[self._order]
        mine = Pieces(bags.ids[self._order], lengths, weights)
        self._lengths = lengths
        here = None if copies is None else copies.cover(mine) & (owner_of_piece != ranks.rank)
        self._pieces = _Division(here)
        self._all_ids = _Division(None if here is None else here[mine.piece_of_id])
        ranges = list(range(ranks.count + 1))
        away = self._all_ids.away(owners)
        self._routes = Routes(
            ranks, [slices_of(away, ranges), slices_of(self._pieces.away(owner_of_piece), ranges)]
        )
        local = self._all_ids.away(mine.ids) - limits[away]
        sent = [[short_ids(local, bounds[-1])], [self._pieces.away(lengths).to(torch.int32)]]
        if weights is not None:
            sent[0].append(self._all_ids.away(weights))
        (ids, *came), (lengths,) = self._routes.forth("ids", sent)
        self.asked = Pieces(ids, lengths.to(torch.int64), came[0] if came else None)  # of this rank, by all
        self.own = [parts[ranks.rank] for parts in self._routes.arriving]  # the ids and pieces that it asked itself
        self._at_home = None  # of the rows that came ahead
        if copies is not None:
            self._at_home = Pieces(
                copies.places(self._all_ids.here(mine.ids)),
                self._pieces.here(mine.lengths),
                None if weights is None else self._all_ids.here(weights),
            )

    def pool(self, shard: Tensor, mode: str) -> Tensor:
        """The bags of this rank. Pieces of one bag are added in the order of their owners."""
        as_means = mode != "sum" and shard.dtype == torch.float16  # whose sums may be infinite where the mean is not
        of_pieces = "mean" if as_means else "sum"
        _, (rows,) = self._routes.back("pooled rows", [[], [_pooled(self.asked, shard, of_pieces)]])
        if self._at_home is not None:
            rows = self._pieces.join(rows, _pooled(self._at_home, self._copies.values, of_pieces))
        if as_means:
            rows = rows.float() * self._lengths[:, None]
        pooled = _ops.segment(rows, self._bag_of_piece, self._bags.sizes.shape[0], "sum", "sequential")
        return self._divided(pooled, mode).to(shard.dtype)

    def pool_reproducibly(self, shard: Tensor, mode: str) -> Tensor:
        """The same with sums that do not depend on where rows lie."""
        asked = _terms(self.asked, shard)
        at_home = None if self._at_home is None else _terms(self._at_home, self._copies.values)
        _, (of_pieces,) = self._routes.back("magnitudes", [[], [asked.largest(self.asked.lengths.shape[0])]])
        if at_home is not None:
            of_pieces = self._pieces.join(of_pieces, at_home.largest(self._at_home.lengths.shape[0]))
        sizes = self._bags.sizes
        largest = of_pieces.new_zeros(sizes.shape[0]).scatter_reduce_(0, self._bag_of_piece, of_pieces, "amax")
        grids = [largest[self._bag_of_piece], sizes[self._bag_of_piece]]
        _, grids_of_asked = self._routes.forth("grids", [[], [self._pieces.away(grid) for grid in grids]])
        _, (sums,) = self._routes.back("exact sums", [[], [asked.add(*grids_of_asked)]])
        if at_home is not None:
            sums = self._pieces.join(sums, at_home.add(*(self._pieces.here(grid) for grid in grids)))
        total = _ops.segment(sums, self._bag_of_piece, sizes.shape[0], "sum", "sequential")
        return exact.rounded(total, largest, sizes, shard, mode).reshape(-1, *shard.shape[1:])

    def gradient_of_weights(self, grad: Tensor, shard: Tensor, mode: str) -> Tensor:
        """For every id the product of its row and its bag's gradient, computed where the row lies."""
        grads = self._divided(grad, mode)[self._bag_of_piece]
        _, (asked,) = self._routes.forth("gradients of pieces", [[], [self._pieces.away(grads)]])
        (ordered,), _ = self._routes.back("gradients of weights", [[_products(self.asked, asked, shard)], []])
        if self._at_home is not None:
            products = _products(self._at_home, self._pieces.here(grads), self._copies.values)
            ordered = self._all_ids.join(ordered, products)
        return torch.empty_like(ordered).scatter_(0, self._order, ordered)

    def gradient_of_shard(self, grad: Tensor, mode: str, accumulation: str | None) -> Rows:
        """The gradient of this rank's rows, with their numbers in the shard."""
        rows = self._bounds[-1]
        first = self._bounds[self.ranks.rank]
        shard_rows = self._bounds[self.ranks.rank + 1] - first
        if accumulation == "reproducible":
            unique, terms = exact.gradient_terms(grad.contiguous(), self._bags, mode, rows)
            summed = exact.sum_at_owners(self.ranks, unique, terms, rows, self._bounds)
            return Rows(summed.values.reshape(-1, *grad.shape[1:]), summed.rows - first, shard_rows)
        values, unique = embedding_bag_grad_rows(
            grad, self._bags.ids, self._bags.starts, self._bags.weights, rows, mode, False, None, accumulation
        )
        routes = Routes(self.ranks, [slices_of(unique, self._bounds)])
        ((came, values),) = routes.forth("rows", [[short_ids(unique, rows), values]])
        return Rows(values, came.to(torch.int64) - first, shard_rows)

    def _divided(self, rows: Tensor, mode: str) -> Tensor:
        if mode == "sum":
            return rows
        sizes = self._bags.sizes.clamp(min=1).to(rows.dtype if rows.dtype == torch.float64 else torch.float32)
        divisors = sizes if mode == "mean" else sizes.sqrt()
        return (rows / divisors.reshape(-1, *[1] * (rows.dim() - 1))).to(rows.dtype)


class _Division:
    """Entries of arrays that stay here, and those that go away: all of them, without a mask."""

    def __init__(self, here: Tensor | None) -> None:
        self._divided = here is not None
        if here is not None:
            self._here, self._away = here.nonzero()[:, 0], (~here).nonzero()[:, 0]

    def here(self, array: Tensor) -> Tensor:
        return array[self._here]

    def away(self, array: Tensor) -> Tensor:
        return array[self._away] if self._divided else array

    def join(self, away: Tensor, here: Tensor) -> Tensor:
        """One array of what both parts have become."""
        joined = away.new_empty((away.shape[0] + here.shape[0], *away.shape[1:]))
        return joined.index_copy_(0, self._away, away).index_copy_(0, self._here, here)


def _pooled(pieces: Pieces, table: Tensor, mode: str) -> Tensor:
    return _ops.embedding_bag(table, pieces.ids, pieces.starts, pieces.weights, mode, False, None, False, "sequential")


def _terms(pieces: Pieces, table: Tensor) -> exact.Terms:
    factors = None if pieces.weights is None else pieces.weights.to(exact.sum_type(table.dtype))
    return exact.Terms(table.flatten(1), pieces.ids, pieces.piece_of_id, factors)


def _products(pieces: Pieces, grads: Tensor, table: Tensor) -> Tensor:
    return _ops.embedding_bag_weights_grad(grads, table, pieces.ids, pieces.starts, "sum", False, None)
