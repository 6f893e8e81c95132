#!/usr/bin/env python3
"""Train a deep learning recommendation model on generated clicks, first with torch, then with raggrad.

The model has 13 numbers and 26 tables. Torch has an nn.EmbeddingBag for each table and SparseAdam; raggrad has one
EmbeddingBagCollection and its own SparseAdam, fused into backward. All else is the same. Prints losses and step times
and draws both. With --ranks, trains with raggrad in one process and in several, and compares every bit.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import raggrad.torch as rt
import torch
from torch import nn
from tqdm import tqdm

import ranks
from clicks import CATEGORIES, make_batch
from dlrm import DLRM, TorchBags, raggrad_bags
from picture import Run, draw

LEARNING_RATE = 0.01
STEPS_OF_RANKS = 20  # dense layers by blocks and exchanges take their time
# Small enough for two cores; on a GPU the sizes of a real batch.
DEFAULTS = {
    "cpu": {"batch": 2048, "rows": 100_000, "dim": 16, "steps": 200},
    "cuda": {"batch": 8192, "rows": 1_000_000, "dim": 32, "steps": 300},
}


class OneLineParser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (see --help)\n")


def positive_number(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def picture_path(text: str) -> Path:
    path = Path(text)
    if path.suffix != ".png":
        raise argparse.ArgumentTypeError(f"{text!r} does not end in .png")
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"there is no directory {str(path.parent)!r}")
    return path


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    def default(name: str) -> str:
        return f"({DEFAULTS['cpu'][name]:,}; {DEFAULTS['cuda'][name]:,} on a GPU)"

    formatter = argparse.RawDescriptionHelpFormatter
    parser = OneLineParser(prog="train.py", description=__doc__, formatter_class=formatter)
    steps_help = f"training steps {default('steps')}; {STEPS_OF_RANKS} with --ranks"
    parser.add_argument("--steps", type=positive_number, help=steps_help)
    parser.add_argument("--batch", type=positive_number, help=f"samples in a step {default('batch')}")
    parser.add_argument("--rows", type=positive_number, help=f"of the largest tables {default('rows')}")
    parser.add_argument("--dim", type=positive_number, help=f"of the tables' rows {default('dim')}")
    parser.add_argument("--seed", type=int, default=0, help="of data and weights (%(default)s)")
    parser.add_argument("--device", choices=list(DEFAULTS), help="(cuda where there is one)")
    parser.add_argument("--threads", type=positive_number, help="of torch and raggrad (torch's choice)")
    parser.add_argument(
        "--plot", type=picture_path, default="torch_dlrm.png", metavar="PATH", help="where to draw (%(default)s)"
    )
    parser.add_argument(
        "--ranks", type=positive_number, help="processes on the CPU, compared with one process bit for bit"
    )
    options = parser.parse_args(arguments)
    if options.ranks:
        options.device, options.steps = "cpu", options.steps or STEPS_OF_RANKS
    options.device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    for name, value in DEFAULTS[options.device].items():
        setattr(options, name, getattr(options, name) or value)
    if options.ranks and options.batch % (ranks.BLOCK * options.ranks):
        parser.error(f"--batch: expected a multiple of {ranks.BLOCK * options.ranks}, got {options.batch}")
    return options


def train_torch(options: argparse.Namespace, rows: list[int]) -> Run:
    model = DLRM(TorchBags(rows, options.dim), rows, options.dim).to(options.device)
    return train(options, rows, "torch", model, torch.optim.SparseAdam(model.bags.parameters(), lr=LEARNING_RATE))


def train_raggrad(options: argparse.Namespace, rows: list[int]) -> Run:
    model = DLRM(raggrad_bags(rows, options.dim), rows, options.dim).to(options.device)
    optimizer = rt.optim.SparseAdam(model.bags.parameters(), lr=LEARNING_RATE, fused=True)
    return train(options, rows, "raggrad", model, optimizer)


def train(options: argparse.Namespace, rows: list[int], name: str, model: DLRM, of_tables: Any) -> Run:
    optimizers = [of_tables, torch.optim.Adam(model.layers.parameters(), lr=LEARNING_RATE)]
    wait: Callable[[], None] = torch.cuda.synchronize if options.device == "cuda" else lambda: None
    run = Run([], [])
    # A terminal redraws the bar in place; in a log file every redraw would be one more line.
    redraw_seconds = 0.1 if sys.stderr.isatty() else 30
    with tqdm(total=options.steps, desc=f"  {name:>7}", unit="step", mininterval=redraw_seconds) as bar:
        for step in range(options.steps):
            batch = make_batch(step, options.batch, rows, options.seed).to(options.device)
            wait()
            begin = time.perf_counter()
            loss = nn.functional.binary_cross_entropy_with_logits(model(batch.numbers, batch.features), batch.clicked)
            for optimizer in optimizers:
                optimizer.zero_grad()
            loss.backward()
            for optimizer in optimizers:
                optimizer.step()
            wait()
            run.milliseconds.append((time.perf_counter() - begin) * 1e3)
            run.losses.append(loss.item())
            bar.set_postfix_str(f"loss {run.losses[-1]:.4f}, {run.step_time:.1f} ms a step", refresh=False)
            bar.update()
    return run


def compare(options: argparse.Namespace) -> None:
    """Both runs, one after the other."""
    rows = [min(count, options.rows) for count in CATEGORIES]
    where = torch.cuda.get_device_name() if options.device == "cuda" else f"{torch.get_num_threads()} threads"
    title = f"{sum(rows):,} rows of {options.dim} in {len(rows)} tables, batch {options.batch:,}, {where}"
    print(f"\n{title}\n", flush=True)
    runs = []
    for train_one in (train_torch, train_raggrad):
        torch.manual_seed(options.seed)
        runs.append(train_one(options, rows))
        gc.collect()  # one model at a time
    theirs, ours = runs
    last = max(1, options.steps // 10)
    print(f"\n  {'':8}{'first loss':>12}{'last losses':>13}{'a step':>12}")
    for name, run in (("torch", theirs), ("raggrad", ours)):
        mean = sum(run.losses[-last:]) / last
        print(f"  {name:8}{run.losses[0]:>12.4f}{mean:>13.4f}{run.step_time:>9.1f} ms")
    apart = max(abs(one - other) for one, other in zip(theirs.losses, ours.losses, strict=True))
    print(f"\n  {theirs.step_time / ours.step_time:.1f} times faster; losses differ by at most {apart:.1e}")
    draw(theirs, ours, title, options.plot)
    print(f"  Picture: {options.plot}")


def main(arguments: Sequence[str] | None = None) -> None:
    try:
        options = parse_arguments(arguments)
        if options.threads:
            torch.set_num_threads(options.threads)
        if options.ranks:
            ranks.compare(options)
        else:
            compare(options)
    except OSError as error:
        sys.exit(f"train.py: {error}")
    except KeyboardInterrupt:
        sys.exit("train.py: interrupted")


if __name__ == "__main__":
    main()
