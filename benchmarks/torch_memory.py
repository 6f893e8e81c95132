#!/usr/bin/env python3
"""How much memory a training step of an embedding bag takes besides the table and the optimizer's states.

    benchmarks/torch_memory.py
    benchmarks/torch_memory.py --device cuda

Prints a table in megabytes, for torch and for raggrad.torch with a separate and a fused SparseAdam. Steps are those of
torch_step.py, each in a process of its own, because libraries keep memory that they have had. A first step with one id
makes the optimizer's states, whose pages are then touched, and freed memory goes back to the system. What the process
grows by in the second step, at its peak, is the result. On a GPU it is what torch's allocator counts.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import torch
from raggrad.bench import measurement
from torch_step import SIZES, WORKLOADS, Steps, kinds_of, one_bag

OPTIMIZER = "SparseAdam"
STEPS = [name for name in WORKLOADS if name != "step-D"]  # which needs less than the system counts


class Memory:
    """Bytes of this process, or of the GPU."""

    def __init__(self, device: str) -> None:
        self._cuda = device == "cuda"

    def forget_peak(self) -> None:
        if self._cuda:
            torch.cuda.reset_peak_memory_stats()
        else:
            gc.collect()
            ctypes.CDLL(None).malloc_trim(0)  # or the step would use again what the making of its data has freed
            with open("/proc/self/clear_refs", "w") as file:
                file.write("5")

    def now(self) -> int:
        return torch.cuda.memory_allocated() if self._cuda else _of_process("VmRSS")

    def peak(self) -> int:
        return torch.cuda.max_memory_allocated() if self._cuda else _of_process("VmHWM")


def _of_process(name: str) -> int:
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith(name))


def growth(name: str, kind: int, device: str) -> int:
    """Bytes of one step."""
    package, make_optimizer = kinds_of(OPTIMIZER)[kind]
    bag, backward = one_bag(name, device)(package)
    update = make_optimizer(list(bag.parameters()), lr=0.01)
    one_id = torch.zeros(1, dtype=torch.int64, device=device)
    bag(one_id, one_id).sum().backward()
    update.step()
    update.zero_grad()
    for state in update.state.values():
        for tensor in filter(torch.is_tensor, state.values()):
            tensor.add_(0)
    memory = Memory(device)
    memory.forget_peak()
    before = memory.now()
    backward()
    update.step()
    return memory.peak() - before


def in_a_process(*arguments: Any) -> int:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        return process.submit(growth, *arguments).result()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="(cpu)")
    parser.add_argument("--only", choices=STEPS, action="append", help="may be repeated (all)")
    measurement.add_option(parser)
    options = parser.parse_args()
    gpu = torch.cuda.get_device_name() if options.device == "cuda" else ""
    measured = measurement.Measurement(
        "Memory of a training step of an embedding bag, besides table and states",
        [f"torch {torch.__version__}", "one step in a process of its own"],
        measurement.describe_machine(gpu),
    )
    table = measured.table(
        OPTIMIZER, f"a step with {OPTIMIZER}", "torch, MB", "`rt.optim`, MB", "`fused=True`, MB", "less"
    )
    for name in options.only or STEPS:
        sizes = Steps(*(in_a_process(name, kind, options.device) for kind in range(len(Steps._fields))))
        table.add(SIZES[name], *(size / 1e6 for size in sizes), f"{sizes.torch / sizes.fused:.1f}x")
    measured.write(options.json)


if __name__ == "__main__":
    main()
