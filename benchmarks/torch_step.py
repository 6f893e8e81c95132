#!/usr/bin/env python3
"""Times a whole training step of embedding bags, forward, backward and optimizer, in torch and in raggrad.torch.

    benchmarks/torch_step.py --steps 15
    benchmarks/torch_step.py --device cuda --steps 200
    benchmarks/torch_step.py --device cuda --steps 200 --in-a-row 20
    benchmarks/torch_step.py --device cuda --steps 200 --one-thread --only step-D

Prints a table for each optimizer, in milliseconds: the median of all steps, for torch and for raggrad.torch with a
separate and a fused optimizer. All take turns, ten steps each, so that a busy machine slows all. step-A, -C and -D have
the sizes of segment-A, -C and -D: a mean bag, int64 ids, float32. "collection" has 26 tables of Criteo's shape: 26
modules of torch against one EmbeddingBagCollection. On a GPU a step is timed between two events on an idle stream, and
the fused step also as a CUDA graph, in which torch's SparseAdam cannot be. With --in-a-row so many steps are queued
between the events, as a training loop queues them, so that the host may run ahead of the GPU. --one-thread runs all
three with torch.autograd.set_multithreading_enabled(False): backward stays on the thread that asks for it.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from statistics import median
from typing import Any, NamedTuple

import raggrad.torch as rt
import torch
from raggrad.bench import measurement
from raggrad.bench.workloads import BY_NAME

# The workload of raggrad.bench that has the step's ids.
WORKLOADS = {
    "step-A-uniform": "segment-A-uniform-f32-int64",
    "step-A-zipf": "segment-A-zipf-f32-int64",
    "step-C": "segment-C-f32",
    "step-D": "segment-D-f32",
}
COLLECTION = "collection"
SIZES = {
    "step-A-uniform": "65,536 bags of 20, 1,000,000 x 64, uniform ids",
    "step-A-zipf": "65,536 bags of 20, 1,000,000 x 64, power-law ids",
    "step-C": "8,192 bags of 50, 100,000 x 256, power-law ids",
    "step-D": "1,024 bags of 8, 10,000 x 32, power-law ids",
    COLLECTION: "26 tables of Criteo's sizes, dim 32, 8,192 samples",
}
OPTIMIZERS = {
    "SparseAdam": (torch.optim.SparseAdam, rt.optim.SparseAdam),
    "SGD": (torch.optim.SGD, rt.optim.SparseSGD),
}
# Categories of Criteo's 26 features, large ones cut at a million; 8,192 samples of 1 to 8 ids, dim 32.
ROWS = [1460, 583, 1_000_000, 1_000_000, 305, 24, 12517, 633, 3, 93145, 5683, 1_000_000, 3194]
ROWS += [27, 14992, 1_000_000, 10, 5652, 2173, 4, 1_000_000, 18, 15, 286181, 105, 142572]
BATCH, DIM = 8192, 32


Step = Callable[[], None]


class Steps(NamedTuple):
    """The same step three times."""

    torch: Step
    separate: Step
    fused: Step


def step_of(parameters: Iterable[Any], optimizer: Callable[..., Any], backward: Step) -> Step:
    update = optimizer(parameters, lr=0.01)

    def step() -> None:
        update.zero_grad()
        backward()
        update.step()

    return step


def captured(step: Step) -> Step:
    """The step as a CUDA graph."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return lambda kept=step: graph.replay()  # kept: tables and states, whose addresses the graph has


# make(package) returns a module of it, and a function that runs it forward and backward.
Make = Callable[[Any], tuple[Any, Step]]


def kinds_of(optimizer: str) -> list[tuple[Any, Callable[..., Any]]]:
    """Packages of modules, each with its optimizer, in the order of Steps."""
    theirs, ours = OPTIMIZERS[optimizer]
    return [(torch.nn, theirs), (rt, ours), (rt, partial(ours, fused=True))]


def steps_of(make: Make, optimizer: str) -> Steps:
    made = [(make(package), kind) for package, kind in kinds_of(optimizer)]
    return Steps(*[step_of(list(module.parameters()), kind, backward) for (module, backward), kind in made])


def one_bag(name: str, device: str) -> Make:
    inputs = BY_NAME[WORKLOADS[name]].inputs()
    grad = torch.from_numpy(inputs["grad"])
    segment_ids = torch.from_numpy(inputs["segment_ids"]).long()
    offsets = torch.searchsorted(segment_ids, torch.arange(len(grad))).to(device)
    ids, grad = torch.from_numpy(inputs["indices"]).long().to(device), grad.to(device)

    def make(package: Any) -> tuple[Any, Step]:
        shape = int(inputs["dense_output_dim0"]), grad.shape[1]
        bag = package.EmbeddingBag(*shape, mode="mean", sparse=True, device=device)
        return bag, lambda: bag(ids, offsets).backward(grad)

    return make


