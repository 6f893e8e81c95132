"""Recorded answers of TensorFlow, and the answers to inputs that crash it, through tf.raw_ops."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from raggrad.conformance.files import read_cases
from raggrad.conformance.run import compare

from .door import ROOT, calls, door

sys.path.insert(0, str(ROOT / "tools"))
from goldens import tf_runner

FOLDERS = [ROOT / "goldens", *(Path(folder) for folder in [os.environ.get("RAGGRAD_SHARED_GOLDENS")] if folder)]
SMALL_MEMORY = 8 << 30  # only cases that must fail ask for more
MAPPED_BEFORE = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()  # by TensorFlow itself
BATCHING = ("Batch", "Unbatch", "UnbatchGrad")  # test_batching.py
OURS = [name for name, answer in door.status().items() if answer == "raggrad" and name not in BATCHING]


@contextmanager
def _little_memory() -> Iterator[None]:
    """TensorFlow takes what Linux grants, so requests that must fail have to fail there, on any machine."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (MAPPED_BEFORE + SMALL_MEMORY, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def _difference(case: dict[str, Any]) -> str | None:
    with _little_memory():
        got = tf_runner.run(case)
    if case.get("note", "").startswith("dtype") and "error" in case:
        return None if got.get("error", {}).get("code") == case["error"]["code"] else f"got {got}"
    return compare(case, got)


def _check(cases: list[dict[str, Any]]) -> None:
    before = sum(map(calls, OURS))
    different = {case["name"]: found for case in cases if (found := _difference(case)) is not None}
    assert not different
    assert sum(map(calls, OURS)) - before >= sum("outputs" in case for case in cases)


@pytest.mark.parametrize("folder", FOLDERS, ids=str)
@pytest.mark.parametrize("operator", OURS)
def test_recorded_answers(folder: Path, operator: str) -> None:
    _check([case for _, case in read_cases(folder / f"{operator}.jsonl")])


@pytest.mark.parametrize("path", [*(folder / "crashes.jsonl" for folder in FOLDERS), ROOT / "goldens/ledger.jsonl"],
                         ids=str)
def test_inputs_that_crash_others(path: Path) -> None:
    _check([case for _, case in read_cases(path) if case["op"] in OURS])
