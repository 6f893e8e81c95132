"""Writes batching/crashes.jsonl: scenarios that TensorFlow's batching operators do not survive.

None of them is run through TensorFlow. `tf` is what TensorFlow 2.21.0 does: "abort" or "segfault" (of the process),
"hang" (a call never ends), "garbage" (memory that was never written) or "leak" (remains of a failed call spoil later
ones). `want` is how each call ends in raggrad: a code, "ok", "ok_empty" for a result without rows, "completed by N" for
a call that waits until call N, "keeps waiting" for one that only cancelling ends. "(at once)": it never waits.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ..encoding import Tensor, tensor
from . import batch, unbatch, unbatch_grad
from .scenario import Scenario, index

INVALID = "INVALID_ARGUMENT"
EMPTY = "ok_empty"

Script = dict[str, Any]


def _script(s: Scenario, tf: str, *wants: str) -> Script:
    script = s.to_json()
    del script["tags"]
    return {**script, "tf": tf, "want": {str(call): words for call, words in enumerate(wants)}}


def pieces_of_rank_0() -> Iterator[Script]:
    call = unbatch_grad.call
    s = Scenario("UnbatchGrad", "scalar-piece", "a gradient without rows")
    call(s, 1, s.values())
    yield _script(s, "abort", INVALID)
    s = Scenario("UnbatchGrad", "scalar-piece-of-owner", "a gradient without rows")
    call(s, 1, s.values(), [(1, 1)])
    yield _script(s, "abort", INVALID)
    s = Scenario("UnbatchGrad", "scalar-piece-for-waiting-owner", "is not accepted: the owner goes on waiting")
    call(s, 1, s.values(1, 2), [(1, 1), (2, 1)])
    call(s, 2, s.values())
    yield _script(s, "abort", "keeps waiting", INVALID)
    s = Scenario("UnbatchGrad", "scalar-index", "a batch_index without rows")
    call(s, 1, s.values(1, 2), tensor("int64", 1))
    yield _script(s, "garbage", INVALID)


def pieces_that_do_not_fit() -> Iterator[Script]:
    """The owner, who waits for the batch, gets the error, not the call that brought the last piece."""
    call = unbatch_grad.call
    for name, grad in {"inner": (1, 3), "rank": (1, 2, 1), "rank-1": (2,)}.items():
        s = Scenario("UnbatchGrad", f"last-piece-{name}", "TensorFlow tells the wrong call, and the owner hangs")
        call(s, 1, s.values(1, 2), [(1, 1), (2, 1)])
        call(s, 2, s.values(*grad))
        yield _script(s, "hang", INVALID, EMPTY)
    s = Scenario("UnbatchGrad", "last-piece-unsupported", "a type that cannot be joined")
    call(s, 1, s.values(1, 1, dtype="qint8"), [(1, 1), (2, 1)])
    call(s, 2, s.values(1, 1, dtype="qint8"))
    yield _script(s, "hang", INVALID, INVALID)
    s = Scenario("UnbatchGrad", "last-piece-by-an-owner", "an owner brings the misfit and then waits itself")
    call(s, 1, s.values(1, 2), [(1, 1), (2, 1)])
    call(s, 2, s.values(1, 3), [(3, 1), (4, 1)])
    call(s, 3, s.values(1, 2))
    call(s, 4, s.values(1, 2))
    yield _script(s, "segfault", INVALID, "completed by 3", EMPTY, EMPTY)
    for dtype in ("int32", "float64", "string"):
        s = Scenario("UnbatchGrad", f"piece-of-{dtype}-first", "types in one batch differ")
        call(s, 2, s.values(1, 2, dtype=dtype))
        call(s, 1, s.values(1, 2), [(1, 1), (2, 1)])
        yield _script(s, "abort", EMPTY, INVALID)
        s = Scenario("UnbatchGrad", f"piece-of-{dtype}-last", "types in one batch differ")
        call(s, 1, s.values(1, 2), [(1, 1), (2, 1)])
        call(s, 2, s.values(1, 2, dtype=dtype))
        yield _script(s, "abort", INVALID, EMPTY)
    s = Scenario("UnbatchGrad", "pieces-of-another-type", "all of them of one type, which is not the call's")
    call(s, 1, s.values(1, 2, dtype="int32"))
    call(s, 2, s.values(1, 2), [(1, 1)])
    yield _script(s, "garbage", EMPTY, INVALID)
    s = Scenario("UnbatchGrad", "rows-overflow", "rows without elements that add up to 2^63")
    call(s, 1, s.values(0, 0))
    call(s, 2, s.values(0, 0), [(1, 1), (2, 1)])
    for step in s.steps:
        step["inputs"]["grad"]["shape"][0] = 2**62  # NumPy cannot make such an array
    yield _script(s, "abort", EMPTY, INVALID)


def pieces_of_two_batches() -> Iterator[Script]:
    """A piece belongs to the first batch that asks for it."""
    call = unbatch_grad.call
    s = Scenario("UnbatchGrad", "piece-reserved", "a piece that is there for a waiting batch is not given to another")
    call(s, 1, s.values(1, 2), [(1, 1), (2, 1)])
    call(s, 3, s.values(1, 2), [(1, 1), (3, 1)])
    call(s, 2, s.values(1, 2))
    yield _script(s, "hang", "completed by 2", INVALID, EMPTY)
    s = Scenario("UnbatchGrad", "owner-wanted", "an owner's own piece is wanted by a batch that came before")
    call(s, 1, s.values(1, 2), [(1, 1), (2, 1)])
    call(s, 2, s.values(1, 2), [(2, 1), (3, 1)])
    call(s, 3, s.values(1, 2))
    yield _script(s, "hang", "completed by 1", INVALID, EMPTY)
    s = Scenario("UnbatchGrad", "missing-key-listed-twice", "the batch could never be complete")
    call(s, 1, s.values(1, 2), [(1, 1), (2, 1), (2, 1)])
    call(s, 2, s.values(1, 2))
    yield _script(s, "hang", f"{INVALID} (at once)", EMPTY)
    s = Scenario("UnbatchGrad", "wake-up", "an owner that need not wait brings what another waits for")
    call(s, 1, s.values(1, 2), [(1, 1), (2, 1)])
    call(s, 3, s.values(1, 2))
    call(s, 2, s.values(1, 2), [(3, 1)])
    yield _script(s, "hang", "completed by 2", EMPTY, "ok")
    s = Scenario("UnbatchGrad", "never-complete", "only a deadline or cancelling ends the wait")
    call(s, 1, s.values(1, 2), [(1, 1), (2, 1)])
    yield _script(s, "hang", "DEADLINE_EXCEEDED or CANCELLED")


def traces_of_failed_calls() -> Iterator[Script]:
    call = unbatch_grad.call
    s = Scenario("UnbatchGrad", "retry-after-bad-index", "a failed call leaves no gradient behind")
    call(s, 1, s.values(1, 2), tensor("int64", [[1, 2]]))
    call(s, 1, s.values(1, 2), [(1, 1)])
    yield _script(s, "leak", INVALID, "ok")
    s = Scenario("UnbatchGrad", "retry-after-wanted-twice", "nor a batch")
    call(s, 1, s.values(1, 2), [(1, 1), (3, 1)])
    call(s, 2, s.values(1, 2), [(2, 1), (3, 1)])
    call(s, 3, s.values(1, 2))
    call(s, 2, s.values(1, 2), [(2, 1)])
    yield _script(s, "leak", "completed by 2", INVALID, EMPTY, "ok")


def unbatch_scripts() -> Iterator[Script]:
    def one(name: str, tf: str, data: tuple[int, ...], table: Any, note: str) -> Script:
        s = Scenario("Unbatch", name, note)
        unbatch.call(s, 1, s.values(*data), table if isinstance(table, Tensor) else tensor("int64", table))
        return _script(s, tf, INVALID)

    yield one("index-of-shape-0", "abort", (0, 2), index([]).array[0:0, 0], "what Batch gives for no rows")
    yield one("scalar-index", "garbage", (1, 2), 1, "a size that was never written is read")
    yield one("scalar-data", "garbage", (), index([]), "a size that was never written is read")
    yield one("index-of-shape-1x3x2", "abort", (1, 2), np.ones((1, 3, 2)), "six numbers for one row")
    yield one("negative-size-aligned", "abort", (2, 16), [[1, 2, 1], [2, 0, 1]], "a piece of -1 rows of 64 bytes")
    yield one("negative-size", "abort", (2, 3), [[1, 2, 1], [2, 0, 1]], "a piece of -1 rows of 12 bytes")
    yield one("too-long-and-negative", "abort", (2, 3), [[1, 0, 5], [2, 4, 1]], "5 and -3 rows of 2")
    yield one("sizes-overflow", "abort", (2, 16), [[1, 0, 2**63 - 1], [2, 0, 2**63 - 1]], "the sum is -2 in 64 bits")
    yield one("key-twice-behind-own", "segfault", (3, 3), [[1, 0, 1], [2, 1, 2], [2, 2, 3]], "a key has one piece")
    yield one("key-twice-before-own", "segfault", (3, 3), [[2, 0, 1], [2, 1, 2], [1, 2, 3]], "a key has one piece")
    s = Scenario("Unbatch", "key-stored", "a second piece for a key whose first was not fetched")
    unbatch.call(s, 1, s.values(2, 3), [(1, 1), (2, 1)])
    unbatch.call(s, 3, s.values(2, 3), [(2, 1), (3, 1)])
    yield _script(s, "segfault", "ok", "ALREADY_EXISTS")


def batch_scripts() -> Iterator[Script]:
    """An error of a batch reaches all of its calls."""
    tasks = {
        "inner": ("hang", [[((1, 2), "float32")], [((1, 3), "float32")]]),
        "number-of-tensors": ("hang", [[((1, 2), "float32")], [((1, 2), "float32")] * 2]),
        "unsupported": ("hang", [[((1, 1), "qint8")]] * 2),
        "types": ("abort", [[((1, 2), "float32")], [((1, 2), "int32")]]),
    }
    for name, (tf, calls) in tasks.items():
        s = Scenario("Batch", f"{name}-in-one-batch", "calls that do not fit together")
        for tensors in calls:
            batch.call(s, *[s.values(*shape, dtype=dtype) for shape, dtype in tensors], size=2)
        yield _script(s, tf, "ok or " + INVALID if name == "types" else INVALID, INVALID)


def all_scripts() -> Iterator[Script]:
    yield from pieces_of_rank_0()
    yield from pieces_that_do_not_fit()
    yield from pieces_of_two_batches()
    yield from traces_of_failed_calls()
    yield from unbatch_scripts()
    yield from batch_scripts()


def write(path: Path) -> None:
    with open(path, "w") as file:
        for script in all_scripts():
            file.write(json.dumps(script, separators=(",", ":")) + "\n")
