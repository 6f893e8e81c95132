#!/usr/bin/env python3
"""Records the golden files: runs every directed case and some random ones through TensorFlow."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from goldens import crashes, tf_runner
from goldens.batching import batch, recorder, unbatch, unbatch_grad
from goldens.batching import crashes as batching_crashes
from goldens.cases import OPERATORS, directed_cases, random_case
from goldens.encoding import rng_for

try:
    from tqdm import tqdm
except ImportError:
    def tqdm(cases: Iterable[Any], desc: str) -> Iterable[Any]:
        print(desc, file=sys.stderr)
        return cases

REPOSITORY = Path(__file__).resolve().parents[2]
BATCHING = {module.OP: module for module in (batch, unbatch, unbatch_grad)}
RANDOM_CASES = 120
RANDOM_ELEMENTS = 300  # keeps a random case near one kilobyte


def cases_of(op: str) -> Iterator[dict[str, Any]]:
    yield from directed_cases(op)
    for number in range(RANDOM_CASES):
        label = f"random-{number:03}"
        yield random_case(rng_for(op, label), op, RANDOM_ELEMENTS) | {"name": f"{op}/{label}"}


def record(case: dict[str, Any]) -> dict[str, Any]:
    """The case with TensorFlow's answer, which must be the same twice."""
    answer = tf_runner.run(case)
    if answer != tf_runner.run(case):
        raise SystemExit(f"{case['name']}: TensorFlow gives two answers; not a golden case")
    note = case.pop("note")
    return {**case, **answer, "note": note}


def write(path: Path, cases: Iterable[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w") as file:
        for case in cases:
            file.write(json.dumps(case, separators=(",", ":")) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=REPOSITORY / "goldens",
                        help="folder for the .jsonl files (default: %(default)s)")
    parser.add_argument("--op", action="append", choices=[*OPERATORS, *BATCHING],
                        help="record only this operator (may be repeated)")
    arguments = parser.parse_args()

    tf_runner.prepare()
    for op in arguments.op or [*OPERATORS, *BATCHING]:
        if op in OPERATORS:
            cases = tqdm(list(cases_of(op)), desc=op)
            write(arguments.output / f"{op}.jsonl", map(record, cases))
        else:
            scenarios = tqdm(list(BATCHING[op].scenarios()), desc=op)
            path = arguments.output / "batching" / f"{BATCHING[op].__name__.rpartition('.')[2]}.jsonl"
            write(path, (recorder.record(scenario.to_json()) for scenario in scenarios))
    crashes.write(arguments.output / "crashes.jsonl")
    batching_crashes.write(arguments.output / "batching" / "crashes.jsonl")
    sys.stdout.flush()
    os._exit(0)  # calls that wait for ever would keep the interpreter from ending


if __name__ == "__main__":
    main()
