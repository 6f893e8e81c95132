#!/usr/bin/env python3
"""Live differential test: runs random cases through raggrad and TensorFlow and compares bits.

It runs in the environment of raggrad, TensorFlow as a child process in its own environment. It ends with "N passed,
N failed"; the exit status is 1 if a case failed or TensorFlow died.
"""

from __future__ import annotations

import argparse
import secrets
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "tools"))

import numpy as np  # noqa: E402

from goldens.cases import OPERATORS, random_case  # noqa: E402
from oracle.differential import Journal, Json, Tally, run  # noqa: E402
from oracle.worker import Worker  # noqa: E402

THREAD_COUNTS = (1, 2, 7)
BATCH = 64
LARGE_EVERY = 20  # one case in 20 may have MAX_ELEMENTS elements, the others SMALL_ELEMENTS
SMALL_ELEMENTS = 400
ENOUGH_FAILURES = 20
SECONDS_BETWEEN_REPORTS = 5.0


def batches(seed: int, max_elements: int, ops: list[str]) -> Iterator[list[Json]]:
    """Random cases without end. Case number n depends on the seed and n alone."""
    first = 0
    while True:
        yield [_case(seed, n, max_elements, ops) for n in range(first, first + BATCH)]
        first += BATCH


def _case(seed: int, number: int, max_elements: int, ops: list[str]) -> Json:
    rng = np.random.default_rng([seed, number])
    size = max_elements if number % LARGE_EVERY == 0 else min(SMALL_ELEMENTS, max_elements)
    case = random_case(rng, ops[rng.integers(len(ops))], size)
    return case | {"name": f"{case['op']}/oracle-{seed}-{number}"}


def progress(seconds: float) -> Callable[[Tally], bool]:
    """Prints the progress from time to time. Returns False when time is over or enough cases have failed."""
    start = shown = time.monotonic()

    def after_batch(tally: Tally) -> bool:
        nonlocal shown
        now = time.monotonic()
        if now - shown >= SECONDS_BETWEEN_REPORTS:
            shown = now
            rate = tally.total() / (now - start)
            print(f"{now - start:6.0f} s of {seconds:.0f} s, {tally.total()} cases, "
                  f"{rate:.0f} cases/s, {tally.failed.total()} failed", flush=True)
        return now - start < seconds and tally.failed.total() < ENOUGH_FAILURES

    return after_batch


def print_summary(tally: Tally, seed: int, journal: Journal) -> None:
    for op in OPERATORS:
        count = tally.passed[op] + tally.failed[op] + tally.died[op]
        if count:
            print(f"{count:9d}  {op}")
    if tally.died.total():
        print(f"tensorflow died {tally.died.total()} times (seed {seed}, cases in {journal.path})")
    if tally.failed.total():
        print(f"raggrad and TensorFlow differ (seed {seed}, cases in {journal.path})")
    print(f"{tally.passed.total()} passed, {tally.failed.total()} failed")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--minutes", type=float, default=1.0, help="how long to run (default: 1)")
    parser.add_argument("--seed", type=int, help="seed of the random cases (default: random)")
    parser.add_argument("--tf-python", required=True, metavar="PATH",
                        help="Python interpreter of an environment with TensorFlow")
    parser.add_argument("--op", action="append", choices=list(OPERATORS),
                        help="only this operator (may be repeated)")
    parser.add_argument("--max-elements", type=int, default=100_000,
                        help="size of the largest tensors (default: %(default)s)")
    parser.add_argument("--failures", type=Path,
                        help="file for cases that differ (default: build/oracle-SEED.jsonl)")
    return parser.parse_args()


def main() -> int:
    import raggrad
    from raggrad import conformance

    arguments = parse_arguments()
    seed = secrets.randbits(32) if arguments.seed is None else arguments.seed
    print(f"seed {seed}", flush=True)
    path = arguments.failures or REPOSITORY / "build" / f"oracle-{seed}.jsonl"
    path.unlink(missing_ok=True)  # of an earlier run with this seed
    journal = Journal(path.absolute())

    runner = REPOSITORY / "tools" / "goldens" / "tf_runner.py"
    worker = Worker([arguments.tf_python, str(runner)])
    tally = run(
        batches(seed, arguments.max_elements, arguments.op or list(OPERATORS)),
        worker,
        conformance,
        journal=journal,
        before_case=lambda n: raggrad.set_num_threads(THREAD_COUNTS[n % len(THREAD_COUNTS)]),
        after_batch=progress(60 * arguments.minutes),
    )
    worker.close()
    print_summary(tally, seed, journal)
    return 1 if tally.failed or tally.died else 0


if __name__ == "__main__":
    sys.exit(main())
