#!/usr/bin/env python3
"""Runs gpu_bench, and writes what it prints as a measurement.

    benchmarks/gpu_bench.py build/gpu/gpu_bench --json docs/measurements/gpu_bench_h200.json

"Of copy" is the share of the copy bandwidth that the bytes which a call cannot avoid would need.
"""

from __future__ import annotations

import argparse
import re
import subprocess
from typing import NamedTuple

from raggrad.bench.measurement import Measurement, add_option, describe_machine

_LINE = re.compile(
    r"(?P<workload>\S+) +(?P<ms>[\d.]+) +(?P<target>[\d.]+|-) +(?P<peer_ms>[\d.]+|-)"
    r" +(?P<peer>[A-Za-z]*) +\d+ +(?P<share>\d+)%"
)


class Line(NamedTuple):
    workload: str
    ms: float
    target: str
    peer: str
    share: int  # of the copy bandwidth, in percent


class Printed(NamedTuple):
    gpu: str
    copy: str
    runs: str
    lines: list[Line]


def run_program(program: str, only: str = "") -> Printed:
    """What gpu_bench prints about the workloads whose names contain `only`."""
    command = [program, "--filter", only]
    return read(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def read(printed: str) -> Printed:
    head, _, *lines = printed.splitlines()
    gpu, copy, runs = re.fullmatch(r"(.*), copy (.*); median of (\d+)", head).groups()
    found = (_LINE.fullmatch(line) for line in lines)
    return Printed(gpu, copy, runs, [
        Line(f["workload"], float(f["ms"]), f["target"], f"{f['peer']} {f['peer_ms']}".strip(" -"), int(f["share"]))
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
        [f"the median of {printed.runs} calls", f"a copy on the device runs at {printed.copy}"],
        describe_machine(printed.gpu),
    )
    table = measured.table("workloads", "workload", "ms", "target, ms", "peer's best, ms", "of copy")
    for line in printed.lines:
        table.add(line.workload, line.ms, line.target, line.peer, f"{line.share} %")
    measured.write(options.json)


if __name__ == "__main__":
    main()
