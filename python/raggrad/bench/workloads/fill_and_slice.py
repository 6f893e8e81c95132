"""Gradients of SparseFillEmptyRows and SparseSlice."""

from __future__ import annotations

from functools import partial

import numpy as np

from ..workload import Inputs, Target, Workload


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


def fill(name: str, order: str, factor: float, quick: bool) -> Workload:
    return Workload(
        name,
        "SparseFillEmptyRowsGrad",
        f"10,000,000 f32, 80 % kept, {order} map",
        partial(_fill, shuffled=order == "shuffled"),
        _fill_traffic,
        (Target("tensorflow", factor), Target("torch", factor)),
        quick=quick,
    )


def _slice(random: np.random.Generator, divisor: int, *, rank: int) -> Inputs:
    """One place in a hundred has an entry. The window takes half of the first and half of the last dimension, which is
    a quarter of the entries, in short runs."""
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
        "size": size,  # not an operand; users of other libraries would know it
    }


def _slice_traffic(inputs: Inputs) -> int:
    grad, entries, kept = (inputs[name] for name in ("backprop_val_grad", "input_indices", "output_indices"))
    return entries.nbytes + kept.nbytes + grad.nbytes + len(entries) * grad.itemsize


def window(name: str, rank: int, quick: bool) -> Workload:
    return Workload(
        name,
        "SparseSliceGrad",
        f"4,000,000 f32 of rank {rank}, lexicographic, a quarter kept",
        partial(_slice, rank=rank),
        _slice_traffic,
        (Target("tensorflow", 2.5),),
        quick=quick,
    )
