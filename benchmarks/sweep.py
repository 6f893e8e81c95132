#!/usr/bin/env python3
"""How the cost grows: runs the sweeps of the C++ benchmarks and prints the time per id, entry or piece as a table.

    build/venv/bin/python benchmarks/sweep.py build/bench/cpp/benchmarks

A line that is flat grows linearly. Sizes that leave the caches cost more per id; after that a line should stay within
a factor of two. Lines with one size compare widths and kinds of ids: neighbours should not differ by leaps.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

from raggrad.bench.measurement import Measurement, Table, add_option

Lines = dict[str, dict[int, float]]  # by what is swept, by size: nanoseconds


def main() -> None:
    parser = argparse.ArgumentParser(description="Prints how the cost per id, entry or piece grows, as a table.")
    parser.add_argument("programs", type=Path, metavar="DIR", help="where the benchmark programs are")
    parser.add_argument("--smallest", type=float, default=1, metavar="N", help="size to start at")
    parser.add_argument("--largest", type=float, default=1e8, metavar="N",
                        help="size to stop at; 1e8, the default, takes 8 GB of memory")  # fmt: skip
    parser.add_argument("--repetitions", type=int, default=3, metavar="N", help="the median of so many (default: 3)")
    add_option(parser)
    options = parser.parse_args()
    programs = sorted(options.programs.glob("*_bench"))
    if not programs:
        parser.error(f"no benchmark programs in {options.programs}; `make bench-cpp` builds them")
    lines: Lines = {}
    for program in programs:
        for name in _sweeps(program):
            what, size = _split(program, name)
            if not options.smallest <= size <= options.largest:
                continue
            print(f"{program.name} {name}", file=sys.stderr, flush=True)
            lines.setdefault(what, {})[size] = _nanoseconds(program, name, options.repetitions) / size
    measured = Measurement("How the cost grows with the size", [f"the median of {options.repetitions} runs"])
    _fill(measured, lines)
    measured.write(options.json)


def _sweeps(program: Path) -> list[str]:
    return [name for name in _run(program, "--benchmark_list_tests").split() if name.startswith("sweep/")]


def _split(program: Path, name: str) -> tuple[str, int]:
    """From sweep/KIND/.../UNIT:SIZE/real_time: the family with the kinds and the unit, and the size."""
    *kinds, last = name.removeprefix("sweep/").removesuffix("/real_time").split("/")
    unit, _, size = last.partition(":")
    words = [program.name.removesuffix("_bench"), *kinds, f"per {unit.removesuffix('s').replace('entrie', 'entry')}"]
    return ", ".join(words).replace(":", " "), int(size)


def _nanoseconds(program: Path, name: str, repetitions: int) -> float:
    results = json.loads(
        _run(program, f"--benchmark_filter=^{name}$", f"--benchmark_repetitions={repetitions}",
             "--benchmark_min_time=0.1", "--benchmark_format=json")
    )["benchmarks"]  # fmt: skip
    median = next((r for r in results if r.get("aggregate_name") == "median"), results[0])
    return median["real_time"] * {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}[median["time_unit"]]


def _run(program: Path, *arguments: str) -> str:
    return subprocess.run([program, *arguments], stdout=subprocess.PIPE, text=True, check=True).stdout


def _fill(measured: Measurement, lines: Lines) -> Table:
    sizes = sorted({size for line in lines.values() for size in line})
    table = measured.table("growth", "ns", *(f"{size:,}" for size in sizes))
    for what, line in lines.items():
        table.add(what, *(line.get(size, "") for size in sizes))
    return table


if __name__ == "__main__":
    main()
