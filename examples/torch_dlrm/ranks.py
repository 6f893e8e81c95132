"""The model on several processes, with the bits of one.

    torchrun --nproc_per_node 2 ranks.py results.json '{"steps": 20, ...}'

A process takes its part of every batch. First each has all tables, and gradients are summed over processes; then the
rows of the tables are divided among them. raggrad.dist does both reproducibly, so nothing depends on how the batch is
cut. Torch's sums do. So the dense layers work on blocks of 64 samples, whoever has them, and the gradients of all
blocks are added up everywhere in the same order.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import raggrad
import raggrad.dist as rd
import raggrad.torch as rt
import torch
import torch.distributed as dist
from torch import Tensor, nn
from tqdm import tqdm

from clicks import CATEGORIES, Batch, make_batch
from dlrm import DLRM, Layers, raggrad_bags

BLOCK = 64
LEARNING_RATE = 0.01


class Result(NamedTuple):
    losses: list[float]
    digest: str  # of all weights
    milliseconds: float  # of a step


def my_part(batch: Batch, rank: int, ranks: int) -> Batch:
    samples = len(batch.clicked) // ranks
    begin, end = rank * samples, (rank + 1) * samples
    features = []
    for ids, offsets in batch.features:
        first = int(offsets[begin])
        last = int(offsets[end]) if end < len(offsets) else len(ids)
        features.append((ids[first:last], offsets[begin:end] - first))
    return Batch(batch.numbers[begin:end], features, batch.clicked[begin:end])


class DividedBags(nn.Module):
    """The tables of a collection, one below the other, as one table whose rows are divided among the processes.

    Owners of rows update them in backward. All features are looked up in one call, which costs one exchange.
    """

    def __init__(self, tables: rt.EmbeddingBagCollection, rows: Sequence[int], dim: int) -> None:
        super().__init__()
        self.first_rows = list(accumulate(rows, initial=0))[:-1]
        optimizer = functools.partial(rt.optim.SparseAdam, lr=LEARNING_RATE)
        self.table = rd.ShardedEmbeddingBag(sum(rows), dim, "sum", optimizer=optimizer, accumulation="reproducible")
        # To start with the weights of one process. Tables that need many processes draw their own instead.
        self.table.load_full(torch.cat(list(tables.tables().values())))

    def forward(self, features: Sequence[tuple[Tensor, Tensor]]) -> list[Tensor]:
        first_ids = accumulate((len(ids) for ids, _ in features), initial=0)
        ids = torch.cat([ids + row for (ids, _), row in zip(features, self.first_rows, strict=True)])
        offsets = torch.cat([offsets + begin for (_, offsets), begin in zip(features, first_ids, strict=False)])
        return list(self.table(ids, offsets).chunk(len(features)))

    def tables(self) -> dict[str, Tensor]:
        return {"all": self.table.full_weight()}


def gather(mine: Tensor) -> Tensor:
    """The rows of all processes, in the order of the batch."""
    if not dist.is_initialized():
        return mine
    parts = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, mine)
    return torch.cat(parts)


def backward_by_blocks(layers: Layers, batch: Batch, pooled: list[Tensor], samples: int) -> Tensor:
    """Leaves gradients of the mean loss in the layers and in the tables. Returns the losses of all blocks."""
    parameters = list(layers.parameters())
    losses, of_layers, of_pooled = [], [], []
    for begin in range(0, len(batch.clicked), BLOCK):
        block = slice(begin, begin + BLOCK)
        rows = [table[block].detach().requires_grad_() for table in pooled]
        logits = layers(batch.numbers[block], rows)
        loss = nn.functional.binary_cross_entropy_with_logits(logits, batch.clicked[block], reduction="sum") / samples
        grads = torch.autograd.grad(loss, [*parameters, *rows])
        losses.append(loss.detach())
        of_layers.append(torch.cat([grad.flatten() for grad in grads[: len(parameters)]]))
        of_pooled.append(grads[len(parameters) :])
    torch.autograd.backward(pooled, [torch.cat(grads) for grads in zip(*of_pooled, strict=True)])
    sums = gather(torch.stack(of_layers)).sum(0).split([parameter.numel() for parameter in parameters])
    for parameter, grad in zip(parameters, sums, strict=True):
        parameter.grad = grad.reshape(parameter.shape)
    return gather(torch.stack(losses))


def train(options: dict[str, Any], divided: bool, rank: int, ranks: int) -> Result:
    torch.set_num_threads(1)  # products of matrices have other bits with other numbers of threads
    torch.manual_seed(options["seed"])
    rows, samples = [min(count, options["rows"]) for count in CATEGORIES], options["batch"]
    model = DLRM(raggrad_bags(rows, options["dim"]), rows, options["dim"])
    optimizers = [torch.optim.Adam(model.layers.parameters(), lr=LEARNING_RATE)]
    if divided:
        model.bags = DividedBags(model.bags, rows, options["dim"])
    else:
        optimizers.append(rt.optim.SparseAdam(model.bags.parameters(), lr=LEARNING_RATE))
        if ranks > 1:
            rd.register(model.bags, accumulation="reproducible")
    losses, times = [], []
    name = f"  {name_of(ranks, divided)}"
    redraw_seconds = 0.1 if sys.stderr.isatty() else 30
    for step in tqdm(range(options["steps"]), name, unit="step", mininterval=redraw_seconds, disable=rank > 0):
        batch = my_part(make_batch(step, samples, rows, options["seed"]), rank, ranks)
        begin = time.perf_counter()
        for optimizer in optimizers:
            optimizer.zero_grad()
        with raggrad.accumulation("reproducible"):
            parts = backward_by_blocks(model.layers, batch, model.bags(batch.features), samples)
        for optimizer in optimizers:
            optimizer.step()
        times.append((time.perf_counter() - begin) * 1e3)
        losses.append(parts.double().sum().item())
    weights = [*model.bags.tables().values(), *model.layers.state_dict().values()]
    digest = hashlib.sha256(b"".join(weight.detach().numpy().tobytes() for weight in weights)).hexdigest()
    return Result(losses, digest, median(times))


def name_of(ranks: int, divided: bool) -> str:
    return "1 process" if ranks == 1 else f"{ranks} processes, {'divided' if divided else 'whole'} tables"


def run_several(options: dict[str, Any], ranks: int) -> list[Result]:
    """Trains in `ranks` new processes, with whole tables and with divided ones."""
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results.json"
        launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(ranks)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        subprocess.run([*launch, __file__, str(results), json.dumps(options)], env=environment, check=True)
        return [Result(*result) for result in json.loads(results.read_text())]


def compare(options: argparse.Namespace) -> None:
    """Trains in one process, then twice in several. Ends the program with an error if a bit differs."""
    chosen = {name: getattr(options, name) for name in ("steps", "batch", "rows", "dim", "seed")}
    results = {name_of(1, False): train(chosen, False, 0, 1)}
    for divided, result in zip((False, True), run_several(chosen, options.ranks), strict=True):
        results[name_of(options.ranks, divided)] = result
    for name, result in results.items():
        print(f"  {name:27} loss {result.losses[0]!r} -> {result.losses[-1]!r}, {result.milliseconds:.1f} ms a step")
    one, *several = results.values()
    if any(result.losses != one.losses or result.digest != one.digest for result in several):
        sys.exit("train.py: losses or weights differ")
    print(f"  The same {len(one.losses)} losses and the same weights, bit for bit: {one.digest[:32]}")


def main() -> None:
    path, options = sys.argv[1:]
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    results = [train(json.loads(options), divided, rank, ranks) for divided in (False, True)]
    if rank == 0:
        Path(path).write_text(json.dumps(results))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
