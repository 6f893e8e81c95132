"""Calls of raggrad.jax that never wait, in XLA's command buffers: their scratch suffices, and replays read new data."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

IDS = [0, 1, 513, 4_097, 540_672, 540_673, 1_200_000]  # from 540,673 on the sort has larger tiles
# A call that has too little scratch fails. Segments, rows, columns, and whether there are weights.
GRADIENTS = [(1, 1, 1, False), (3_000, 2**31 - 1, 70, True), (3_000, 1, 1, True), (1, 2**31 - 1, 70, False)]


def random_ids(jax: Any, n: int, most: int) -> Any:
    return jax.device_put(np.random.default_rng(n).integers(0, most, n).astype(np.int32), jax.devices("cuda")[0])


@pytest.mark.parametrize("accumulation", ["sequential", "fast", "reproducible"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float64"])
@pytest.mark.parametrize("n", IDS)
def test_scratch_of_gradients_suffices(jax: Any, rj: Any, n: int, dtype: str, accumulation: str) -> None:
    with jax.enable_x64(True):
        for segments, rows, width, weighted in GRADIENTS:
            grad = jax.numpy.ones((segments, width), dtype)
            ids, segment_ids = random_ids(jax, n, rows), random_ids(jax, n, segments)
            weights = jax.numpy.ones(n, dtype) if weighted else None
            options = {"weights": weights, "size": min(n, 10), "accumulation": accumulation}
            found = jax.jit(
                lambda *arrays, rows=rows, options=options: rj.sparse_segment_grad("mean", *arrays, rows, **options)
            )(grad, ids, segment_ids)
            assert int(found.count) == len(np.unique(np.asarray(ids)))


@pytest.mark.parametrize("dtype", ["float64", "int32"])
@pytest.mark.parametrize("n", IDS)
def test_scratch_of_segments_suffices(jax: Any, rj: Any, n: int, dtype: str) -> None:
    with jax.enable_x64(True):
        for segments, is_sorted in ((1, False), (100_000, False), (100_000, True)):
            ids = random_ids(jax, n, segments)
            ids = jax.numpy.sort(ids) if is_sorted else ids
            rows = jax.numpy.ones((n, 3), dtype)
            for mode in (None, "reproducible"):
                sums = rj.segment_sum(rows, ids, segments, is_sorted, accumulation=mode)
                assert int(sums.sum()) == 3 * n


@pytest.mark.parametrize("dtype", ["bool", "complex128"])
@pytest.mark.parametrize("n", IDS)
def test_scratch_of_entries_suffices(jax: Any, rj: Any, n: int, dtype: str) -> None:
    with jax.enable_x64(True):
        for rows, dimensions in ((1, 1), (200_000, 3)):
            indices = jax.numpy.stack([random_ids(jax, n, rows)] * dimensions, axis=1)
            values, shape = jax.numpy.ones(n, dtype), (rows,) * dimensions
            entries, empty = rj.fill_empty_rows(indices, values, shape, True)
            assert int(entries.count) == n + int(empty.sum())
            half = [rows // 2] * dimensions
            cut = rj.sparse_slice(indices, values, shape, half, shape, max_entries=n)
            assert int(cut.count) == int((indices[:, 0] >= rows // 2).sum())


REPLAYS = """
import jax, jax.numpy as jnp, numpy as np, raggrad.jax as rj

def calls(data, ids, values):
    sums = rj.segment_sum(data * 2, ids, 300)
    rows = rj.sparse_segment_grad("mean", sums, ids, ids[::-1] % 300, 300, weights=values)
    places = jnp.stack([ids, ids], axis=1)
    filled, _ = rj.fill_empty_rows(places, values, (400, 300), 0.5)
    cut = rj.sparse_slice(places, values, (300, 300), (9, 9), (99, 99))
    return sums, rows, filled, cut

def batch(seed):
    random = np.random.default_rng(seed)
    arrays = random.standard_normal((5000, 48)), random.integers(0, 300, 5000), random.standard_normal(5000)
    return [jnp.asarray(array, kind) for array, kind in zip(arrays, ("float32", "int32", "float32"))]

def bits(results):
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(results)]

expected = [bits(calls(*batch(seed))) for seed in range(3)]  # call by call

def step(kept, new):
    used = [old * 0 + array for old, array in zip(kept, new)]
    return used, calls(*used)

step, kept = jax.jit(step, donate_argnums=0), batch(9)
for turn in range(12):
    kept, results = step(kept, batch(turn % 3))
    assert bits(results) == expected[turn % 3], turn
    jnp.full(1 << 22, float(turn)).block_until_ready()  # would take memory that scratch had left
"""


def test_replays_read_new_data(jax: Any, rj: Any, tmp_path: Path) -> None:
    flags = os.environ | {"XLA_FLAGS": f"--xla_gpu_graph_min_graph_size=1 --xla_dump_to={tmp_path}"}
    subprocess.run([sys.executable, "-c", REPLAYS], env=flags, check=True)

    # One line for each piece that XLA runs; those in a command buffer are indented.
    (written,) = tmp_path.glob("*jit_step.thunk_sequence_after_thunk_passes.txt")
    calls = [line for line in written.read_text().splitlines() if line.endswith(" kCustomCall")]
    assert len(calls) == 4
    assert all(line.startswith(" ") for line in calls)
