"""Runs random cases through two implementations and counts differences."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

Json = dict[str, Any]


class Reference(Protocol):
    def run(self, cases: Sequence[Json]) -> list[Json | None]: ...


class Tested(Protocol):
    """The functions of raggrad.conformance that are used here."""

    def run_case(self, case: Json) -> Json: ...

    def compare(self, expected: Json, got: Json) -> str | None: ...


@dataclass
class Tally:
    passed: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    died: Counter[str] = field(default_factory=Counter)

    def total(self) -> int:
        return sum(sum(counter.values()) for counter in (self.passed, self.failed, self.died))


class Journal:
    """A file with one JSON line for each case that failed; made with the first one."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, case: Json, **remarks: Any) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.path, "a") as file:
            file.write(json.dumps(case | remarks) + "\n")


def run(
    batches: Iterable[Sequence[Json]],
    reference: Reference,
    tested: Tested,
    *,
    journal: Journal,
    before_case: Callable[[int], None] = lambda number: None,
    after_batch: Callable[[Tally], bool] = lambda tally: True,
    report: Callable[[str], None] = print,
) -> Tally:
    """Runs until the batches end or after_batch returns False.

    before_case gets the running number of each case. The reference and the library under test work on a batch at the
    same time.
    """
    tally = Tally()
    number = 0
    with ThreadPoolExecutor(1) as other_side:
        for batch in batches:
            expected = other_side.submit(reference.run, batch)
            answers = []
            for case in batch:
                before_case(number)
                number += 1
                answers.append(_answer(tested, case))
            for case, wanted, got in zip(batch, expected.result(), answers, strict=True):
                _judge(case, wanted, got, tested, tally, journal, report)
            if not after_batch(tally):
                break
    return tally


def _answer(tested: Tested, case: Json) -> Json:
    try:
        return tested.run_case(case)
    except Exception as error:  # no case expects this, so it counts as a difference
        return {"error": {"code": "exception", "message": repr(error)}}


def _judge(
    case: Json, wanted: Json | None, got: Json, tested: Tested,
    tally: Tally, journal: Journal, report: Callable[[str], None],
) -> None:
    op = case["op"]
    if wanted is None:
        tally.died[op] += 1
        report(f"tensorflow died: {case['name']}, kept in {journal.path}")
        journal.add(case, tensorflow="died")
        return
    difference = tested.compare(case | wanted, got)
    if difference is None:
        tally.passed[op] += 1
        return
    tally.failed[op] += 1
    report(f"difference: {case['name']}: {difference}, kept in {journal.path}")
    journal.add(case | wanted, difference=difference)
