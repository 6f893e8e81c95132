"""The model on several processes, with the bits of one.

    torchrun --nproc_per_node 2 ranks.py result.pt '{"steps": 20, ...}'

A process takes its part of every batch. Gradients of tables are summed over processes by raggrad.dist, reproducibly, so
they do not depend on how the batch is cut. Torch's sums do. So the dense layers work on blocks of 64 samples, whoever
has them, and the gradients of all blocks are added up everywhere in the same order.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
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


def train(options: dict[str, Any], rank: int, ranks: int) -> Result:
    torch.set_num_threads(1)  # products of matrices have other bits with other numbers of threads
    torch.manual_seed(options["seed"])
    rows, samples = [min(count, options["rows"]) for count in CATEGORIES], options["batch"]
    model = DLRM(raggrad_bags(rows, options["dim"]), rows, options["dim"])
    if ranks > 1:
        rd.register(model.bags, accumulation="reproducible")
    optimizers = [
        rt.optim.SparseAdam(model.bags.parameters(), lr=LEARNING_RATE),
        torch.optim.Adam(model.layers.parameters(), lr=LEARNING_RATE),
    ]
    losses, times = [], []
    name = f"  {ranks} process{'es' if ranks > 1 else ''}"
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
    weights = b"".join(weight.numpy().tobytes() for weight in model.state_dict().values())
    return Result(losses, hashlib.sha256(weights).hexdigest(), median(times))


def run_several(options: dict[str, Any], ranks: int) -> Result:
    """Trains in `ranks` new processes."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(ranks)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        subprocess.run([*launch, __file__, str(result), json.dumps(options)], env=environment, check=True)
        return Result(*json.loads(result.read_text()))


def compare(options: argparse.Namespace) -> None:
    """Trains in one process and in several. Ends the program with an error if a bit differs."""
    chosen = {name: getattr(options, name) for name in ("steps", "batch", "rows", "dim", "seed")}
    one = train(chosen, 0, 1)
    several = run_several(chosen, options.ranks)
    for name, result in (("one process", one), (f"{options.ranks} processes", several)):
        print(f"  {name:12} loss {result.losses[0]!r} -> {result.losses[-1]!r}, {result.milliseconds:.1f} ms a step")
    if one.losses != several.losses or one.digest != several.digest:
        sys.exit("train.py: losses or weights differ")
    print(f"  The same {len(one.losses)} losses and the same weights, bit for bit: {one.digest[:32]}")


def main() -> None:
    path, options = sys.argv[1:]
    dist.init_process_group("gloo")
    result = train(json.loads(options), dist.get_rank(), dist.get_world_size())
    if dist.get_rank() == 0:
        Path(path).write_text(json.dumps(result))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
