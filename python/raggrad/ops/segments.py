"""Rows of an array, pooled by segment: segment ids in any order, no indices. With gradients.

Sums have the order of SparseSegmentSum, as if the rows had been sorted by segment first, stably: rows of a segment are
added in the order they have in `data`, the first few from left to right, then in groups of eight. half and bfloat16
are summed in float32 and rounded once. Results are the same bits on every run and for every number of threads. With
`accumulation="reproducible"`, or in a raggrad.accumulation("reproducible") block, also for every order of the rows.

Rows are read where they lie: only the ids are sorted, which takes 24 bytes for each id (16 on a GPU), and 4 if they are
in order.
"""

from __future__ import annotations

import operator
from typing import Any

from .. import _arrays, _core
from .._named import named
from .._namespaces import Namespace
from ..errors import InvalidArgumentError
from ..settings import Accumulation, accumulation_or_current
from .checks import integers, rows_of, up_to

_MAX_SEGMENTS = 2**31 - 1  # what the kernel counts in
_MAX_ROWS = 2**32 - 1  # a row's position is sorted as a number of 32 bits


def _ids_of(name: str, segment_ids: Any, xp: Namespace) -> Any:
    ids = integers(name, "segment_ids", segment_ids, 1, xp)
    if len(ids) > _MAX_ROWS:
        raise InvalidArgumentError(
            f"{name}: too many segment ids [segment_ids: expected at most {_MAX_ROWS}, got {len(ids)}]"
        )
    return ids


def _check_range(name: str, ids: Any, count: int, why_none: str, xp: Namespace) -> int:
    """The largest id, after a check that all are in range: one copy to host memory."""
    if not len(ids):
        return -1
    least, most = xp.facts(ids.min(), ids.max())
    if least < 0 or most >= count:
        place = xp.first((ids < 0) | xp.reaches(ids, count))
        raise InvalidArgumentError(
            f"{name}: a segment id is out of range [segment_ids[{place}]: expected {up_to(count, why_none)}, "
            f"got {int(ids[place])}]"
        )
    return most


def _count(name: str, ids: Any, num_segments: Any, xp: Namespace) -> int:
    """How many segments there are. The engine checks that every id names one of them."""
    if num_segments is None:
        return _check_range(name, ids, _MAX_SEGMENTS, "", xp) + 1
    try:
        count = operator.index(num_segments)
    except TypeError:
        raise InvalidArgumentError(
            f"{name}: num_segments is not a whole number [num_segments: expected an int, got "
            f"{type(num_segments).__name__}]"
        ) from None
    if not 0 <= count <= _MAX_SEGMENTS:
        raise InvalidArgumentError(
            f"{name}: num_segments is out of range [num_segments: expected 0 to {_MAX_SEGMENTS}, got {count}]"
        )
    return count


def _segment(name: str, combiner: str, data: Any, segment_ids: Any, num_segments: Any, accumulation: str | None) -> Any:
    mode = accumulation_or_current(accumulation)
    rows = rows_of(name, "data", data, None if combiner == "sum" else "float32")
    _arrays.check_one_device(name, "data", data, segment_ids=segment_ids)
    with _arrays.of(data) as xp:
        ids = _ids_of(name, segment_ids, xp)
        if len(ids) != rows:
            raise InvalidArgumentError(
                f"{name}: every row needs a segment id [segment_ids: expected {rows} for {rows} rows of data, "
                f"got {len(ids)}]"
            )
        count = _count(name, ids, num_segments, xp)
        operand = _arrays.operand(data, xp)
        pooled = _core.pool_segments(name, combiner, operand, ids, count, mode)
    return pooled if operand is data else _arrays.in_kind_of(pooled, data)


def _segment_grad(name: str, combiner: str, grad: Any, segment_ids: Any) -> Any:
    _arrays.check_one_device(name, "grad", grad, segment_ids=segment_ids)
    with _arrays.of(grad) as xp:
        ids = _ids_of(name, segment_ids, xp)
        rows = rows_of(name, "grad", grad, "float32")
        _check_range(name, ids, rows, "grad has no rows", xp)
        # The gradient of a sparse segment operator in which every row of the table is used once, in order.
        positions, operand = xp.arange(len(ids)), _arrays.operand(grad, xp)
        values, _ = _core.segment_grad(name, combiner, operand, positions, ids, len(ids), None)
    return values if operand is grad else _arrays.in_kind_of(values, grad)


