"""Cuts the rows of a table into one range per rank.

Ranges of equal length would give hot rows, which often have the smallest ids, to one rank. So every rank shows a sample
of its sorted ids, and all compute the same cuts from all samples, in integers, with an equal share of the rows that any
rank has in every range.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

_ONE = 1 << 20  # a probability of 1


def even_bounds(rows: int, ranks: int) -> list[int]:
    """Ranges of ceil(rows / ranks) rows, as torch.chunk cuts them: bounds[r] to bounds[r + 1] is rank r's."""
    length = -(-rows // ranks)
    return [min(length * rank, rows) for rank in range(ranks + 1)]


def bounds_of(argument: str, table_rows: int, ranks: int, rows: Any) -> list[int]:
    """The same for ranges of so many rows, which are what the user gave as `argument`; even ones for None."""
    if rows is None:
        return even_bounds(table_rows, ranks)
    try:
        counts = [operator.index(count) for count in rows]
    except TypeError:
        counts = []
    if len(counts) != ranks or min(counts) < 0 or sum(counts) != table_rows:
        raise ValueError(f"{argument}: expected {ranks} numbers that add up to {table_rows}, got {rows}")
    return [0, *accumulate(counts)]


def sample(rows: Tensor, size: int) -> list[int]:
    """`size` ids at even distances in ascending `rows`, the last one among them; [] if there are none."""
    count = rows.shape[0]
    if count == 0 or size == 0:
        return [-1] * size
    places = (torch.arange(1, size + 1, device=rows.device) * count + size - 1) // size - 1
    return rows[places].tolist()


def balanced_bounds(rows: int, counts: Sequence[int], samples: Sequence[Sequence[int]]) -> list[int]:
    """Ranges with about the same number of rows that at least one rank has.

    counts[r] is the number of rows of rank r, samples[r] what sample() gave there. Between two of its samples a rank's
    rows are taken as spread evenly, and independent of those of other ranks.
    """
    ranks = len(counts)
    size = len(samples[0])
    if size == 0 or not any(counts):
        return even_bounds(rows, ranks)
    shown = np.array(samples, dtype=np.int64) + 1  # ends of intervals that begin at 0
    ends = np.unique(np.append(shown[shown > 0], rows))
    begins = np.append(0, ends[:-1])
    absent = np.full(len(ends), _ONE, dtype=np.int64)
    for rank in range(ranks):
        if counts[rank]:
            present = np.diff(_rows_before(ends, counts[rank], shown[rank]), prepend=0) * _ONE // (ends - begins)
            absent = absent * (_ONE - np.minimum(present, _ONE)) // _ONE
    weights = (_ONE - absent) * (ends - begins)
    until = np.cumsum(weights)
    bounds = [0]
    for rank in range(1, ranks):
        goal = int(until[-1]) * rank // ranks
        place = int(np.searchsorted(until, goal, side="left"))
        before = int(until[place - 1]) if place else 0
        share = (goal - before) * int(ends[place] - begins[place]) // max(int(weights[place]), 1)
        bounds.append(max(bounds[-1], min(int(begins[place]) + share, rows)))
    return [*bounds, rows]


def _rows_before(ends: np.ndarray, count: int, shown: np.ndarray) -> np.ndarray:
    """How many of a rank's rows lie before each of `ends`."""
    size = len(shown)
    known = (np.arange(size + 1) * count + size - 1) // size  # rows before the k-th sample's end
    points = np.append(0, shown)
    place = np.minimum(np.searchsorted(points, ends, side="right") - 1, size)
    after = np.minimum(place + 1, size)
    length = np.maximum(points[after] - points[place], 1)
    inside = (known[after] - known[place]) * np.minimum(ends - points[place], length) // length
    return known[place] + inside


def slices_of(rows: Tensor, bounds: Sequence[int]) -> list[slice]:
    """Where the rows of every range lie in ascending `rows`."""
    places = torch.searchsorted(rows, torch.tensor(bounds, dtype=rows.dtype, device=rows.device)).tolist()
    return [slice(begin, end) for begin, end in pairwise(places)]
