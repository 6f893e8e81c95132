#!/usr/bin/env python3
"""Where the time of each workload goes: samples the C++ benchmarks with perf and groups the functions into steps.

    build/venv/bin/python benchmarks/where_time_goes.py build/bench/cpp/benchmarks

Prints a table: time, share of the machine's copy bandwidth, share of each step. It samples the clock
(cpu-clock), which needs no hardware counters, over all threads; waiting is not sampled. What prepares the data of a
benchmark is left out. The interpreter needs raggrad, which measures the copy bandwidth.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from raggrad.bench.measurement import Cell, Measurement, add_option
from raggrad.bench.timing import copy_bandwidth

# The first that is found in a function's name, mangled or not, decides.
STEPS = {
    "": r"raggrad5bench|raggrad::bench::|benchmark::|introsort|insertion_sort|\bpow\b|munmap|unmap|zap|tlb|free_unref",
    "kernel": r"\[k\]",
    "sort": r"SortByDigit|radix_internal",
    "check, count": r"Pack|MakePlan|CountPresent|CheckIds|FirstInvalid",
    "find rows": r"FindRows|WriteRowNumbers|MakeScales",
    "sum rows": r"SumRows|RunRow|UpdateRows",
    "gather": r"GatherAndMark",
    "separate": r"Separate|CopyUnnamed",
    "sum in order": r"sparse_fill_empty_rows.*(Grad|Sum)",
    "compare": r"sparse_slice",
    "copy": r"memcpy|memmove|memset|Join",
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Prints where the time of the workloads goes, as a table.")
    parser.add_argument("programs", type=Path, metavar="DIR", help="where the benchmark programs are")
    parser.add_argument("--only", default="(segment|fill|slice|ragged|unbatch)-", metavar="REGEX", help="workloads")
    parser.add_argument("--seconds", type=float, default=1.0, help="at least, for each (default: 1)")
    add_option(parser)
    options = parser.parse_args()
    programs = sorted(options.programs.glob("*_bench"))
    if not programs:
        parser.error(f"no benchmark programs in {options.programs}; `make bench-cpp` builds them")
    copy = copy_bandwidth(len(os.sched_getaffinity(0)))["copy"]
    measured = Measurement("Where the time of workloads goes", [f"a copy runs at {copy / 1e9:.1f} GB/s"])
    table = measured.table("steps", "workload", "time", "of copy", "where it goes")
    for program in programs:
        names = subprocess.run([program, "--benchmark_list_tests"], stdout=subprocess.PIPE, text=True, check=True)
        for name in names.stdout.split():
            if re.match(options.only, name):
                table.add(*_row(program, name, options.seconds, copy))
    measured.write(options.json)


def _row(program: Path, name: str, seconds: float, copy: float) -> tuple[Cell, ...]:
    with tempfile.NamedTemporaryFile() as samples:
        result = subprocess.run(
            ["perf", "record", "--quiet", "--event=cpu-clock", "--freq=2000", f"--output={samples.name}", program,
             f"--benchmark_filter=^{name}$", f"--benchmark_min_time={seconds}", "--benchmark_format=json"],
            stdout=subprocess.PIPE, text=True, check=True,
        )  # fmt: skip
        report = subprocess.run(
            ["perf", "report", f"--input={samples.name}", "--stdio", "--no-children", "--sort=symbol"],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True,
        )  # fmt: skip
    timed = json.loads(result.stdout)["benchmarks"][0]
    nanoseconds = timed["real_time"] / timed.get("batches", 1)
    rest = "meet" if program.name.startswith("batching") else "other"
    bandwidth = timed.get("bytes_per_second")
    share = f"{bandwidth / copy:.0%}" if bandwidth else ""
    return name.split("/")[0], f"{nanoseconds / 1e6:.3g} ms", share, _steps(report.stdout, rest)


def _steps(report: str, rest: str) -> str:
    shares: Counter[str] = Counter()
    for line in report.splitlines():
        match = re.match(r"\s*([\d.]+)%\s+(.*)", line)
        if match:
            step = next((step for step, names in STEPS.items() if re.search(names, match[2])), rest)
            shares[step] += float(match[1])
    del shares[""]
    total = sum(shares.values())
    return ", ".join(f"{step} {share / total:.0%}" for step, share in shares.most_common() if share / total >= 0.02)


if __name__ == "__main__":
    try:
        main()
    except FileNotFoundError as error:
        sys.exit(f"where_time_goes: {error.filename} is missing")
