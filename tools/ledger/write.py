#!/usr/bin/env python3
"""Writes the ledger's files: goldens/ledger.jsonl, which tests replay, and docs/ledger.md, which people read."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from ledger import fbgemm, jax, others, pytorch, tensorflow, tensorflow_advisories
from ledger.entry import Call, Project

REPOSITORY = Path(__file__).resolve().parents[2]
CASES = REPOSITORY / "goldens" / "ledger.jsonl"
PAGE = REPOSITORY / "docs" / "ledger.md"

PROJECTS: tuple[Project, ...] = (
    tensorflow_advisories.PROJECT,
    tensorflow.PROJECT,
    pytorch.EMBEDDINGS,
    pytorch.INDEXING,
    jax.PROJECT,
    fbgemm.PROJECT,
    others.PROJECT,
)

_INTRODUCTION = """\
# The ledger

{count} public reports of crashes, memory errors and silently wrong answers, on the operators that raggrad has and on
their counterparts in other libraries, and what raggrad answers to the same input. Tests replay all of them:

- **C++**: `golden_test`, on the CPU, with 1, 2 and 7 threads and every instruction set.
- **Python**: `python/tests/programs/test_ledger.py`, on the CPU, with 1, 2 and 7 threads.
- **GPU**: `golden_test` with operands in device memory (`make test-gpu`). One process runs all cases: a refused one
  must leave the device usable.

Results are compared bit for bit with numbers that were worked out by hand or by NumPy; errors by code and text. If a
report shows its input, the test replays it, reduced to a size that a test can hold; otherwise an input of the kind that
the report describes. Libraries fix reported faults: an entry says nothing about their latest versions.

This page and `goldens/ledger.jsonl` are made from `tools/ledger/`, one module per project, by `make ledger`.
"""


def cases() -> Iterator[dict]:
    """The calls of all entries in golden format. Scripts have none; they are replayed in Python only."""
    for project in PROJECTS:
        for entry in project.entries:
            calls = [replay for replay in entry.replays if isinstance(replay, Call)]
            for number, call in enumerate(calls, 1):
                yield call.to_json(f"{entry.report}/{call.op}-{number}", entry.link)


def cases_text() -> str:
    return "".join(json.dumps(case, separators=(",", ":")) + "\n" for case in cases())


def page_text() -> str:
    count = sum(len(project.entries) for project in PROJECTS)
    parts = [_INTRODUCTION.format(count=count)]
    for project in PROJECTS:
        parts.append(f"\n## {project.name}\n\n| report | what happened there | what raggrad answers | replayed in |\n")
        parts.append("|---|---|---|---|\n")
        for entry in project.entries:
            answers = entry.answers.replace("|", "\\|")
            places = ", ".join(entry.places)
            parts.append(f"| [{entry.report}]({entry.link}) | {entry.happened} | {answers}. | {places} |\n")
    return "".join(parts)


if __name__ == "__main__":
    CASES.write_text(cases_text())
    PAGE.write_text(page_text())
