#!/usr/bin/env python3
"""Times a whole training step of an embedding bag, forward, backward and optimizer, in torch and in raggrad.torch.

    benchmarks/torch_step.py --steps 15

Prints a table in milliseconds: the median of all steps. Both packages take turns, step by step, so that a busy machine
slows both. The workloads have the sizes of segment-A, -C and -D: a mean bag, int64 ids, float32.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import raggrad.torch as rt
import torch
from raggrad.bench.workloads import BY_NAME

# The workload of raggrad.bench that has the step's ids.
WORKLOADS = {
    "step-A-uniform": "segment-A-uniform-f32-int64",
    "step-A-zipf": "segment-A-zipf-f32-int64",
    "step-C": "segment-C-f32",
    "step-D": "segment-D-f32",
}
OPTIMIZERS = {
    "SparseAdam": (torch.optim.SparseAdam, rt.optim.SparseAdam),
    "SGD": (torch.optim.SGD, rt.optim.SparseSGD),
}


def step_of(bag: Any, optimizer: Any, inputs: dict[str, Any]) -> Callable[[], None]:
    grad = torch.from_numpy(inputs["grad"])
    ids = torch.from_numpy(inputs["indices"]).long()
    segment_ids = torch.from_numpy(inputs["segment_ids"]).long()
    offsets = torch.searchsorted(segment_ids, torch.arange(len(grad)))

    def step() -> None:
        optimizer.zero_grad()
        bag(ids, offsets).backward(grad)
        optimizer.step()

    return step


def time_in_turns(steps: list[Callable[[], None]], rounds: int) -> list[float]:
    """The median of each, in milliseconds, after two rounds of warm-up."""
    times: list[list[float]] = [[] for _ in steps]
    for number in range(rounds + 2):
        for step, kept in zip(steps, times, strict=True):
            begin = time.perf_counter()
            step()
            if number >= 2:
                kept.append((time.perf_counter() - begin) * 1e3)
    return [median(kept) for kept in times]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=15, help="of each package; 20 times as many for step-D (15)")
    parser.add_argument("--threads", type=int, help="of both packages (torch's default)")
    parser.add_argument("--only", choices=WORKLOADS, action="append", help="may be repeated (all)")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads; milliseconds a step")
    print(f"{'':28}{'torch':>10}{'raggrad':>10}{'ratio':>8}")
    for name in options.only or WORKLOADS:
        inputs = BY_NAME[WORKLOADS[name]].inputs()
        shape = int(inputs["dense_output_dim0"]), inputs["grad"].shape[1]
        for optimizer, kinds in OPTIMIZERS.items():
            bags = [package.EmbeddingBag(*shape, mode="mean", sparse=True) for package in (torch.nn, rt)]
            steps = [
                step_of(bag, kind(bag.parameters(), lr=0.01), inputs) for bag, kind in zip(bags, kinds, strict=True)
            ]
            theirs, ours = time_in_turns(steps, options.steps * (20 if name == "step-D" else 1))
            print(f"{name + ', ' + optimizer:28}{theirs:10.2f}{ours:10.2f}{theirs / ours:7.1f}x", flush=True)


if __name__ == "__main__":
    main()