@named()
def segment_sum(
    data: Any, segment_ids: Any, num_segments: Any = None, *, accumulation: Accumulation | None = None
) -> Any:
    """Row s of the result is the sum of data[i] over all i with segment_ids[i] == s.

    As tf.math.unsorted_segment_sum and jax.ops.segment_sum, but an id out of range is an error: it is not dropped.

    Args:
      data: [n, ...], half, bfloat16, float32 or float64; also integers.
      segment_ids: [n], integers in [0, num_segments), in any order. int32 and int64 are taken as they are, others
        copied.
      num_segments: rows of the result, below 2^31; the largest segment id + 1 if it is not given.
      accumulation: "sequential", "fast" or "reproducible"; None: that of raggrad.accumulation.

    Returns:
      [num_segments, ...]; zeros for segments that no id names.

    >>> import numpy as np
    >>> from raggrad import ops
    >>> ops.segment_sum(np.float32([[1], [2], [4]]), [1, 0, 1], num_segments=3).tolist()
    [[2.0], [5.0], [0.0]]
    """
    return _segment("segment_sum", "sum", data, segment_ids, num_segments, accumulation)


@named()
def segment_sum_grad(grad: Any, segment_ids: Any) -> Any:
    """Gradient of segment_sum with respect to `data`: grad[segment_ids].

    Args:
      grad: [num_segments, ...], half, bfloat16, float32 or float64.
      segment_ids: [n], as for segment_sum.

    Returns:
      [n, ...]. Minus zero comes back as zero, as from all gradients of segments.

    >>> import numpy as np
    >>> from raggrad import ops
    >>> ops.segment_sum_grad(np.float32([[2], [6]]), [1, 0, 1]).tolist()
    [[6.0], [2.0], [6.0]]
    """
    return _segment_grad("segment_sum_grad", "sum", grad, segment_ids)


@named()
def segment_mean(
    data: Any, segment_ids: Any, num_segments: Any = None, *, accumulation: Accumulation | None = None
) -> Any:
    """Row s of the result is the mean of data[i] over all i with segment_ids[i] == s.

    Arguments and result are those of segment_sum, without integers.

    >>> import numpy as np
    >>> from raggrad import ops
    >>> ops.segment_mean(np.float32([[1], [2], [4]]), [1, 0, 1]).tolist()
    [[2.0], [2.5]]
    """
    return _segment("segment_mean", "mean", data, segment_ids, num_segments, accumulation)


@named()
def segment_mean_grad(grad: Any, segment_ids: Any) -> Any:
    """Gradient of segment_mean with respect to `data`: grad[s] / count(s) with s = segment_ids[i], for every i.

    count(s) is how often s occurs in segment_ids. Arguments and result are those of segment_sum_grad.

    >>> import numpy as np
    >>> from raggrad import ops
    >>> ops.segment_mean_grad(np.float32([[2], [6]]), [1, 0, 1]).tolist()
    [[3.0], [2.0], [3.0]]
    """
    return _segment_grad("segment_mean_grad", "mean", grad, segment_ids)


@named()
def segment_sqrtn(
    data: Any, segment_ids: Any, num_segments: Any = None, *, accumulation: Accumulation | None = None
) -> Any:
    """Row s of the result is sum(x) / sqrt(n) of the n rows x = data[i] with segment_ids[i] == s.

    Arguments and result are those of segment_sum, without integers.

    >>> import numpy as np
    >>> from raggrad import ops
    >>> ops.segment_sqrtn(np.float32([[1], [2], [4], [1], [8]]), [1, 0, 1, 1, 1]).tolist()
    [[2.0], [7.0]]
    """
    return _segment("segment_sqrtn", "sqrtn", data, segment_ids, num_segments, accumulation)


@named()
def segment_sqrtn_grad(grad: Any, segment_ids: Any) -> Any:
    """Gradient of segment_sqrtn with respect to `data`: grad[s] / sqrt(count(s)) with s = segment_ids[i], for every i.

    count(s) is how often s occurs in segment_ids. Arguments and result are those of segment_sum_grad.

    >>> import numpy as np
    >>> from raggrad import ops
    >>> ops.segment_sqrtn_grad(np.float32([[2], [6]]), [1, 0, 1, 1, 1]).tolist()
    [[3.0], [2.0], [3.0], [3.0], [3.0]]
    """
    return _segment_grad("segment_sqrtn_grad", "sqrtn", grad, segment_ids)
