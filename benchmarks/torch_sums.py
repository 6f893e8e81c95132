#!/usr/bin/env python3
"""Times rt.index_add and rt.coalesce against torch's own, with and without torch's deterministic algorithms.

    benchmarks/torch_sums.py --device cuda
    benchmarks/torch_sums.py --rows 500000

Prints milliseconds, the median of all rounds, in which all ways take turns. Rows of 128 float32 are added up at ids
that are uniform, half of them equal, or all equal. torch's deterministic index_add of equal ids takes seconds on a GPU.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import raggrad.torch as rt
import torch
from raggrad.bench import measurement
from raggrad.bench.timing import medians_in_turns

WIDTH, PLACES = 128, 1_000_000


def ids_of(kind: str, count: int, device: str) -> Any:
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, PLACES, (count,), generator=generator)
    if kind != "uniform":
        equal = torch.rand(count, generator=generator) < (0.5 if kind == "half equal" else 1.1)
        ids[equal] = 7
    return ids.to(device)


def deterministically(call: Callable[[], Any]) -> Callable[[], Any]:
    def deterministic() -> Any:
        torch.use_deterministic_algorithms(True)
        try:
            return call()
        finally:
            torch.use_deterministic_algorithms(False)

    return deterministic


def ways(ids: Any, values: Any) -> dict[str, dict[str, Callable[[], Any]]]:
    target = torch.zeros(PLACES, WIDTH, device=ids.device)
    sparse = torch.sparse_coo_tensor(ids[None], values, (PLACES, WIDTH), check_invariants=False)

    def index_add() -> Any:
        return target.index_add(0, ids, values)

    return {
        "index_add": {
            "torch": index_add,
            "deterministic": deterministically(index_add),
            "raggrad": lambda: rt.index_add(target, 0, ids, values),
        },
        "coalesce": {
            "torch": lambda: sparse.coalesce(),
            "deterministic": deterministically(lambda: sparse.coalesce()),
            "raggrad": lambda: rt.coalesce(sparse),
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=7_770_000, help="(7770000)")
    parser.add_argument("--rounds", type=int, default=5, help="(5)")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="(cpu)")
    measurement.add_option(parser)
    options = parser.parse_args()
    on_gpu = options.device == "cuda"
    measured = measurement.Measurement(
        "Sums of rows with the same id",
        [f"torch {torch.__version__}", f"{options.rows:,} rows of {WIDTH} float32, {PLACES:,} places",
         f"the median of {options.rounds} rounds"],
        measurement.describe_machine(torch.cuda.get_device_name() if on_gpu else ""),
    )  # fmt: skip
    table = measured.table("sums", "sums of rows", "torch, ms", "torch, deterministic, ms", "raggrad.torch, ms")
    values = torch.randn(options.rows, WIDTH, device=options.device)
    for kind in ("uniform", "half equal", "all equal"):
        for function, calls in ways(ids_of(kind, options.rows, options.device), values).items():
            wait = torch.cuda.synchronize if on_gpu else lambda: None
            times = medians_in_turns(calls, options.rounds, warm_ups=1, wait=wait)
            table.add(f"{function}, ids {kind}", times["torch"], times["deterministic"], times["raggrad"])
    measured.write(options.json)


if __name__ == "__main__":
    main()
