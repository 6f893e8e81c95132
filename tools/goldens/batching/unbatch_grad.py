"""Scenarios of UnbatchGrad that TensorFlow survives. Others are in crashes.py.

So in a walk every key belongs to one batch, and all pieces fit.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations

import numpy as np

from ..encoding import Tensor, tensor
from .scenario import OTHER_TYPES, TYPES, Rows, Scenario, index, names

OP = "UnbatchGrad"
WALKS = 70

Pieces = dict[int, Tensor]


def call(s: Scenario, key: int | Tensor, grad: Tensor, rows: Rows | Tensor | None = None, *,
         original: Tensor | None = None, name: str = "s", container: str = "") -> int:
    """One call. With rows, or another batch_index, it is the owner of a batch."""
    if original is None:
        original = s.values(0 if rows is None else 1, 1, dtype=grad.dtype)
    return s.call({"original_input": original,
                   "batch_index": rows if isinstance(rows, Tensor) else index(rows or []),
                   "grad": grad,
                   "id": key if isinstance(key, Tensor) else tensor("int64", key)}, names(name, container))


def rows_of(pieces: Pieces) -> Rows:
    return [(key, piece.array.shape[0]) for key, piece in pieces.items()]


def play(s: Scenario, pieces: Pieces, owner: int, order: list[int], **where: str) -> None:
    for key in order:
        call(s, key, pieces[key], rows_of(pieces) if key == owner else None, **where)


def pieces_of(s: Scenario, sizes: list[int], *inner: int, dtype: str = "float32") -> Pieces:
    return {key: s.values(size, *inner, dtype=dtype) for key, size in zip(s.keys(len(sizes)), sizes, strict=True)}


def scenarios() -> Iterator[Scenario]:
    yield from _whole_batches()
    yield from _types()
    yield from _oddities()
    yield from _resources()
    yield from _errors()
    yield from _misfits()
    yield from _order_of_checks()
    yield from (_walk(number) for number in range(WALKS))


def _whole_batches() -> Iterator[Scenario]:
    for rank in range(1, 5):
        s = Scenario(OP, f"alone-rank-{rank}", "the only call of a batch gets its own gradient back")
        pieces = pieces_of(s, [3], *range(2, rank + 1))
        play(s, pieces, *pieces, [*pieces])
        yield s
    for order in permutations(range(3)):
        for owner in range(3):
            s = Scenario(OP, f"order-{''.join(map(str, order))}-owner-{owner}", "every order of arrival")
            pieces = pieces_of(s, [2, 1, 3], 2)
            keys = [*pieces]
            play(s, pieces, keys[owner], [keys[i] for i in order])
            yield s
    for count in (5, 8, 40):
        for turn in range(4):
            s = Scenario(OP, f"many-{count}-{turn}", "a random order of arrival")
            pieces = pieces_of(s, [int(size) for size in s.rng.integers(1, 4, count)], 3)
            order = [int(key) for key in s.rng.permutation(np.array([*pieces]))]
            play(s, pieces, order[int(s.rng.integers(count))], order)
            yield s
    s = Scenario(OP, "large", "pieces of 20 kB")
    pieces = pieces_of(s, [20, 1, 30], 100, dtype="float64")
    play(s, pieces, [*pieces][1], [*pieces])
    yield s


def _types() -> Iterator[Scenario]:
    for dtype in TYPES:
        for last in (True, False):
            s = Scenario(OP, f"{dtype}-owner-{'last' if last else 'first'}", "bits are copied as they are", "dtype")
            pieces = pieces_of(s, [2, 3], 2, dtype=dtype)
            keys = [*pieces]
            play(s, pieces, keys[-1], keys if last else keys[::-1])
            yield s
    for dtype in OTHER_TYPES:
        s = Scenario(OP, f"{dtype}-unsupported", "the owner is the first to hear of it", "dtype", "error")
        pieces = pieces_of(s, [1, 1], 1, dtype=dtype)
        play(s, pieces, [*pieces][-1], [*pieces])
        yield s


def _oddities() -> Iterator[Scenario]:
    def scenario(name: str, note: str) -> Scenario:
        return Scenario(OP, name, note, "surprise")

    for rank in (1, 3):
        s = Scenario(OP, f"empty-pieces-rank-{rank}", "pieces without rows", "empty")
        pieces = pieces_of(s, [0, 2, 0], *range(2, rank + 1))
        play(s, pieces, next(iter(pieces)), [*pieces])
        yield s
    s = Scenario(OP, "inner-dimension-0", "rows without elements", "empty")
    pieces = pieces_of(s, [2, 3], 0)
    play(s, pieces, next(iter(pieces)), [*pieces])
    yield s
    s = scenario("original-without-elements", "an original_input of 3 empty rows makes no owner")
    pieces = pieces_of(s, [1, 2], 2)
    for key, piece in pieces.items():
        call(s, key, piece, rows_of(pieces), original=s.values(3, 0))
    yield s
    s = scenario("original-is-a-scalar", "its shape is not looked at")
    call(s, 1, s.values(2, 2), [(1, 2)], original=s.values())
    yield s
    s = scenario("ranges-ignored", "the columns start and end are not looked at")
    lines = [[1, -5, 7], [2, 9, 3]]
    call(s, 1, s.values(1, 2))
    call(s, 2, s.values(3, 2), tensor("int64", lines))
    yield s
    for shape in ((2, 3, 1), (2, 1, 3)):
        s = scenario(f"index-{'x'.join(map(str, shape))}", "any rank with the right number of elements will do")
        call(s, 1, s.values(1, 2))
        call(s, 2, s.values(1, 2), tensor("int64", np.reshape([1, 0, 1, 2, 1, 2], shape)))
        yield s
    s = scenario("index-of-others-unchecked", "the batch_index of a call that owns nothing is not looked at")
    call(s, 1, s.values(1, 2), tensor("int64", [7]), original=s.values(0, 2))
    yield s
    s = Scenario(OP, "key-used-again", "a key is free when its batch has been handed out")
    for _ in range(2):
        call(s, 5, s.values(1, 2))
        call(s, 6, s.values(2, 2), [(5, 1), (6, 2)])
    yield s
    s = Scenario(OP, "extreme-keys", "the smallest and the largest int64, 0 and -1")
    keys = [-(2**63), 2**63 - 1, 0, -1]
    play(s, {key: s.values(1, 1) for key in keys}, 0, keys)
    yield s
    s = scenario("owner-not-listed", "an owner may own others' pieces only; its own is kept for whoever asks")
    call(s, 1, s.values(1, 2))
    call(s, 2, s.values(1, 2), [(1, 1)])
    call(s, 3, s.values(1, 2), [(2, 1), (3, 1)])
    yield s
    s = scenario("owner-not-listed-waits", "the same, before the piece is there")
    call(s, 2, s.values(1, 2), [(1, 1)])
    call(s, 1, s.values(1, 2))
    yield s
    s = scenario("owner-completes-another-batch", "an owner that waits brings the piece for which another waits")
    call(s, 1, s.values(1, 2), [(1, 1), (2, 1)])
    call(s, 2, s.values(2, 2), [(3, 1)])
    call(s, 3, s.values(3, 2))
    yield s
    s = Scenario(OP, "never-complete", "a piece never comes", "hang")
    call(s, 1, s.values(1, 2), [(1, 1), (2, 1), (3, 1)])
    call(s, 2, s.values(1, 2))
    yield s


def _resources() -> Iterator[Scenario]:
    places = [("s", ""), ("t", ""), ("s", "c"), ("S", ""), ("s", "localhost")]
    for turn in range(3):
        s = Scenario(OP, f"resources-{turn}", "the same keys in resources of other names and containers", "resource")
        calls = []
        for place in places:
            pieces = {key: s.values(1, 2) for key in (1, 2)}
            calls += [(place, pieces, key) for key in pieces]
        for at in s.rng.permutation(len(calls)):
            (name, container), pieces, key = calls[at]
            call(s, key, pieces[key], rows_of(pieces) if key == 2 else None, name=name, container=container)
        yield s


def _errors() -> Iterator[Scenario]:
    """Calls that fail. Most are repeated correctly, which TensorFlow may no longer accept (poison)."""
    for shape in ((1,), (0,), (1, 1), (2,), (9,)):
        s = Scenario(OP, f"id-of-shape-{'x'.join(map(str, shape))}", "id must be a scalar", "error")
        call(s, tensor("int64", np.full(shape, 1)), s.values(1, 2))
        call(s, 1, s.values(1, 2), [(1, 1)])
        yield s
    s = Scenario(OP, "key-twice", "the first gradient stays", "error")
    call(s, 1, s.values(1, 2))
    call(s, 1, s.values(2, 2))
    call(s, 2, s.values(1, 2), [(1, 1), (2, 1)])
    yield s
    s = Scenario(OP, "key-of-a-waiting-owner", "the owner goes on waiting", "error")
    call(s, 1, s.values(1, 2), [(1, 1), (2, 1)])
    call(s, 1, s.values(2, 2))
    call(s, 2, s.values(1, 2))
    yield s
    for shape in ((0, 3), (0,), (3, 0), (1, 2), (2, 4), (3,), (3, 1), (1, 3, 2)):
        s = Scenario(OP, f"index-of-shape-{'x'.join(map(str, shape))}", "an owner's batch_index has rows of three",
                     "error", "poison")
        call(s, 1, s.values(1, 2), tensor("int64", np.ones(shape)))
        call(s, 1, s.values(1, 2), [(1, 1)])
        call(s, 2, s.values(1, 2), [(2, 1)])
        yield s
    for rows in ([1, 1], [1, 2, 1], [2, 1, 2]):
        s = Scenario(OP, f"rows-{''.join(map(str, rows))}", "a key listed twice, all pieces there", "error", "poison")
        call(s, 2, s.values(1, 2))
        call(s, 1, s.values(1, 2), [(key, 1) for key in rows])
        call(s, 1, s.values(1, 2), [(1, 1)])
        call(s, 3, s.values(1, 2), [(2, 1), (3, 1)])
        yield s
    s = Scenario(OP, "wanted-twice", "two batches want one missing piece", "error", "poison")
    call(s, 1, s.values(1, 2), [(1, 1), (3, 1)])
    call(s, 2, s.values(1, 2), [(2, 1), (3, 1)])
    call(s, 3, s.values(1, 2))
    call(s, 2, s.values(1, 2), [(2, 1)])
    yield s
    s = Scenario(OP, "owner-waits-twice", "the same owner, whose piece another batch has taken", "error", "poison")
    call(s, 1, s.values(1, 2), [(2, 1)])
    call(s, 3, s.values(1, 2), [(1, 1), (3, 1)])
    call(s, 1, s.values(1, 2), [(2, 1), (4, 1)])
    yield s


def _misfits() -> Iterator[Scenario]:
    """Pieces that cannot be joined, noticed by an owner that comes last."""
    shapes = {
        "inner": [(1, 2), (1, 3)], "inner-empty": [(0, 2), (1, 3)], "inner-of-three": [(1, 2), (1, 2), (2, 1)],
        "rank": [(1, 2), (1, 2, 1)], "rank-1": [(2,), (2, 1)], "first-of-two": [(1, 2), (1, 3), (1, 2, 1)],
        "rank-before-inner": [(1, 2), (1, 2, 1), (1, 3)],
    }
    for name, pieces in shapes.items():
        s = Scenario(OP, f"misfit-{name}", "pieces of other ranks or inner sizes", "error")
        keys = range(1, len(pieces) + 1)
        for key, shape in zip(keys, pieces, strict=True):
            call(s, key, s.values(*shape), [(k, 1) for k in keys] if key == len(pieces) else None)
        call(s, 1, s.values(1, 2), [(1, 1)])
        yield s


def _order_of_checks() -> Iterator[Scenario]:
    vector, bad_index = tensor("int64", [1]), tensor("int64", [[1, 2]])
    s = Scenario(OP, "id-before-index", "two faults at once", "error", "precedence")
    call(s, vector, s.values(1, 2), bad_index)
    yield s
    s = Scenario(OP, "key-before-index", "two faults at once", "error", "precedence")
    call(s, 1, s.values(1, 2))
    call(s, 1, s.values(1, 2), bad_index)
    yield s
    s = Scenario(OP, "repeated-row-before-misfit", "two faults at once", "error", "precedence", "poison")
    call(s, 1, s.values(1, 2))
    call(s, 2, s.values(1, 3), [(1, 1), (1, 1), (2, 1)])
    yield s
    s = Scenario(OP, "dtype-before-misfit", "two faults at once", "error", "precedence")
    call(s, 1, s.values(1, 2, dtype="qint8"))
    call(s, 2, s.values(1, 3, dtype="qint8"), [(1, 1), (2, 1)])
    yield s


def _walk(number: int) -> Scenario:
    """Several batches at once, in any order, with failing calls in between."""
    s = Scenario(OP, f"walk-{number:02}", "random", "walk")
    rng = s.rng
    inner = [int(size) for size in rng.integers(0, 3, rng.integers(0, 3))]
    batches = [pieces_of(s, [int(size) for size in rng.integers(0, 4, rng.integers(1, 5))], *inner)
               for _ in range(rng.integers(2, 5))]
    calls = [(pieces, key, [*pieces][turn]) for pieces, turn in
             ((pieces, int(rng.integers(len(pieces)))) for pieces in batches) for key in pieces]
    called = set()
    for at in rng.permutation(len(calls)):
        pieces, key, owner = calls[at]
        if rng.random() < 0.35:
            _fail(s, pieces, key, owner, wanted=owner in called)
        call(s, key, pieces[key], rows_of(pieces) if key == owner else None)
        called.add(key)
    return s


def _fail(s: Scenario, pieces: Pieces, key: int, owner: int, wanted: bool) -> None:
    """A call that fails or may fail."""
    grad = pieces[key]
    kind = s.rng.integers(4 if wanted else 3)
    if kind == 0:
        call(s, tensor("int64", [key, key]), grad)
    elif kind == 1:
        call(s, owner, pieces[owner], rows_of(pieces))
    elif kind == 2:
        call(s, key, grad, tensor("int64", np.ones(s.rng.integers(0, 3, 2))))
    else:
        other, = s.keys(1)
        call(s, other, grad, [(other, grad.array.shape[0]), (key, grad.array.shape[0])])
