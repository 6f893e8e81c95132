"""Cases of SparseFillEmptyRowsGrad and RaggedFillEmptyRowsGrad."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .encoding import (
    COMPLEX,
    FLOATS,
    INTEGERS,
    NUMBERS,
    QUANTIZED,
    SMALL,
    Case,
    Inputs,
    rng_for,
    tensor,
)
from .faults import Fault, as_matrix, as_scalar, inject, put, singles_and_pairs
from .values import PALETTES, flush_note, log_uniform, pick, values

OPERATORS = ("SparseFillEmptyRowsGrad", "RaggedFillEmptyRowsGrad")

FAULTS: dict[str, Fault] = {
    "map-negative": put("reverse_index_map", 0.7, -1),
    "map-equal": put("reverse_index_map", 0.5, lambda inputs: inputs["grad_values"].array.size),
    "map-far-beyond": put("reverse_index_map", 0.2, 2**62),
    "grad-matrix": as_matrix("grad_values"),
    "grad-scalar": as_scalar("grad_values"),
    "map-matrix": as_matrix("reverse_index_map"),
    "map-scalar": as_scalar("reverse_index_map"),
}


def _case(op: str, label: str, dtype: str, index_map: np.ndarray, size: int,
          palette: str = "plain", note: str = "") -> Case:
    grad = values(rng_for(op, label), dtype, (size,), palette)
    inputs = {"reverse_index_map": tensor("int64", index_map), "grad_values": grad}
    return Case(op, label, inputs, note=note or flush_note(grad))


def directed(op: str) -> Iterator[Case]:
    for dtype in NUMBERS:
        yield from _maps(op, dtype)
    for dtype in FLOATS + COMPLEX:
        yield from _numbers(op, dtype)
    for dtype in INTEGERS:
        yield _case(op, f"wrap-{dtype}", dtype, np.array([3, 1]), 40, "bits", "integers wrap")
    yield from _errors(op)
    yield from _wrong_types(op)


def _maps(op: str, dtype: str) -> Iterator[Case]:
    rng = rng_for(op, "maps", dtype)
    nothing = np.zeros(0, np.int64)
    maps = {
        "empty": (nothing, 0),
        "nothing-mapped": (nothing, 7),
        "one": (np.array([0]), 1),
        "one-of-two": (np.array([1]), 2),
        "all-mapped": (np.arange(9), 9),
        "sorted": (np.sort(rng.choice(23, 11, replace=False)), 23),
        "permuted": (rng.permutation(31)[:17], 31),
        "repeated": (rng.integers(0, 5, 19), 13),
        "larger": (rng.integers(0, 301, 150), 301),
    }
    for name, (index_map, size) in maps.items():
        yield _case(op, f"{name}-{dtype}", dtype, index_map, size)


def _numbers(op: str, dtype: str) -> Iterator[Case]:
    rng = rng_for(op, "numbers", dtype)
    for palette in PALETTES:
        index_map = rng.integers(0, 60, 20)
        yield _case(op, f"values-{palette}-{dtype}", dtype, index_map, 60, palette)
    few = _case(op, f"values-few-special-{dtype}", dtype, np.array([2]), 4, "special")
    yield few
    zeros = _case(op, f"negative-zeros-{dtype}", dtype, np.array([1]), 5,
                  note="a sum of -0 is +0, a copied -0 stays")
    zeros.inputs["grad_values"].array[...] = -np.zeros(1, zeros.inputs["grad_values"].array.dtype)
    yield zeros
    steps = _case(op, f"rounding-at-every-step-{dtype}", dtype, np.zeros(0, np.int64), 600,
                  note="the running sum is rounded to the type at every step")
    steps.inputs["grad_values"].array[...] = 1.0009765625
    yield steps


def _errors(op: str) -> Iterator[Case]:
    rng = rng_for(op, "errors")
    for label, chosen in singles_and_pairs(FAULTS):
        case = _case(op, f"err-{label}", "float32", rng.integers(0, 12, 10), 12)
        for fault in chosen:
            fault(case.inputs)
        yield case
    yield _case(op, "err-map-into-nothing", "float32", np.zeros(1, np.int64), 0)
    yield _case(op, "err-map-lowest", "float32", np.array([0, -(2**63)]), 3)
    yield _case(op, "err-map-two-to-32", "float32", np.array([0, 2**32]), 3)


def _wrong_types(op: str) -> Iterator[Case]:
    case = _case(op, "err-map-int32", "float32", np.array([1]), 2, note="dtype")
    case.inputs["reverse_index_map"] = tensor("int32", [1])
    yield case
    for dtype in ("bool", "string") + QUANTIZED + SMALL:
        yield _case(op, f"err-grad-{dtype}", dtype, np.array([1]), 2, note="dtype")


def random_case(rng: np.random.Generator, op: str, max_elements: int) -> Case:
    size = log_uniform(rng, max_elements)
    count = log_uniform(rng, max_elements) if size else 0
    grad = values(rng, pick(rng, NUMBERS), (size,), pick(rng, PALETTES))
    named = rng.integers(0, max(log_uniform(rng, size), 1), count)
    inputs: Inputs = {
        "reverse_index_map": tensor("int64", rng.permutation(max(size, 1))[named]),
        "grad_values": grad,
    }
    if count and rng.random() < 0.15:
        inject(rng, inputs, FAULTS)
    return Case(op, "random", inputs, note=flush_note(grad))
