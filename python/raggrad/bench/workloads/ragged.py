"""Gradients of the pieces of a ragged tensor."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ..workload import PURE_COPY, Inputs, Workload


def _pieces(random: np.random.Generator, divisor: int, *, pieces: int, rows: int, missing: int = 0) -> Inputs:
    """Pieces of `rows` rows each, or of 0 to 39 if `rows` is 0. One of every `missing` pieces has no gradient."""
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


def workload(name: str, sizes: str, quick: bool = False, **shape: Any) -> Workload:
    return Workload(
        name,
        "RaggedTensorToVariantGradient",
        sizes,
        partial(_pieces, **shape),
        _pieces_traffic,
        copy_shares={"python": PURE_COPY},
        quick=quick,
    )
