"""Pooled embeddings: gradients with and without a plan, and fused with an update."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from ..workload import DTYPES, FUSED_SGD, WITH_PLAN, Inputs, Target, Workload, uniform, zipf


def make(
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
    """Segments of equal length, or of random lengths if not `even`."""
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
    """Without the ids, which were read when the plan was made."""
    return _segment_traffic(inputs) - inputs["indices"].nbytes - inputs["segment_ids"].nbytes


def _fused_traffic(inputs: Inputs) -> int:
    """Rows of the table are read and written; row numbers are not returned."""
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
    return Workload(name, task, sizes, partial(make, **shape), traffic, wanted, quick=quick)


_A = {"segments": 65_536, "ids": 65_536 * 20, "width": 64, "rows": 1_000_000}
_C = {"segments": 8_192, "ids": 8_192 * 50, "width": 256, "rows": 100_000, "draw": zipf}
_D = {"segments": 1_024, "ids": 1_024 * 8, "width": 32, "rows": 10_000, "draw": zipf}
_TBE = {"segments": 8_192, "ids": 200_000, "width": 64, "rows": 200_000, "even": False}


def workloads() -> Iterator[Workload]:
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
