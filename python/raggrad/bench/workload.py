"""A workload: an operator, its sizes and data, the memory traffic it cannot avoid, and the speed that is wanted.

All data come from fixed seeds, so that every process makes the same. `digest` shows whether it did.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

Inputs = dict[str, Any]

ZIPF_EXPONENT = 1.05

PURE_COPY = 0.85  # the share of the copy bandwidth that a workload reaches whose work is one copy

# Tasks that are not a single operator of TensorFlow.
WITH_PLAN = "segment mean gradient with a ready plan"
FUSED_SGD = "segment mean gradient fused with SGD"
ONE_PIECE = "UnbatchGrad of one piece"

DTYPES = {"f32": np.dtype(np.float32), "bf16": np.dtype(ml_dtypes.bfloat16)}


@dataclass(frozen=True)
class Target:
    """raggrad, called from `language`, shall be at least `factor` times as fast as `peer`."""

    peer: str
    factor: float
    language: str = "python"


@dataclass(frozen=True)
class Workload:
    name: str
    task: str  # the key of peers' WAYS: an operator's name, or one of the tasks above
    sizes: str  # in words
    make: Callable[[np.random.Generator, int], Inputs]  # (random numbers, divisor of all sizes)
    traffic: Callable[[Inputs], int] | None = None  # bytes: each input read once, each output written once
    targets: tuple[Target, ...] = ()
    copy_shares: dict[str, float] = field(default_factory=dict)  # by language: of the copy bandwidth, at least
    limits: dict[str, float] = field(default_factory=dict)  # by language: seconds per call; p99 where it is measured
    tail_below: str | None = None  # the peer whose p50 our p99 has to stay below
    threads: int = 0  # how many call at the same time; 0: one call after the other
    languages: tuple[str, ...] = ("python",)  # from which raggrad is called
    quick: bool = False  # part of --quick

    def inputs(self, divisor: int = 1) -> Inputs:
        return self.make(np.random.default_rng(zlib.crc32(self.name.encode())), divisor)


def digest(inputs: Inputs) -> int:
    """A number that differs if any operand does."""
    value = 0
    for name in sorted(inputs):
        array = np.ascontiguousarray(inputs[name])
        value = zlib.crc32(f"{name} {array.dtype} {array.shape}".encode(), value)
        value = zlib.crc32(array.reshape(-1).view(np.uint8), value)
    return value


def zipf(random: np.random.Generator, count: int, rows: int, exponent: float = ZIPF_EXPONENT) -> np.ndarray:
    """Row numbers by Zipf's law: the k-th most frequent row, a random one, has weight k ** -exponent."""
    weights = np.cumsum(np.arange(1, rows + 1, dtype=np.float64) ** -exponent)
    ranks = np.searchsorted(weights, random.random(count) * weights[-1], side="right")
    return random.permutation(rows)[np.minimum(ranks, rows - 1)]


def uniform(random: np.random.Generator, count: int, rows: int) -> np.ndarray:
    return random.integers(rows, size=count)
