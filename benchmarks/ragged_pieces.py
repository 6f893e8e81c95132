#!/usr/bin/env python3
"""Measures what the pieces of ragged-A cost beside the copy of their values: a table of docs/performance/ragged.md.

    build/venv/bin/python benchmarks/ragged_pieces.py

All rows join the same values into one array. They run in turns, so that other load hits all of them alike.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from raggrad import Ragged, VariantArray, raw_ops
from raggrad.bench.measurement import Measurement, add_option
from raggrad.bench.timing import copy_bandwidth, time_calls
from raggrad.bench.workloads import BY_NAME

CALLS = 10  # in a round


def splits_of(pieces: Sequence[np.ndarray]) -> np.ndarray:
    return np.cumsum([0, *map(len, pieces)])


def gradient(variant: VariantArray, splits: np.ndarray, values: np.ndarray) -> Callable[[], Any]:
    arguments = {"row_splits": splits, "dense_values_shape": np.int32(values.shape), "Tvalues": "float32"}
    return lambda: raw_ops.RaggedTensorToVariantGradient(encoded_ragged_grad=variant, **arguments)


def of_arrays(pieces: Sequence[np.ndarray], values: np.ndarray) -> Callable[[], Any]:
    return gradient(VariantArray([Ragged([], piece) for piece in pieces]), splits_of(pieces), values)


def make_calls() -> tuple[dict[str, Callable[[], Any]], int]:
    """The calls, and the bytes that each reads and writes."""
    inputs = BY_NAME["ragged-A"].inputs()
    values, splits = inputs["values"], inputs["row_splits"]
    pieces = np.split(values, splits[1:-1])
    order = np.random.default_rng(2).permutation(len(pieces))
    made = raw_ops.RaggedTensorToVariant(rt_nested_splits=[splits], rt_dense_values=values, batched_input=True)
    calls = {
        "2 arrays": of_arrays(np.array_split(values, 2), values),
        f"{len(pieces):,} pieces that an operator made": gradient(made, splits, values),
        f"{len(pieces):,} arrays": of_arrays(pieces, values),
        f"{len(pieces):,} arrays, anywhere in memory": of_arrays([pieces[i] for i in order], values),
    }
    return calls, 2 * values.nbytes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=60)
    add_option(parser)
    options = parser.parse_args()
    threads = len(os.sched_getaffinity(0))
    calls, traffic = make_calls()
    best = dict.fromkeys(calls, float("inf"))
    copy = 0.0
    for _ in range(options.rounds):
        copy = max(copy, copy_bandwidth(threads)["copy"])
        for name, call in calls.items():
            best[name] = min(best[name], time_calls(call, CALLS))
    conditions = [f"{threads} threads", f"the best of {options.rounds} rounds", f"copies run at {copy / 1e9:.3g} GB/s"]
    measured = Measurement("The pieces of ragged-A", conditions)
    table = measured.table("pieces", "ragged-A as", "ms", "of copy")
    for name, seconds in best.items():
        table.add(name, seconds * 1e3, f"{traffic / seconds / copy:.0%}")
    measured.write(options.json)


if __name__ == "__main__":
    main()
