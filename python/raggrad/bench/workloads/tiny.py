"""Tiny operands: the cost of one call."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from ..workload import ONE_PIECE, Inputs, Target, Workload
from . import batches, segments


def _segment(random: np.random.Generator, divisor: int) -> Inputs:
    inputs = segments.make(random, 1, segments=2, ids=4, width=4, rows=10, index="int32")
    return {**inputs, "indices": np.int32([7, 3, 7, 0]), "segment_ids": np.int32([0, 0, 1, 1])}


def _fill(random: np.random.Generator, divisor: int) -> Inputs:
    return {"reverse_index_map": np.int64([0, 2, 3]), "grad_values": np.float32([1, 2, 3, 4])}


def _slice(random: np.random.Generator, divisor: int) -> Inputs:
    return {
        "backprop_val_grad": np.float32([5, 6]),
        "input_indices": np.int64([[0, 1], [1, 2], [2, 2], [2, 3]]),
        "input_start": np.int64([2, 0]),
        "output_indices": np.int64([[0, 2], [0, 3]]),
        "size": np.int64([1, 4]),
    }


def _pieces(random: np.random.Generator, divisor: int) -> Inputs:
    return {
        "values": np.ones((4, 4), np.float32),
        "row_splits": np.int64([0, 1, 3, 4]),
        "missing": np.empty(0, np.int64),
    }


def workloads() -> Iterator[Workload]:
    for task, make in (
        ("SparseSegmentMeanGradV2", _segment),
        ("SparseFillEmptyRowsGrad", _fill),
        ("SparseSliceGrad", _slice),
        ("RaggedTensorToVariantGradient", _pieces),
    ):
        yield Workload(
            f"tiny-{task}",
            task,
            "4 to 16 elements: the cost of one call",
            make,
            targets=(Target("tensorflow", 10),),
            limits={"c++": 1e-6},
            languages=("python", "c++"),
            quick=True,
        )
    yield Workload(
        "tiny-UnbatchGrad",
        ONE_PIECE,
        "a batch of one piece: the cost of one call",
        partial(batches.make, pieces=1, kib=1),
        targets=(Target("tensorflow", 10),),
        limits={"c++": 1e-6},
        languages=("python", "c++"),
        quick=True,
    )
