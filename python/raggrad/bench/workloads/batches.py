"""UnbatchGrad: gradients of a batch, brought by several threads."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from ..workload import PURE_COPY, Inputs, Target, Workload


def make(random: np.random.Generator, divisor: int, *, pieces: int, kib: int) -> Inputs:
    """All pieces are the same array, so that only the meeting of the calls and the writing of the result are measured.
    The pieces of a batch have the ids pieces * batch + 0, 1, ...; its owner is the last."""
    return {
        "grad": random.standard_normal((max(1, kib // divisor), 256), np.float32),
        "pieces": np.int64(pieces),
        "batches": np.int64(max(2, (512 if kib < 1024 else 64) // divisor)),
    }


def workloads() -> Iterator[Workload]:
    for name, pieces, kib in (("unbatch-A", 16, 1), ("unbatch-B", 16, 64), ("unbatch-C", 4, 1024)):
        for threads in (2, 8, 32):
            # Pieces of 1 MiB are one copy; smaller ones are mostly the meeting of the threads.
            pure_copy = kib >= 1024
            faster = (Target("tensorflow", 3), Target("tensorflow", 10, language="c++"))
            yield Workload(
                f"{name}-{threads}-threads",
                "UnbatchGrad",
                f"batches of {pieces} pieces of {kib} KiB, brought by {threads} threads",
                partial(make, pieces=pieces, kib=kib),
                lambda inputs: 2 * inputs["grad"].nbytes * int(inputs["pieces"]),
                faster if threads == 2 and not pure_copy else (),
                copy_shares={"python": PURE_COPY, "c++": PURE_COPY} if threads == 2 and pure_copy else {},
                tail_below="tensorflow" if threads == 32 else None,
                threads=threads,
                languages=("python", "c++"),
                quick=(name, threads) == ("unbatch-A", 2),
            )
    yield Workload(
        "unbatch-tiny-beside-64MB",
        "UnbatchGrad beside a large one",
        "a piece of 16 bytes, while batches of 64 MB are joined on the same resource",
        partial(make, pieces=1, kib=1),
        limits={"c++": 1e-3},
        languages=("c++",),
    )
