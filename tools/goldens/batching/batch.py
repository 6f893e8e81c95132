"""Scenarios of Batch. Those that make TensorFlow hang or die are in crashes.py."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..encoding import Tensor
from .scenario import LONG, OTHER_TYPES, SHORT, TYPES, Scenario, names

OP = "Batch"


def call(s: Scenario, *tensors: Tensor, size: int, name: str = "b", container: str = "", **attrs: Any) -> int:
    return s.call({"in_tensors": [*tensors]}, {
        "num_batch_threads": 1, "max_batch_size": size, "max_enqueued_batches": 10, "batch_timeout_micros": 3 * LONG,
        "allowed_batch_sizes": [], "grad_timeout_micros": 0, "batching_queue": "", **names(name, container), **attrs})


def scenarios() -> Iterator[Scenario]:
    yield from _whole_batches()
    yield from _types()
    yield from _timeouts()
    yield from _padding()
    yield from _queues()
    yield from _oddities()
    yield from _errors()


def _whole_batches() -> Iterator[Scenario]:
    for rank in range(1, 5):
        s = Scenario(OP, f"alone-rank-{rank}", "one call fills the batch")
        call(s, s.values(3, *range(2, rank + 1)), size=3)
        yield s
    for sizes in ((1, 1), (2, 1), (1, 2, 3), (1, 1, 1, 1, 1, 1), (3, 1, 2, 4)):
        s = Scenario(OP, f"rows-{'-'.join(map(str, sizes))}", "several calls fill the batch; the last one owns it")
        for rows in sizes:
            call(s, s.values(rows, 2), size=sum(sizes))
        yield s
    for dtype in ("int32", "string", "bfloat16"):
        s = Scenario(OP, f"two-tensors-{dtype}", "tensors of one call have types and shapes of their own")
        for rows in (1, 2):
            call(s, s.values(rows, 2), s.values(rows, dtype=dtype), size=3)
        yield s
    s = Scenario(OP, "does-not-fit", "a call that does not fit closes the batch and begins another")
    call(s, s.values(2, 2), size=3)
    call(s, s.values(2, 2), size=3)
    call(s, s.values(1, 2), size=3)
    yield s


def _types() -> Iterator[Scenario]:
    for dtype in TYPES:
        s = Scenario(OP, dtype, "bits are copied as they are", "dtype")
        for rows in (2, 1):
            call(s, s.values(rows, 2, dtype=dtype), size=3)
        yield s
    for dtype in OTHER_TYPES:
        s = Scenario(OP, f"{dtype}-unsupported", "", "dtype", "error")
        call(s, s.values(1, 1, dtype=dtype), size=1)
        yield s


def _timeouts() -> Iterator[Scenario]:
    for calls in (1, 2):
        s = Scenario(OP, f"timeout-of-{calls}", "a batch that is not full leaves when its time is up", "timeout")
        for _ in range(calls):
            last = call(s, s.values(1, 2), size=5, batch_timeout_micros=3 * SHORT)
        s.wait_for(last)
        yield s


def _padding() -> Iterator[Scenario]:
    for rows, allowed in ((3, [2, 4, 8]), (5, [2, 4, 8]), (4, [2, 4, 8]), (1, [8])):
        s = Scenario(OP, f"padding-{rows}-to-{'-'.join(map(str, allowed))}",
                     "row 0 is repeated up to the next allowed size", "padding", "timeout")
        s.wait_for(call(s, s.values(rows, 2), size=8, allowed_batch_sizes=allowed, batch_timeout_micros=SHORT))
        yield s


def _queues() -> Iterator[Scenario]:
    s = Scenario(OP, "queues", "calls of different queues do not meet")
    for queue in ("", "q", "", "q"):
        call(s, s.values(1, 2), size=2, batching_queue=queue)
    yield s
    s = Scenario(OP, "resources", "nor do calls of different names and containers")
    for name, container in (("b", ""), ("c", ""), ("b", "c"), ("b", "c"), ("c", ""), ("b", "")):
        call(s, s.values(1, 2), size=2, name=name, container=container)
    yield s
    s = Scenario(OP, "first-call-decides", "the sizes of a resource are those of its first call")
    call(s, s.values(1, 2), size=2)
    call(s, s.values(1, 2), size=100)
    yield s


def _oddities() -> Iterator[Scenario]:
    for count in (1, 2):
        s = Scenario(OP, f"zero-rows-{count}", "no rows: all outputs are empty, and nothing is queued", "surprise")
        call(s, *[s.values(0, 2) for _ in range(count)], size=3)
        yield s
    s = Scenario(OP, "inner-dimension-0", "rows without elements")
    call(s, s.values(2, 0), size=3)
    call(s, s.values(1, 0), size=3)
    yield s
    s = Scenario(OP, "no-largest-size", "a negative max_batch_size is no limit", "surprise", "timeout")
    s.wait_for(call(s, s.values(9, 2), size=-1, batch_timeout_micros=SHORT))
    yield s
    s = Scenario(OP, "queue-of-0", "max_enqueued_batches 0 counts as 1, -1 is no limit", "surprise")
    for name, enqueued in (("b", 0), ("c", -1)):
        call(s, s.values(2, 2), size=2, max_enqueued_batches=enqueued, name=name)
    yield s


def _errors() -> Iterator[Scenario]:
    attributes: dict[str, dict[str, Any]] = {
        "sizes-not-increasing": {"size": 4, "allowed_batch_sizes": [2, 1, 4]},
        "sizes-equal": {"size": 4, "allowed_batch_sizes": [2, 2, 4]},
        "last-size-is-not-the-largest": {"size": 4, "allowed_batch_sizes": [1, 2]},
        "no-threads": {"size": 1, "num_batch_threads": 0},
        "negative-threads": {"size": 1, "num_batch_threads": -1},
        "size-0": {"size": 0},
        "negative-timeout": {"size": 1, "batch_timeout_micros": -1},
        "size-of-33-bits": {"size": 2**31},
        "timeout-of-33-bits": {"size": 1, "batch_timeout_micros": 2**31},
    }
    for name, attrs in attributes.items():
        s = Scenario(OP, name, "", "error")
        call(s, s.values(1, 2), **attrs)
        yield s
    shapes = {"scalar": [()], "second-is-scalar": [(1, 2), ()], "rows-differ": [(1, 2), (2, 2)],
              "rows-differ-of-three": [(2, 2), (2,), (1, 2)], "too-many-rows": [(4, 2)]}
    for name, tensors in shapes.items():
        s = Scenario(OP, name, "", "error")
        call(s, *[s.values(*shape) for shape in tensors], size=3)
        yield s
    s = Scenario(OP, "queue-full", "the open batch counts", "error")
    for rows in (2, 2):
        call(s, s.values(rows, 2), size=3, max_enqueued_batches=1)
    yield s
