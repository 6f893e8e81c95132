"""The forward operators of the model in plain NumPy, named after the TensorFlow operators they are.

raggrad supplies the gradients; each function returns what the matching gradient operator needs.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np


class FilledRows(NamedTuple):
    row_ids: np.ndarray
    values: np.ndarray
    reverse_index_map: np.ndarray


def ragged_fill_empty_rows(
    row_ids: np.ndarray, values: np.ndarray, num_rows: int, default: np.ndarray | int
) -> FilledRows:
    """Give every row without an entry one entry holding `default`. `row_ids` must ascend."""
    lengths = np.bincount(row_ids, minlength=num_rows)
    filled_row_ids = np.repeat(np.arange(num_rows), np.maximum(lengths, 1))
    # Each filled row inserts one entry, so an entry moves back by the empty rows before its own.
    reverse_index_map = np.arange(len(row_ids)) + np.cumsum(lengths == 0)[row_ids]
    filled_values = np.full(len(filled_row_ids), default, values.dtype)
    filled_values[reverse_index_map] = values
    return FilledRows(filled_row_ids, filled_values, reverse_index_map)


def segment_mean(entries: np.ndarray, row_ids: np.ndarray) -> np.ndarray:
    """Mean of the entries of each row. `row_ids` must ascend and leave out no row."""
    sums, lengths = _segment_sum(entries, row_ids)
    return sums / lengths


def segment_sqrt_n(entries: np.ndarray, row_ids: np.ndarray) -> np.ndarray:
    """Like `segment_mean`, divided by the square root of the row's length only."""
    sums, lengths = _segment_sum(entries, row_ids)
    return sums / np.sqrt(lengths)


def _segment_sum(entries: np.ndarray, row_ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    starts = np.flatnonzero(np.diff(row_ids, prepend=-1))
    sums = np.add.reduceat(entries, starts, axis=0)
    lengths = np.diff(starts, append=len(row_ids)).astype(entries.dtype)
    return sums, lengths.reshape((-1,) + (1,) * (entries.ndim - 1))


def sparse_slice(
    indices: np.ndarray, values: np.ndarray, start: np.ndarray, size: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Indices and values of the entries inside a block, counted from the block's corner."""
    inside = np.all((indices >= start) & (indices < start + size), axis=1)
    return indices[inside] - start, values[inside]


def ragged_to_variant(splits: np.ndarray, values: np.ndarray) -> list[np.ndarray]:
    """Take a batch of rows apart into one element per row."""
    return [values[begin:end] for begin, end in pairwise(splits)]
