"""Rows of several tables on their way to the ranks that own them, and back."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ._messages import Ranks
from ._model import id_bytes

Arrays = Sequence[Sequence[Tensor]]  # for each table, arrays with one entry for each of its rows here


class Routes:
    """Which rows of every table go to which rank, and where the rows lie that come from there.

    slices[t][r] are the rows of table t for rank r, one behind the other. Makes one exchange of counts.
    """

    def __init__(self, ranks: Ranks, slices: Sequence[Sequence[slice]]) -> None:
        self._ranks = ranks
        self.leaving = slices
        counts = [[table[rank].stop - table[rank].start for table in slices] for rank in range(ranks.count)]
        arriving = ranks.swap_numbers("counts", counts)
        self.arriving = [_slices_of([numbers[t] for numbers in arriving]) for t in range(len(slices))]

    def forth(self, phase: str, arrays: Arrays) -> list[list[Tensor]]:
        """Sends every rank its rows. Returns what came, in the order of the ranks."""
        return self._move(phase, arrays, self.leaving, self.arriving)

    def back(self, phase: str, arrays: Arrays) -> list[list[Tensor]]:
        """Sends back one entry for every row that came. Returns those for the rows that left, in their order."""
        return self._move(phase, arrays, self.arriving, self.leaving)

    def _move(
        self, phase: str, arrays: Arrays, sources: Sequence[Sequence[slice]], targets: Sequence[Sequence[slice]]
    ) -> list[list[Tensor]]:
        moved = [
            [array.new_empty((target[-1].stop, *array.shape[1:])) for array in table]
            for table, target in zip(arrays, targets, strict=True)
        ]
        self._ranks.swap(phase, self._cut(arrays, sources), self._cut(moved, targets))
        return moved

    def _cut(self, arrays: Arrays, slices: Sequence[Sequence[slice]]) -> list[list[Tensor]]:
        return [
            [array[parts[rank]] for table, parts in zip(arrays, slices, strict=True) for array in table]
            for rank in range(self._ranks.count)
        ]


def gather(
    ranks: Ranks, phase: str, arrays: Arrays, all_counts: Sequence[Sequence[int]] | None = None
) -> list[list[Tensor]]:
    """The arrays of all ranks, joined in the order of the ranks, on every rank.

    all_counts[r] are the rows of every table on rank r; without them, ranks tell each other.
    """
    if all_counts is None:
        all_counts = ranks.swap_numbers("sizes", [[table[0].shape[0] for table in arrays]] * ranks.count)
    slices = [_slices_of([numbers[t] for numbers in all_counts]) for t in range(len(arrays))]
    joined = [
        [array.new_empty((parts[-1].stop, *array.shape[1:])) for array in table]
        for table, parts in zip(arrays, slices, strict=True)
    ]
    targets = [
        [array[parts[rank]] for table, parts in zip(joined, slices, strict=True) for array in table]
        for rank in range(ranks.count)
    ]
    ranks.swap(phase, [[array for table in arrays for array in table]] * ranks.count, targets)
    return joined


def short_ids(rows: Tensor, table_rows: int) -> Tensor:
    """Ids as they travel: 4 bytes each if that is enough."""
    return rows.to(torch.int32 if id_bytes(table_rows) == 4 else torch.int64)


def _slices_of(counts: Sequence[int]) -> list[slice]:
    slices, begin = [], 0
    for count in counts:
        slices.append(slice(begin, begin + count))
        begin += count
    return slices
