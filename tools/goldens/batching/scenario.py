"""A scenario: calls that begin one after the other, each in a thread of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..encoding import COMPLEX, FLOATS, INTEGERS, QUANTIZED, SMALL, Tensor, encode, rng_for, tensor
from ..values import values

TYPES = (*FLOATS, *INTEGERS, "bool", *COMPLEX, "string")
OTHER_TYPES = (*QUANTIZED, *SMALL)
LONG = 10_000_000  # microseconds; never over while a scenario is played
SHORT = 300_000

Rows = Sequence[tuple[int, int]]  # of a batch_index: the key of a call and its number of rows


def index(rows: Rows) -> Tensor:
    """The batch_index that Batch gives its last call."""
    ends = np.cumsum([size for _, size in rows], dtype=np.int64)
    lines = [(key, end - size, end) for (key, size), end in zip(rows, ends, strict=True)]
    return tensor("int64", np.array(lines, np.int64).reshape(-1, 3))


def names(name: str, container: str = "") -> dict[str, Any]:
    return {"container": container, "shared_name": name}


class Scenario:
    """Collects calls. `rng` depends on the name alone. A call's number is its place among the calls."""

    def __init__(self, op: str, name: str, note: str = "", *tags: str) -> None:
        self.rng = rng_for(op, name)
        self.op, self.name, self.note, self.tags = op, name, note, tags
        self.steps: list[dict[str, Any]] = []
        self._calls = 0

    def values(self, *shape: int, dtype: str = "float32") -> Tensor:
        return values(self.rng, dtype, shape, "plain" if dtype in ("string", "bool") else "bits")

    def keys(self, count: int) -> list[int]:
        """Different random keys of 64 bits."""
        return [int(key) for key in np.unique(self.rng.integers(-(2**63), 2**63, count + 2))[:count]]

    def call(self, inputs: dict[str, Any], attrs: dict[str, Any]) -> int:
        encoded = {name: encode(value) for name, value in inputs.items()}
        self.steps.append({"call": self.op, "id_of_call": self._calls, "inputs": encoded, "attrs": attrs})
        self._calls += 1
        return self._calls - 1

    def wait_for(self, call: int) -> None:
        self.steps.append({"call": "Await", "target": call})

    def sleep(self, micros: int) -> None:
        self.steps.append({"call": "Sleep", "micros": micros})

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "note": self.note, "tags": list(self.tags), "steps": self.steps}
