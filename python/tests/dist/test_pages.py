"""The code of docs/scale.md runs, on two processes; the notebook on reproducibility starts its own."""

from __future__ import annotations

import functools

from pages import notebook, programs, run

from . import worlds
from .worlds import rt, torch


def _run_pages(rank: int) -> None:
    for page, codes in programs("dist").items():
        bags = rt.EmbeddingBag(10, 4, sparse=True)
        # worlds.run has done that.
        codes = [code.replace('torch.distributed.init_process_group("gloo")', "") for code in codes]
        reader_has = {
            "functools": functools,
            "torch": torch,
            "rt": rt,
            "DistributedDataParallel": torch.nn.parallel.DistributedDataParallel,
            "model": torch.nn.Sequential(bags, torch.nn.Linear(4, 1)),
            "num_rows": 1000,
            "ids": torch.tensor([7, 2, 999 - rank]),
            "offsets": torch.tensor([0, 2]),
        }
        run(page, codes, reader_has)


def test_the_code_of_the_pages_runs() -> None:
    worlds.run(2, _run_pages)


def test_the_notebook_on_reproducibility_runs() -> None:
    run("reproducibility.ipynb", notebook("reproducibility"), {})
