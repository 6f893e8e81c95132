"""Faults: small edits that make good inputs bad. Pairs of them show the order of checks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations

import numpy as np

from .encoding import Inputs, Tensor

Fault = Callable[[Inputs], None]


def put(name: str, position: float, value: Callable[[Inputs], int] | int) -> Fault:
    """Writes a number into a vector, at a position given as a fraction of its length."""

    def apply(inputs: Inputs) -> None:
        array = inputs[name].array.copy()
        where = min(int(position * len(array)), len(array) - 1)
        array[where] = value(inputs) if callable(value) else value
        inputs[name] = Tensor(inputs[name].dtype, array)

    return apply


def replace(name: str, make: Callable[[np.ndarray], np.ndarray]) -> Fault:
    """Replaces an input by one made from it, of the same type."""

    def apply(inputs: Inputs) -> None:
        old = inputs[name]
        inputs[name] = Tensor(old.dtype, np.array(make(old.array), old.array.dtype))

    return apply


def as_scalar(name: str) -> Fault:
    def first(array: np.ndarray) -> np.ndarray:
        return array.reshape(-1)[0] if array.size else np.zeros((), array.dtype)

    return replace(name, first)


def as_matrix(name: str) -> Fault:
    return replace(name, lambda array: array.reshape(array.size, 1))


def as_cube(name: str) -> Fault:
    return replace(name, lambda array: array.reshape(array.size, 1, 1))


def singles_and_pairs(faults: dict[str, Fault]) -> Iterator[tuple[str, list[Fault]]]:
    """Every fault alone and every two together, applied in the order of the table.

    Tables list edits of numbers before edits of ranks, so that both edits of a pair are possible.
    """
    for count in (1, 2):
        for names in combinations(faults, count):
            yield "-and-".join(names), [faults[name] for name in names]


def inject(rng: np.random.Generator, inputs: Inputs, faults: dict[str, Fault]) -> None:
    """Applies one or two random faults."""
    order = list(faults)
    chosen = rng.choice(len(order), size=rng.integers(1, 3), replace=False)
    for place in sorted(chosen):
        faults[order[place]](inputs)
