#!/usr/bin/env python3
"""Runs gpu_bench, and writes what it prints as a measurement.

    benchmarks/gpu_bench.py build/gpu/gpu_bench --json docs/measurements/gpu_bench_h200.json

The floor is the time in which the device copies the bytes that a call cannot avoid. Workloads named sums-* compare the
modes of accumulation, in a table of their own.
"""

from __future__ import annotations

import argparse
import re
import subprocess
from typing import NamedTuple

from raggrad.bench.measurement import Measurement, add_option, describe_machine

_LINE = re.compile(
    r"(?P<workload>\S+) +(?P<ms>[\d.]+) +(?P<target>[\d.]+|-) +(?P<peer_ms>[\d.]+|-)"
    r" +(?P<peer>[A-Za-z]*) +(?P<rate>\d+) +\d+%"
)
_SUMS = "sums-"


class Line(NamedTuple):
    workload: str
    ms: float
    target: str
    peer: str
    rate: float  # GB/s, of the bytes that the call cannot avoid


class Printed(NamedTuple):
    gpu: str
    copy: float  # GB/s
    runs: int
    lines: list[Line]


def run_program(program: str, only: str = "") -> Printed:
    """Returns what gpu_bench prints about the workloads whose names contain `only`."""
    command = [program, "--filter", only]
    return read(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def read(printed: str) -> Printed:
    head, _, *lines = printed.splitlines()
    gpu, copy, runs = re.fullmatch(r"(.*), copy (\d+) GB/s; median of (\d+)", head).groups()
    found = (_LINE.fullmatch(line) for line in lines)
    return Printed(gpu, float(copy), int(runs), [
        Line(f["workload"], float(f["ms"]), f["target"], f"{f['peer']} {f['peer_ms']}".strip(" -"), float(f["rate"]))
        for f in found
    ])  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="gpu_bench, as CMake built it")
    parser.add_argument("--filter", default="", metavar="TEXT", help="only workloads whose names contain TEXT")
    add_option(parser)
    options = parser.parse_args()
    printed = run_program(options.program, options.filter)
    measured = Measurement(
        "Operators on a GPU, from C++",
        [f"the median of {printed.runs} calls", f"a copy on the device runs at {printed.copy:,.0f} GB/s"],
        describe_machine(printed.gpu),
    )
    table = measured.table("workloads", "workload", "ms", "target, ms", "peer's best, ms", "floor, ms")
    for line in printed.lines:
        if not line.workload.startswith(_SUMS):
            table.add(line.workload, line.ms, line.target, line.peer, line.ms * line.rate / printed.copy)
    add_sums(measured, {line.workload: line.ms for line in printed.lines if line.workload.startswith(_SUMS)})
    measured.write(options.json)


def add_sums(measured: Measurement, times: dict[str, float]) -> None:
    """Times of the same workload in every mode, and with weights, as multiples of the first."""
    table = measured.table("sums", "workload", "fast, ms", "reproducible", "with weights")
    for name, fast in times.items():
        if name.endswith("-fast"):
            workload = name.removesuffix("-fast")
            others = (times.get(f"{workload}-{kind}") for kind in ("reproducible", "weighted"))
            table.add(workload.removeprefix(_SUMS), fast, *(f"{ms / fast:.2f}x" if ms else "-" for ms in others))


if __name__ == "__main__":
    main()