def zipf_bags(rows: int, generator: Any, device: str) -> tuple[Any, Any]:
    """Ids and offsets of a batch: the number of ids is uniform, the ids follow 1 / rank."""
    sizes = torch.randint(1, 9, (BATCH,), generator=generator)
    draws = torch.rand(int(sizes.sum()), generator=generator, dtype=torch.float64)
    ids = (torch.exp(draws * torch.log(torch.tensor(rows + 1.0))).long() - 1).clamp(0, rows - 1)
    return ids.to(device), (torch.cumsum(sizes, 0) - sizes).to(device)


def collection(device: str) -> Make:
    generator = torch.Generator().manual_seed(0)
    features = {f"c{i}": zipf_bags(rows, generator, device) for i, rows in enumerate(ROWS)}
    grad = torch.randn(BATCH, DIM, generator=generator).to(device)

    def make(package: Any) -> tuple[Any, Step]:
        if package is torch.nn:
            bags = [torch.nn.EmbeddingBag(rows, DIM, mode="sum", sparse=True, device=device) for rows in ROWS]
            module: Any = torch.nn.ModuleDict(dict(zip(features, bags, strict=True)))
            pool = lambda: {name: module[name](*feature) for name, feature in features.items()}  # noqa: E731
        else:
            tables = dict(zip(features, [(rows, DIM) for rows in ROWS], strict=True))
            module = rt.EmbeddingBagCollection(tables, mode="sum", sparse=True, device=device)
            pool = lambda: module(features)  # noqa: E731

        def backward() -> None:
            pooled = list(pool().values())
            torch.autograd.backward(pooled, [grad] * len(pooled))

        return module, backward

    return make


def time_on_cpu(step: Step) -> float:
    """Milliseconds."""
    begin = time.perf_counter()
    step()
    return (time.perf_counter() - begin) * 1e3


def time_on_gpu(in_a_row: int, step: Step) -> float:
    """Milliseconds of a step, until the GPU has done all. The time in which the host wakes up is no part of them."""
    torch.cuda.synchronize()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(in_a_row):
        step()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / in_a_row


def time_in_turns(steps: Sequence[Step], rounds: int, time_of: Callable[[Step], float]) -> list[float]:
    """The median of each, in milliseconds. Turns have ten steps, since a training loop repeats one step. The first two
    of a turn are not counted: processors and caches have to find their way back after another program's step.
    """
    times: list[list[float]] = [[] for _ in steps]
    while len(times[-1]) < rounds:
        for step, kept in zip(steps, times, strict=True):
            for number in range(10):
                taken = time_of(step)
                if number >= 2:
                    kept.append(taken)
    return [median(kept) for kept in times]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=15, help="of each kind; 20 times as many for step-D (15)")
    parser.add_argument("--threads", type=int, help="of both packages (torch's default)")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="(cpu)")
    parser.add_argument("--in-a-row", type=int, default=1, help="steps that a GPU gets before a program waits (1)")
    parser.add_argument("--one-thread", action="store_true", help="run backward on the calling thread, in torch, too")
    parser.add_argument("--only", choices=SIZES, action="append", help="may be repeated (all)")
    measurement.add_option(parser)
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    on_gpu = options.device == "cuda"
    time_of = partial(time_on_gpu, options.in_a_row) if on_gpu else time_on_cpu
    place = "between CUDA events" if on_gpu else f"{torch.get_num_threads()} threads"
    if on_gpu and options.in_a_row > 1:
        place += f", {options.in_a_row} steps in a row"
    if options.one_thread:
        torch.autograd.set_multithreading_enabled(False)
        place += ", backward on the calling thread"
    measured = measurement.Measurement(
        "A training step of embedding bags: forward, backward and optimizer",
        [f"torch {torch.__version__}", place,
         f"the median of {options.steps} steps, of {20 * options.steps} for the smallest"],
        measurement.describe_machine(torch.cuda.get_device_name() if on_gpu else ""),
    )  # fmt: skip
    for optimizer in OPTIMIZERS:
        columns = ["torch, ms", "`rt.optim`, ms", "`fused=True`, ms", "faster", *(["in a CUDA graph, ms"] * on_gpu)]
        table = measured.table(optimizer, f"a step with {optimizer}", *columns)
        for name in options.only or SIZES:
            make = collection(options.device) if name == COLLECTION else one_bag(name, options.device)
            steps: list[Step] = [*steps_of(make, optimizer)]
            if on_gpu:
                steps.append(captured(steps_of(make, optimizer).fused))
            rounds = options.steps * (20 if name == "step-D" else 1)
            theirs, separate, fused, *graph = time_in_turns(steps, rounds, time_of)
            table.add(SIZES[name], theirs, separate, fused, f"{theirs / fused:.1f}x", *graph)
    measured.write(options.json)


if __name__ == "__main__":
    main()
