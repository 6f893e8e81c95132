"""A table, ids and weights for the tests of lookups."""

from __future__ import annotations

import numpy as np
from conftest import numpy_dtype
from raggrad import Ragged

COMBINERS = ["sum", "mean", "sqrtn"]
ROWS = [[3, 1, 3], [], [0], [2, 5, 1, 4, 0], [5]]
IDS = Ragged.from_lists(ROWS)
SPLITS = np.cumsum([0, *map(len, ROWS)])
COUNT = int(SPLITS[-1])


def table(dtype: str = "float64") -> np.ndarray:
    return np.random.default_rng(1).normal(size=(6, 4)).astype(numpy_dtype(dtype))


def positive_weights(dtype: str = "float64") -> np.ndarray:
    return np.random.default_rng(2).uniform(0.5, 2, COUNT).astype(numpy_dtype(dtype))
