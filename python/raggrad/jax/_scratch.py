"""How many bytes of scratch a handler in a command buffer takes at most (InCommandBuffers in doors/jax/handlers.cc).

XLA gives a handler its scratch as a result, so its size has to be known when a function is traced. Shapes may then be
symbolic (jax.export): that is why these are sums of products, a little more than what the kernels take. A call without
enough scratch fails; python/tests/gpu/test_jax_scratch.py makes calls of many shapes.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

_SMALL = 64 << 10  # what calls take whatever their shapes: counters of the sort, and the gaps between aligned blocks
_IDS_PER_GROUP = 512  # kContributionsPerGroup of raggrad/ops/sparse_segment/plan/device_plan.h


def _sum_bytes(dtype: Any) -> int:
    """Bytes of a number in which rows of this type are summed."""
    return 8 if dtype == np.float64 else 4


def _sort(ids: Any) -> Any:
    """Of the sort of ids: two copies of 8 bytes, and 3.2 bytes for the counts of its tiles."""
    return 20 * ids + _SMALL


def segments(rows: Any, num_segments: Any, sorted_ids: bool) -> Any:
    """Where each segment begins, and the order of the rows."""
    return 8 * (num_segments + 1) + (_SMALL if sorted_ids else _sort(rows))


def gradient_rows(grad: Any, ids: Any, weighted: bool, accumulation: str | None) -> Any:
    """The order of the ids, what rows are multiplied by, and sums of rows that extend over several groups."""
    num_segments, width, number = grad.shape[0], math.prod(grad.shape[1:]), _sum_bytes(grad.dtype)
    groups = ids // _IDS_PER_GROUP + 1
    factors = (4 + 3 * number) * ids if weighted else 0
    sums = 2 * groups * width * number
    if accumulation == "reproducible":
        sums = 2 * sums + 3 * number * num_segments + 20 * groups
    return _sort(ids) + factors + 4 * (num_segments + 1) + 4 * (groups + 1) + sums


def filled_entries(entries: Any, rows: Any) -> Any:
    """Two copies of rows and positions, which are sorted, and the number of empty rows before each row."""
    return 17 * entries + 9 * rows + _SMALL


def sliced_entries(entries: Any) -> Any:
    """A bit for every entry and counts of 1,024 entries each."""
    return entries // 4 + _SMALL
