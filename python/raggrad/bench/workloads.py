"""What is timed: operators, sizes, data, the traffic they cannot avoid, and how far ahead raggrad wants to be.

All data come from fixed seeds, so that every process makes the same; `digest` tells whether it did.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np

Inputs = dict[str, Any]

ZIPF_EXPONENT = 1.05

# Tasks that are no single operator of TensorFlow's.
WITH_PLAN = "segment mean gradient with a ready plan"
FUSED_SGD = "segment mean gradient fused with SGD"
ONE_PIECE = "UnbatchGrad of one piece"

DTYPES = {"f32": np.dtype(np.float32), "bf16": np.dtype(ml_dtypes.bfloat16)}


@dataclass(frozen=True)
class Target:
    """At least `factor` times as fast as `peer`, when called from `door`."""

    peer: str
    factor: float
    door: str = "python"


@dataclass(frozen=True)
class Workload:
    name: str
    task: str  # what peers look up: the operator's name, or what is done with it
    sizes: str  # in words
    make: Callable[[np.random.Generator, int], Inputs]  # (random, divisor of all sizes)
    traffic: Callable[[Inputs], int] | None = None  # bytes: each input read once, each output written once
    targets: tuple[Target, ...] = ()
    limits: dict[str, float] = field(default_factory=dict)  # by door: seconds per call; the slowest of 100, if known
    tail_below: str | None = None  # our p99 has to be below this peer's p50
    threads: int = 0  # that call at the same time; 0: one call after the other
    doors: tuple[str, ...] = ("python",)
    quick: bool = False  # is part of --quick

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
    """Row numbers whose k-th most frequent has weight k ** -exponent; which row that is, is shuffled."""
    weights = np.cumsum(np.arange(1, rows + 1, dtype=np.float64) ** -exponent)
    ranks = np.searchsorted(weights, random.random(count) * weights[-1], side="right")
    return random.permutation(rows)[np.minimum(ranks, rows - 1)]


def uniform(random: np.random.Generator, count: int, rows: int) -> np.ndarray:
    return random.integers(rows, size=count)


# Pooled embeddings


def _segments(
    random: np.random.Generator,
    divisor: int,
    *,
    segments: int,
    ids: int,
    width: int,
    rows: int,
    draw: Callable[[np.random.Generator, int, int], np.ndarray] = uniform,
    dtype: str = "f32",
    index: str = "int64",
    even: bool = True,
) -> Inputs:
    """Segments of one length, or of random ones if not `even`."""
    segments, ids, rows = (max(1, n // divisor) for n in (segments, ids, rows))
    numbers = np.arange(ids) * segments // ids if even else np.sort(random.integers(segments, size=ids))
    return {
        "grad": random.standard_normal((segments, width), np.float32).astype(DTYPES[dtype]),
        "indices": draw(random, ids, rows).astype(index),
        "segment_ids": numbers.astype(index),
        "dense_output_dim0": np.int32(rows),
    }


def _segment_traffic(inputs: Inputs) -> int:
    grad, indices = inputs["grad"], inputs["indices"]
    row = grad.shape[1] * grad.itemsize + indices.itemsize
    return grad.nbytes + indices.nbytes + inputs["segment_ids"].nbytes + len(np.unique(indices)) * row


def _planned_traffic(inputs: Inputs) -> int:
    """Without the ids: the plan has read them."""
    return _segment_traffic(inputs) - inputs["indices"].nbytes - inputs["segment_ids"].nbytes


def _fused_traffic(inputs: Inputs) -> int:
    """Rows of the table are read and written; their numbers go nowhere."""
    grad, used = inputs["grad"], len(np.unique(inputs["indices"]))
    row = grad.shape[1] * grad.itemsize
    return grad.nbytes + inputs["indices"].nbytes + inputs["segment_ids"].nbytes + 2 * used * row


def _segment_workload(
    name: str,
    sizes: str,
    targets: dict[str, float],
    *,
    task: str = "SparseSegmentMeanGradV2",
    traffic: Callable[[Inputs], int] = _segment_traffic,
    quick: bool = False,
    **shape: Any,
) -> Workload:
    wanted = tuple(Target(peer, factor) for peer, factor in targets.items())
    return Workload(name, task, sizes, partial(_segments, **shape), traffic, wanted, quick=quick)


_A = {"segments": 65_536, "ids": 65_536 * 20, "width": 64, "rows": 1_000_000}
_C = {"segments": 8_192, "ids": 8_192 * 50, "width": 256, "rows": 100_000, "draw": zipf}
_D = {"segments": 1_024, "ids": 1_024 * 8, "width": 32, "rows": 10_000, "draw": zipf}
_TBE = {"segments": 8_192, "ids": 200_000, "width": 64, "rows": 200_000, "even": False}


def _segment_workloads() -> Iterator[Workload]:
    ahead = {
        ("uniform", "f32"): {"tensorflow": 10, "torch": 4},
        ("uniform", "bf16"): {"tensorflow": 12},
        ("zipf", "f32"): {"tensorflow": 12, "torch": 5},
        ("zipf", "bf16"): {"tensorflow": 12},
    }
    for (law, dtype), targets in ahead.items():
        for index in ("int32", "int64"):
            yield _segment_workload(
                f"segment-A-{law}-{dtype}-{index}",
                f"65,536 segments x 20 ids, 1,000,000 rows of 64 {dtype}, {law}, {index}",
                targets,
                quick=(dtype, index) == ("f32", "int64"),
                **_A,
                draw=zipf if law == "zipf" else uniform,
                dtype=dtype,
                index=index,
            )
    sizes = "8,192 segments x 50 ids, 100,000 rows of 256 {}, zipf, int64"
    yield _segment_workload("segment-C-f32", sizes.format("f32"), {"tensorflow": 8, "torch": 4}, **_C)
    yield _segment_workload("segment-C-bf16", sizes.format("bf16"), {}, **_C, dtype="bf16")
    sizes = "1,024 segments x 8 ids, 10,000 rows of 32 f32, zipf, int64"
    yield _segment_workload("segment-D-f32", sizes, {"tensorflow": 8, "torch": 6}, quick=True, **_D)
    sizes = "200,000 ids in 8,192 segments, 200,000 rows of 64 f32, uniform, int64"
    yield _segment_workload("segment-200k-f32", sizes, {"tensorflow": 6, "fbgemm": 2}, quick=True, **_TBE)
    yield _segment_workload(
        "segment-200k-sgd", f"the same, the table updated in place (plain: in two steps); {sizes}", {"fbgemm": 2},
        task=FUSED_SGD, traffic=_fused_traffic, quick=True, **_TBE,
    )  # fmt: skip
    for law, draw in (("uniform", uniform), ("zipf", zipf)):
        yield _segment_workload(
            f"segment-A-{law}-plan", f"segment-A-{law}-f32-int64 with a ready plan (plain: without)", {"plain": 1.3},
            task=WITH_PLAN, traffic=_planned_traffic, **_A, draw=draw,
        )  # fmt: skip


# Rows that were empty


def _fill(random: np.random.Generator, divisor: int, *, shuffled: bool) -> Inputs:
    full = 10_000_000 // divisor
    kept = np.sort(random.permutation(full)[: full * 4 // 5])
    return {
        "reverse_index_map": random.permutation(kept) if shuffled else kept,
        "grad_values": random.standard_normal(full, np.float32),
    }


def _fill_traffic(inputs: Inputs) -> int:
    positions, grad = inputs["reverse_index_map"], inputs["grad_values"]
    return positions.nbytes + grad.nbytes + len(positions) * grad.itemsize


def _fill_workload(name: str, order: str, factor: float, quick: bool) -> Workload:
    return Workload(
        name,
        "SparseFillEmptyRowsGrad",
        f"10,000,000 f32, 80 % kept, {order} map",
        partial(_fill, shuffled=order == "shuffled"),
        _fill_traffic,
        (Target("tensorflow", factor), Target("torch", factor)),
        quick=quick,
    )


# A window of a sparse array


def _slice(random: np.random.Generator, divisor: int, *, rank: int) -> Inputs:
    """One place in a hundred has an entry. The window takes half of the first and of the last dimension: a quarter of
    the entries, a few at a time."""
    entries = 4_000_000 // divisor
    flat = np.cumsum(random.integers(1, 200, size=entries))
    inner = (1000,) if rank == 2 else (25, 20, 40)
    shape = (int(flat[-1]) // int(np.prod(inner)) + 1, *inner)
    indices = np.stack(np.unravel_index(flat, shape), axis=1)
    start = np.zeros(rank, np.int64)
    size = np.array(shape)
    for d in (0, rank - 1):
        start[d], size[d] = shape[d] // 4, shape[d] // 2
    inside = ((indices >= start) & (indices < start + size)).all(axis=1)
    return {
        "backprop_val_grad": random.standard_normal(np.count_nonzero(inside), np.float32),
        "input_indices": indices,
        "input_start": start,
        "output_indices": indices[inside] - start,
        "size": size,  # not an operand: what a user of another library would have kept
    }


def _slice_traffic(inputs: Inputs) -> int:
    grad, entries, kept = (inputs[name] for name in ("backprop_val_grad", "input_indices", "output_indices"))
    return entries.nbytes + kept.nbytes + grad.nbytes + len(entries) * grad.itemsize


def _slice_workload(name: str, rank: int, quick: bool) -> Workload:
    return Workload(
        name,
        "SparseSliceGrad",
        f"4,000,000 f32 of rank {rank}, lexicographic, a quarter kept",
        partial(_slice, rank=rank),
        _slice_traffic,
        (Target("tensorflow", 2.5),),
        quick=quick,
    )


# Pieces of a ragged tensor


def _pieces(random: np.random.Generator, divisor: int, *, pieces: int, rows: int, missing: int = 0) -> Inputs:
    """`rows` 0: each piece has 0 to 39. Of `missing` pieces, one has no gradient."""
    pieces = max(2, pieces // divisor)
    lengths = np.full(pieces, rows) if rows else random.integers(40, size=pieces)
    splits = np.concatenate([[0], np.cumsum(lengths)])
    return {
        "values": random.standard_normal((int(splits[-1]), 64), np.float32),
        "row_splits": splits,
        "missing": random.permutation(pieces)[: pieces // missing if missing else 0],
    }


def _pieces_traffic(inputs: Inputs) -> int:
    lengths = np.diff(inputs["row_splits"])
    return 2 * inputs["values"].nbytes - int(lengths[inputs["missing"]].sum()) * inputs["values"][:1].nbytes


def _ragged_workload(name: str, sizes: str, quick: bool = False, **shape: Any) -> Workload:
    return Workload(
        name,
        "RaggedTensorToVariantGradient",
        sizes,
        partial(_pieces, **shape),
        _pieces_traffic,
        (Target("tensorflow", 3), Target("torch", 2)),
        quick=quick,
    )


# Gradients of a batch, brought by several threads


def _batches(random: np.random.Generator, divisor: int, *, pieces: int, kib: int) -> Inputs:
    """All pieces are the same array, so that what is measured is the meeting of the calls and the writing of the
    result; a batch's pieces have the ids pieces * batch + 0, 1, ... and its owner comes last."""
    return {
        "grad": random.standard_normal((max(1, kib // divisor), 256), np.float32),
        "pieces": np.int64(pieces),
        "batches": np.int64(max(2, (512 if kib < 1024 else 64) // divisor)),
    }


def _batch_workloads() -> Iterator[Workload]:
    for name, pieces, kib in (("unbatch-A", 16, 1), ("unbatch-B", 16, 64), ("unbatch-C", 4, 1024)):
        for threads in (2, 8, 32):
            targets = (Target("tensorflow", 3), Target("tensorflow", 10, door="c++")) if threads == 2 else ()
            yield Workload(
                f"{name}-{threads}-threads",
                "UnbatchGrad",
                f"batches of {pieces} pieces of {kib} KiB, brought by {threads} threads",
                partial(_batches, pieces=pieces, kib=kib),
                lambda inputs: 2 * inputs["grad"].nbytes * int(inputs["pieces"]),
                targets,
                tail_below="tensorflow" if threads == 32 else None,
                threads=threads,
                doors=("python", "c++"),
                quick=(name, threads) == ("unbatch-A", 2),
            )
    yield Workload(
        "unbatch-tiny-beside-64MB",
        "UnbatchGrad beside a large one",
        "a piece of 16 bytes, while batches of 64 MB are joined on the same resource",
        partial(_batches, pieces=1, kib=1),
        limits={"c++": 1e-3},
        doors=("c++",),
    )


# The cost of one call


def _tiny_segment(random: np.random.Generator, divisor: int) -> Inputs:
    inputs = _segments(random, 1, segments=2, ids=4, width=4, rows=10, index="int32")
    return {**inputs, "indices": np.int32([7, 3, 7, 0]), "segment_ids": np.int32([0, 0, 1, 1])}


def _tiny_fill(random: np.random.Generator, divisor: int) -> Inputs:
    return {"reverse_index_map": np.int64([0, 2, 3]), "grad_values": np.float32([1, 2, 3, 4])}


def _tiny_slice(random: np.random.Generator, divisor: int) -> Inputs:
    return {
        "backprop_val_grad": np.float32([5, 6]),
        "input_indices": np.int64([[0, 1], [1, 2], [2, 2], [2, 3]]),
        "input_start": np.int64([2, 0]),
        "output_indices": np.int64([[0, 2], [0, 3]]),
        "size": np.int64([1, 4]),
    }


def _tiny_pieces(random: np.random.Generator, divisor: int) -> Inputs:
    return {
        "values": np.ones((4, 4), np.float32),
        "row_splits": np.int64([0, 1, 3, 4]),
        "missing": np.empty(0, np.int64),
    }


def _tiny_workloads() -> Iterator[Workload]:
    for task, make in (
        ("SparseSegmentMeanGradV2", _tiny_segment),
        ("SparseFillEmptyRowsGrad", _tiny_fill),
        ("SparseSliceGrad", _tiny_slice),
        ("RaggedTensorToVariantGradient", _tiny_pieces),
    ):
        yield Workload(
            f"tiny-{task}",
            task,
            "4 to 16 elements: the cost of one call",
            make,
            targets=(Target("tensorflow", 10),),
            limits={"c++": 1e-6},
            doors=("python", "c++"),
            quick=True,
        )
    yield Workload(
        "tiny-UnbatchGrad",
        ONE_PIECE,
        "a batch of one piece: the cost of one call",
        partial(_batches, pieces=1, kib=1),
        targets=(Target("tensorflow", 10),),
        limits={"c++": 1e-6},
        doors=("python", "c++"),
        quick=True,
    )


WORKLOADS: tuple[Workload, ...] = (
    *_segment_workloads(),
    _fill_workload("fill-A", "sorted", 4, quick=True),
    _fill_workload("fill-B", "shuffled", 2, quick=False),
    _slice_workload("slice-A", 2, quick=True),
    _slice_workload("slice-B", 4, quick=False),
    _ragged_workload("ragged-A", "16,384 pieces of 0..39 rows x 64 f32", quick=True, pieces=16_384, rows=0),
    _ragged_workload("ragged-B", "100 pieces of 1 MiB", pieces=100, rows=4096),
    _ragged_workload("ragged-C", "ragged-A with a tenth missing", pieces=16_384, rows=0, missing=10),
    *_batch_workloads(),
    *_tiny_workloads(),
)

BY_NAME = {workload.name: workload for workload in WORKLOADS}
