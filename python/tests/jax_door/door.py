"""JAX, raggrad.jax, and data for both. Tests that import it are skipped where there is no raggrad.jax."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any, NamedTuple

import numpy as np
import pytest

os.environ.setdefault("JAX_PLATFORMS", "cpu")  # python/tests/gpu tests the others

jax = pytest.importorskip("jax", reason="JAX is not installed")
rj = pytest.importorskip("raggrad.jax", reason="raggrad was built without raggrad.jax", exc_type=ImportError)
jnp = jax.numpy

ROWS, WIDTH = 50, 6
FLOATS = ["float32", "bfloat16", "float16"]
MODES = ["sum", "mean", "sqrtn"]
FUNCTIONS = {"sum": rj.segment_sum, "mean": rj.segment_mean, "sqrtn": rj.segment_sqrtn}
XlaError = (jax.errors.JaxRuntimeError, ValueError)  # JAX raises either, depending on how it dispatched the call


class Batch(NamedTuple):
    ids: Any
    segment_ids: Any
    num_segments: int


def random_batch(n: int = 40, num_segments: int = 12, rows: int = ROWS, seed: int = 0, dtype: Any = np.int32) -> Batch:
    """Ids with segments in any order; some segments have none, and every fifth segment id is out of range."""
    random = np.random.default_rng(seed)
    segment_ids = random.integers(0, num_segments - 2, n)
    segment_ids[::10] = -1
    segment_ids[5::10] = num_segments
    return Batch(
        jnp.asarray(random.integers(0, rows, n).astype(dtype)), jnp.asarray(segment_ids.astype(dtype)), num_segments
    )


def random_rows(n: int = ROWS, width: int = WIDTH, dtype: Any = "float32", seed: int = 1) -> Any:
    return jnp.asarray(np.random.default_rng(seed).standard_normal((n, width)), dtype)


def segment(mode: str, data: Any, segment_ids: Any, num_segments: int) -> Any:
    """With JAX's own functions."""
    sums = jax.ops.segment_sum(data, segment_ids, num_segments)
    counts = jax.ops.segment_sum(jnp.ones(len(segment_ids), data.dtype), segment_ids, num_segments)
    counts = jnp.maximum(counts, 1).reshape(-1, *[1] * (data.ndim - 1))
    return sums / {"sum": jnp.ones_like(counts), "mean": counts, "sqrtn": jnp.sqrt(counts)}[mode]


def bag(mode: str, table: Any, batch: Batch, weights: Any = None) -> Any:
    rows = table[batch.ids]
    return segment(mode, rows if weights is None else rows * weights[:, None], *batch[1:])


def assert_near(ours: Any, theirs: Any) -> None:
    """Sums of a few numbers around 1, in another order, and rounded more often by JAX."""
    assert ours.shape == theirs.shape and ours.dtype == theirs.dtype
    eps = float(jnp.finfo(ours.dtype).eps)
    np.testing.assert_allclose(
        np.asarray(ours, np.float64), np.asarray(theirs, np.float64), rtol=32 * eps, atol=32 * eps
    )


def same_bits(a: Any, b: Any) -> bool:
    return np.asarray(a).tobytes() == np.asarray(b).tobytes()


def run(code: str, **environment: str) -> str:
    """The output of a new process. It fails the test if the process does."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        text=True,
        capture_output=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
