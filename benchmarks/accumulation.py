#!/usr/bin/env python3
"""Measures cost and errors of the modes of accumulation on the CPU: the tables of docs/determinism.md.

    build/venv/bin/python benchmarks/accumulation.py

Prints two tables. The modes of a workload run in turns, so that other load hits all of them alike. Errors are
measured against exact sums of fractions.
"""

from __future__ import annotations

import argparse
import functools
import time
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import raggrad
from raggrad import IndexedSlices, raw_ops
from raggrad.bench.measurement import Measurement, add_option
from raggrad.bench.workload import uniform, zipf
from raggrad.bench.workloads import segments

MODES = ("sequential", "fast", "reproducible")
A = {"segments": 65_536, "ids": 65_536 * 20, "width": 64, "rows": 1_000_000}
B = {"segments": 65_536, "ids": 65_536 * 20, "width": 128, "rows": 10_000_000}
C = {"segments": 8_192, "ids": 8_192 * 50, "width": 256, "rows": 100_000}
D = {"segments": 1_024, "ids": 1_024 * 8, "width": 32, "rows": 10_000}
SEGMENTS: dict[str, dict[str, Any]] = {
    "segment-A-uniform f32": {**A, "draw": uniform},
    "segment-A-uniform bf16": {**A, "draw": uniform, "dtype": "bf16"},
    "segment-A-zipf f32": {**A, "draw": zipf},
    "segment-A-zipf bf16": {**A, "draw": zipf, "dtype": "bf16"},
    "segment-B f32": {**B, "draw": uniform},
    "segment-C f32": {**C, "draw": zipf},
    "segment-C bf16": {**C, "draw": zipf, "dtype": "bf16"},
    "segment-D f32": {**D, "draw": zipf},
}
WIDE = ("segment-A-zipf f32", "segment-C f32")
FORWARDS = ("segment-A-zipf f32", "segment-A-zipf bf16", "segment-C f32", "segment-C bf16")


def fill_call() -> Callable[[], Any]:
    random = np.random.default_rng(1)
    full = 10_000_000
    kept = np.flatnonzero(random.random(full) < 0.8)
    values = random.standard_normal(full, np.float32)
    return lambda: raw_ops.SparseFillEmptyRowsGrad(reverse_index_map=kept, grad_values=values)


def segment_call(shape: dict[str, Any], wide: bool = False) -> Callable[[], Any]:
    """A gradient of normal numbers, or of `wide` ones, whose exponents in a row differ by up to 40."""
    random = np.random.default_rng(1)
    inputs = segments.make(random, 1, **shape)
    if wide:
        inputs["grad"] = np.ldexp(inputs["grad"], random.integers(-40, 1, inputs["grad"].shape))
    return lambda: raw_ops.SparseSegmentMeanGradV2(**inputs)


def forward_call(shape: dict[str, Any]) -> Callable[[], Any]:
    random = np.random.default_rng(1)
    inputs = segments.make(random, 1, **shape)
    data = random.standard_normal((shape["rows"], shape["width"]), np.float32).astype(inputs["grad"].dtype)
    return lambda: raw_ops.SparseSegmentMean(data=data, indices=inputs["indices"], segment_ids=inputs["segment_ids"])


def times(call: Callable[[], Any], rounds: int) -> list[float]:
    """The shortest time of each mode, in seconds."""
    best = [float("inf")] * len(MODES)
    for _ in range(rounds + 1):  # the first warms up the memory pool
        for i, mode in enumerate(MODES):
            with raggrad.accumulation(mode):
                start = time.perf_counter()
                call()
                best[i] = min(best[i], time.perf_counter() - start)
    return best


def measure_costs(measured: Measurement, rounds: int) -> None:
    table = measured.table("costs", "workload", "sequential, ms", "fast", "reproducible")
    calls = {name: functools.partial(segment_call, shape) for name, shape in SEGMENTS.items()}
    calls |= {f"{name}, wide": functools.partial(segment_call, SEGMENTS[name], wide=True) for name in WIDE}
    calls |= {f"forward of {name}": functools.partial(forward_call, SEGMENTS[name]) for name in FORWARDS}
    calls["fill-A"] = fill_call
    for name, make_call in calls.items():
        call = make_call()
        base, *others = times(call, rounds * (50 if "-D" in name else 1))
        table.add(name, base * 1e3, *(f"{t / base:.2f}x" for t in others))


def measure_errors(measured: Measurement) -> None:
    """The largest error of 64 sums of n normal numbers, in units eps * sqrt(n): about the last place of such a sum."""
    table = measured.table("errors", "type", "numbers", *MODES)
    random = np.random.default_rng(2)
    for name, dtype in (
        ("float32", np.float32),
        ("float64", np.float64),
        ("half", np.float16),
        ("bfloat16", ml_dtypes.bfloat16),
    ):
        for n in (100, 10_000):
            rows = random.standard_normal((n, 64)).astype(dtype)
            exact = [sum((Fraction(float(x)) for x in column), Fraction(0)) for column in rows.T]
            table.add(name, n, *(_largest_error(rows, exact, mode) for mode in MODES))


def _largest_error(rows: np.ndarray, exact: list[Fraction], mode: str) -> float:
    slices = IndexedSlices(rows, np.zeros(len(rows), np.int32), (1, rows.shape[1]))
    sums = slices.coalesce(accumulation=mode).values[0]  # type: ignore[arg-type]
    unit = float(ml_dtypes.finfo(rows.dtype).eps) * float(np.sqrt(len(rows)))
    return max(abs(float(Fraction(float(got)) - want)) / unit for got, want in zip(sums, exact, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description="Prints costs and errors of the modes of accumulation.")
    parser.add_argument("--rounds", type=int, default=11, help="of each workload (default: 11)")
    add_option(parser)
    options = parser.parse_args()
    measured = Measurement(
        "Costs and errors of the modes of accumulation",
        [f"{raggrad.get_num_threads()} threads", f"the shortest of {options.rounds} rounds"],
    )
    measure_costs(measured, options.rounds)
    measure_errors(measured)
    measured.write(options.json)


if __name__ == "__main__":
    main()
