#!/usr/bin/env python3
"""Times the sum of sparse gradients over processes of this machine, and counts the bytes that a process sends.

    benchmarks/dist_exchange.py --ranks 2 4 --steps 5

Prints a table in milliseconds, the median of all steps of the slowest process: torch's dense all-reduce, torch's sparse
one (which gathers the rows of all ids from all processes), rd.all_reduce, and rd.all_reduce with bfloat16 on the wire.
All take turns, so that a busy machine slows all. Gradients are those of segment-A (1,000,000 x 64) and segment-C
(100,000 x 256), with fewer ids for smaller shares of the table. Processes have one thread each. They talk over
loopback, which is no network: compare, do not carry over. A second table has the constants of rd.explain.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import median
from typing import Any, NamedTuple

import raggrad.dist as rd
import raggrad.torch as rt
import torch
import torch.distributed as dist
import torch.multiprocessing as processes
from raggrad.bench.measurement import Measurement, add_option


class Work(NamedTuple):
    rows: int
    width: int
    segments: int
    per_segment: int
    zipf: bool
    parts: tuple[float, ...]  # of the segments: how many a process has


WORKLOADS = {
    "segment-A-uniform": Work(1_000_000, 64, 65_536, 20, False, (0.02, 0.1, 0.25)),
    "segment-A-zipf": Work(1_000_000, 64, 65_536, 20, True, (0.1, 1.0)),
    "segment-C": Work(100_000, 256, 8_192, 50, True, (0.1, 1.0)),
}


def make_gradients(name: str, part: float, rank: int) -> tuple[Any, Any]:
    """The gradient of a bag as torch makes it, with a row for every id, and as raggrad.torch does."""
    work = WORKLOADS[name]
    generator = torch.Generator().manual_seed(rank)
    segments = max(int(work.segments * part), 1)
    n = segments * work.per_segment
    if work.zipf:
        weights = torch.arange(1, work.rows + 1, dtype=torch.float64) ** -1.05
        cumulated = torch.cumsum(weights, 0) / weights.sum()
        shuffled = torch.randperm(work.rows, generator=torch.Generator().manual_seed(99))
        draws = torch.rand(n, generator=generator, dtype=torch.float64)
        ids = shuffled[torch.searchsorted(cumulated, draws).clamp(max=work.rows - 1)]
    else:
        ids = torch.randint(0, work.rows, (n,), generator=generator)
    values = torch.randn(segments, work.width, generator=generator).repeat_interleave(work.per_segment, 0)
    per_id = torch.sparse_coo_tensor(ids[None], values, (work.rows, work.width), check_invariants=False)
    return per_id, rt.coalesce(per_id)


def timed(function: Callable[[], Any]) -> float:
    dist.barrier()
    begin = time.perf_counter()
    function()
    mine = torch.tensor(time.perf_counter() - begin)
    dist.all_reduce(mine, dist.ReduceOp.MAX)
    return float(mine) * 1e3


def measure(rank: int, ranks: int, port: int, steps: int, names: list[str], found: Any) -> None:
    """Runs in every process. The first one puts names of tables and their rows into `found`."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=ranks)
    for name in names:
        for part in WORKLOADS[name].parts:
            per_id, rows = make_gradients(name, part, rank)
            dense = torch.zeros(rows.shape)
            ways: dict[str, Callable[[], Any]] = {
                "dense": lambda dense=dense: dist.all_reduce(dense),
                "per id": lambda per_id=per_id: dist.all_reduce(per_id.clone()),
                "rd": lambda rows=rows: rd.all_reduce(rows),
                "rd bf16": lambda rows=rows: rd.all_reduce(rows, wire=torch.bfloat16),
            }
            times: dict[str, list[float]] = {way: [] for way in ways}
            for _ in range(steps + 1):
                for way, function in ways.items():
                    times[way].append(timed(function))
            with rd.traffic() as sent:
                total = rd.all_reduce(rows)
            counts = torch.tensor([float(rows._nnz()), float(sent.bytes)], dtype=torch.float64)
            dist.all_reduce(counts)
            unique, counted = (counts / ranks).tolist()
            model = rd.explain(*rows.shape, per_id._nnz(), ranks, unique_rows=unique, all_rows=total._nnz())
            if rank == 0:
                medians = [median(times[way][1:]) for way in ways]
                bytes_sent = (counted, model.ways[2].bytes, model.ways[0].bytes)
                sizes = (f"{sent / 1e6:.2f}" for sent in bytes_sent)
                found.put(("exchange", (name, ranks, f"{rows._nnz() / rows.shape[0]:.1%}", *medians, *sizes)))
    if ranks > 1:
        small = median(timed(lambda: _exchange(rank, ranks, 8)) for _ in range(50))
        large = median(timed(lambda: _exchange(rank, ranks, 1 << 24)) for _ in range(steps))
        if rank == 0:
            rate = (ranks - 1) * (1 << 24) / large / 1e6
            found.put(("constants", (f"{ranks} ranks", small / (ranks - 1) * 1e3, rate)))
    dist.destroy_process_group()


def _exchange(rank: int, ranks: int, size: int) -> None:
    """Every rank sends `size` bytes to every other."""
    others = [other for other in range(ranks) if other != rank]
    data = torch.zeros(size, dtype=torch.uint8)
    works = [dist.irecv(torch.empty_like(data), other) for other in others]
    works += [dist.isend(data, other) for other in others]
    for work in works:
        work.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    parser.add_argument("--port", type=int, default=29571)
    add_option(parser)
    options = parser.parse_args()
    measured = Measurement(
        "Sums of sparse gradients over processes",
        [f"torch {torch.__version__}", "one thread a process, gloo over loopback, float32",
         f"the median of {options.steps} steps of the slowest process"],
    )  # fmt: skip
    measured.table(
        "exchange", "gradient", "ranks", "rows named", "dense, ms", "gather of ids, ms", "`rd.all_reduce`, ms",
        "bfloat16 wire, ms", "MB sent", "MB by the model", "MB, dense",
    )  # fmt: skip
    measured.table("constants", "constants of rd.explain", "us a message", "GB/s sent")
    for ranks in options.ranks:
        found = processes.get_context("spawn").SimpleQueue()
        arguments = (ranks, options.port, options.steps, options.workloads, found)
        world = processes.start_processes(measure, arguments, nprocs=ranks, start_method="spawn", join=False)
        ended = False
        while not ended:
            ended = world.join(timeout=1)
            while not found.empty():
                name, row = found.get()
                measured.tables[name].add(*row)
    measured.write(options.json)


if __name__ == "__main__":
    main()
