#!/usr/bin/env python3
"""Times sums of rows that meet in few places: torch's index_add_, the deterministic form of it, and raggrad's.

    benchmarks/torch_index_add.py --device cuda --json docs/measurements/index_add_h200.json

Prints milliseconds, the median of all rounds, for ids that are spread evenly, of which half are the same, and that are
all the same. All ways take turns. The default number of rows takes 10 GB; --rows 100000 is enough for a CPU.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import raggrad.torch as rt
import torch
from raggrad.bench import measurement

PLACES, WIDTH = 1_000_000, 128
SHARES = {"spread evenly": 0.0, "half to one place": 0.5, "all to one place": 1.0}


def ids_of(rows: int, share: float, device: str) -> Any:
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(PLACES, (rows,), generator=generator)
    ids[torch.rand(rows, generator=generator) < share] = 7
    return ids.to(device)


def ways(values: Any, ids: Any) -> dict[str, Callable[[], Any]]:
    def index_add() -> Any:
        return torch.zeros(PLACES, WIDTH, device=values.device).index_add_(0, ids, values)

    def deterministic() -> Any:
        torch.use_deterministic_algorithms(True)
        try:
            return index_add()
        finally:
            torch.use_deterministic_algorithms(False)

    return {
        "torch": index_add,
        "torch, deterministic": deterministic,
        "rt.segment_sum": lambda: rt.segment_sum(values, ids, PLACES),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=7_770_000, help="(7,770,000)")
    parser.add_argument("--rounds", type=int, default=5, help="(5)")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="(cpu)")
    measurement.add_option(parser)
    options = parser.parse_args()
    gpu = torch.cuda.get_device_name() if options.device == "cuda" else ""
    measured = measurement.Measurement(
        "Sums of rows that meet in few places",
        [f"torch {torch.__version__}", f"the median of {options.rounds} rounds"],
        measurement.describe_machine(gpu),
    )
    wait = torch.cuda.synchronize if gpu else lambda: None
    values = torch.randn(options.rows, WIDTH, device=options.device)
    table = measured.table("sums", f"{options.rows:,} rows of {WIDTH}", "torch, ms", "torch, deterministic, ms",
                           "`rt.segment_sum`, ms")  # fmt: skip
    for words, share in SHARES.items():
        calls = ways(values, ids_of(options.rows, share, options.device))
        times: dict[str, list[float]] = {way: [] for way in calls}
        for number in range(options.rounds + 1):  # the first warms up
            for way, call in calls.items():
                wait()
                begin = time.perf_counter()
                call()
                wait()
                if number:
                    times[way].append((time.perf_counter() - begin) * 1e3)
        table.add(words, *(median(kept) for kept in times.values()))
    measured.write(options.json)


if __name__ == "__main__":
    main()
