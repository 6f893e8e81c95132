"""Scenarios of Unbatch that TensorFlow survives. Others are in crashes.py."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations

import numpy as np

from ..encoding import Tensor, tensor
from .scenario import LONG, OTHER_TYPES, SHORT, TYPES, Rows, Scenario, index, names

OP = "Unbatch"
WALKS = 20


def call(s: Scenario, key: int | Tensor, data: Tensor | None = None, rows: Rows | Tensor | None = None, *,
         timeout: int = LONG, dtype: str = "float32", name: str = "u", container: str = "") -> int:
    """One call. With data it is the owner of a batch."""
    return s.call({"batched_tensor": s.values(0, 2, dtype=dtype) if data is None else data,
                   "batch_index": rows if isinstance(rows, Tensor) else index(rows or []),
                   "id": key if isinstance(key, Tensor) else tensor("int64", key)},
                  {"timeout_micros": timeout, **names(name, container)})


def play(s: Scenario, rows: Rows, owner: int, order: list[int], *, padding: int = 0, dtype: str = "float32",
         **where: str) -> None:
    data = s.values(sum(size for _, size in rows) + padding, 2, dtype=dtype)
    for key in order:
        call(s, key, *((data, rows) if key == owner else ()), dtype=dtype, **where)


def scenarios() -> Iterator[Scenario]:
    yield from _whole_batches()
    yield from _types()
    yield from _oddities()
    yield from _timeouts()
    yield from _errors()
    yield from _order_of_checks()
    yield from (_walk(number) for number in range(WALKS))


def _whole_batches() -> Iterator[Scenario]:
    for rank in range(1, 5):
        s = Scenario(OP, f"alone-rank-{rank}", "the only call of a batch gets it back")
        call(s, 7, s.values(3, *range(2, rank + 1)), [(7, 3)])
        yield s
    for order in permutations(range(3)):
        for owner in range(3):
            s = Scenario(OP, f"order-{''.join(map(str, order))}-owner-{owner}", "every order of arrival")
            keys = s.keys(3)
            play(s, [*zip(keys, (2, 1, 3), strict=True)], keys[owner], [keys[i] for i in order])
            yield s
    for count in (5, 8, 40):
        s = Scenario(OP, f"many-{count}", "a random order of arrival")
        keys = s.keys(count)
        sizes = [int(size) for size in s.rng.integers(1, 4, count)]
        order = [int(key) for key in s.rng.permutation(np.array(keys))]
        play(s, [*zip(keys, sizes, strict=True)], order[int(s.rng.integers(count))], order)
        yield s


def _types() -> Iterator[Scenario]:
    for dtype in TYPES:
        s = Scenario(OP, dtype, "bits are copied as they are", "dtype")
        play(s, [(1, 2), (2, 1)], 2, [1, 2], dtype=dtype)
        yield s
    for dtype in OTHER_TYPES:
        s = Scenario(OP, f"{dtype}-unsupported", "the owner cannot cut them", "dtype", "error")
        call(s, 1, s.values(1, 1, dtype=dtype), [(1, 1)])
        yield s


def _oddities() -> Iterator[Scenario]:
    def scenario(name: str, note: str) -> Scenario:
        return Scenario(OP, name, note, "surprise")

    s = Scenario(OP, "padding", "rows behind the last piece are dropped")
    play(s, [(1, 2), (2, 1)], 1, [1, 2], padding=3)
    yield s
    s = Scenario(OP, "zero-row-pieces", "a piece may have no rows")
    play(s, [(1, 0), (2, 2), (3, 0)], 2, [1, 2, 3])
    yield s
    s = scenario("starts-ignored", "only end - start counts, pieces are cut one after the other")
    call(s, 1, s.values(3, 2), tensor("int64", [[1, 10, 11], [2, -7, -5]]))
    call(s, 2)
    yield s
    s = scenario("index-of-rank-3", "a batch_index of shape [2,3,1] will do")
    call(s, 1, s.values(2, 2), tensor("int64", np.reshape([1, 0, 1, 2, 1, 2], (2, 3, 1))))
    call(s, 2)
    yield s
    s = scenario("stored-piece-wins", "an owner whose piece is stored gets that one, and its batch is thrown away")
    call(s, 1, s.values(2, 2), [(1, 1), (2, 1)])
    call(s, 2, s.values(3, 2), [(2, 2), (3, 1)])
    call(s, 3)
    yield s
    s = scenario("owner-not-listed", "an owner that is not in its batch hands out the pieces and waits")
    call(s, 9, s.values(1, 2), [(1, 1)])
    call(s, 1)
    yield s
    s = Scenario(OP, "resources", "the same keys in resources of other names and containers", "resource")
    for name, container in (("u", ""), ("v", ""), ("u", "c")):
        play(s, [(1, 1), (2, 2)], 2, [2], name=name, container=container)
    for name, container in (("v", ""), ("u", "c"), ("u", "")):
        call(s, 1, name=name, container=container)
    yield s


def _timeouts() -> Iterator[Scenario]:
    s = Scenario(OP, "receiver-times-out", "its key is free then", "timeout")
    s.wait_for(call(s, 1, timeout=SHORT))
    call(s, 1, s.values(1, 2), [(1, 1)], timeout=SHORT)
    yield s
    s = Scenario(OP, "piece-expires", "a piece that nobody asks for in time is gone", "timeout")
    call(s, 1, s.values(2, 2), [(1, 1), (2, 1)], timeout=SHORT)
    s.sleep(2 * SHORT)
    s.wait_for(call(s, 2, timeout=SHORT))
    yield s
    s = Scenario(OP, "owner-not-listed-times-out", "", "timeout")
    s.wait_for(call(s, 9, s.values(1, 2), [(1, 1)], timeout=SHORT))
    yield s
    s = Scenario(OP, "first-call-decides", "the timeout of a resource is that of its first call", "timeout")
    s.wait_for(call(s, 1, timeout=SHORT))
    s.wait_for(call(s, 2, timeout=LONG))
    yield s
    for timeout in (0, -1, -(2**31)):
        s = Scenario(OP, f"timeout-{timeout}", "a receiver's time is up at once, an owner does not need any", "timeout")
        call(s, 1, timeout=timeout)
        call(s, 1, s.values(1, 2), [(1, 1)], timeout=timeout)
        yield s


def _errors() -> Iterator[Scenario]:
    for timeout in (2**31, -(2**31) - 1):
        s = Scenario(OP, f"timeout-of-33-bits-{timeout}", "timeout_micros is an int32", "error")
        call(s, 1, timeout=timeout)
        yield s
    s = Scenario(OP, "key-waits-already", "the first call keeps waiting", "error")
    call(s, 1)
    call(s, 1)
    call(s, 2, s.values(2, 2), [(1, 1), (2, 1)])
    yield s
    s = Scenario(OP, "owner-waits-already", "the second owner's batch is thrown away", "error")
    call(s, 1)
    call(s, 1, s.values(2, 2), [(1, 1), (2, 1)])
    yield s
    for rows, data in ((2, 1), (3, 2), (1, 0)):
        s = Scenario(OP, f"{rows}-rows-for-{data}", "more index rows than data", "error")
        call(s, 1, s.values(data, 2), [(key, 0) for key in range(1, rows + 1)])
        yield s
    for shape in ((1, 1), (1, 2), (2, 4), (0, 2)):
        s = Scenario(OP, f"index-of-shape-{'x'.join(map(str, shape))}", "rows of three", "error")
        call(s, 1, s.values(2, 2), tensor("int64", np.ones(shape)))
        call(s, 1, s.values(1, 2), [(1, 1)])
        yield s
    for shape in ((1,), (0,), (1, 1), (3,)):
        s = Scenario(OP, f"id-of-shape-{'x'.join(map(str, shape))}", "id must be a scalar", "error")
        call(s, tensor("int64", np.full(shape, 1)), s.values(1, 2), [(1, 1)])
        yield s
    for sizes in ((2,), (1, 1, 0, 1), (2**40, 1)):
        s = Scenario(OP, f"sizes-{'-'.join(map(str, sizes))}", "pieces of more rows than there are", "error")
        call(s, 1, s.values(max(len(sizes) - 2, 1) if max(sizes) < 9 else 2, 2), [*enumerate(sizes, 1)])
        yield s


def _order_of_checks() -> Iterator[Scenario]:
    vector = tensor("int64", [1])
    faults: dict[str, tuple[int | Tensor, str, int, Tensor]] = {
        "rows-before-columns": (1, "float32", 1, tensor("int64", np.ones((2, 2)))),
        "columns-before-id": (vector, "float32", 1, tensor("int64", np.ones((1, 2)))),
        "id-before-sizes": (vector, "float32", 1, index([(1, 5)])),
        "dtype-before-sizes": (1, "qint8", 1, index([(1, 5)])),
    }
    for name, (key, dtype, rows, table) in faults.items():
        s = Scenario(OP, name, "two faults at once", "error", "precedence")
        call(s, key, s.values(rows, 1, dtype=dtype), table)
        yield s
    s = Scenario(OP, "sizes-before-stored-piece", "the sizes are checked even if the batch is not needed", "error",
                 "precedence")
    call(s, 1, s.values(2, 2), [(1, 1), (2, 1)])
    call(s, 2, s.values(1, 2), [(2, 5)])
    call(s, 2)
    yield s


def _walk(number: int) -> Scenario:
    """Several batches at once, in any order, with failing calls in between."""
    s = Scenario(OP, f"walk-{number:02}", "random", "walk")
    calls: list[tuple[int, Rows | None]] = []
    for _ in range(s.rng.integers(2, 5)):
        rows = [(key, int(s.rng.integers(0, 4))) for key in s.keys(int(s.rng.integers(1, 5)))]
        owner = int(s.rng.integers(len(rows)))
        calls += [(key, rows if i == owner else None) for i, (key, _) in enumerate(rows)]
    for at in s.rng.permutation(len(calls)):
        key, rows = calls[at]
        if s.rng.random() < 0.2:
            call(s, tensor("int64", [key]))
        if rows is None:
            call(s, key)
        else:
            data = s.values(max(sum(size for _, size in rows), len(rows)) + int(s.rng.integers(2)), 2)
            call(s, key, data, rows)
    return s
