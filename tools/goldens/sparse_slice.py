"""Cases of SparseSlice."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .encoding import NUMBERS, QUANTIZED, SMALL, Case, Inputs, rng_for, tensor
from .faults import Fault, as_matrix, as_scalar, inject, put, replace, singles_and_pairs
from .values import PALETTES, log_uniform, pick, values

OPERATORS = ("SparseSlice",)
PLAIN = (*NUMBERS, "bool", "string")
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
ENDS = (INT64_MIN, -(2**40), -5, -1, 0, 1, 2, 7, 2**31, 2**40, INT64_MAX)


def survives(shape: np.ndarray, start: np.ndarray, size: np.ndarray) -> bool:
    """Whether TensorFlow computes shape - size and start + size without wrapping where it matters."""
    dims = zip(*(a.tolist() for a in (shape, start, size)), strict=True)
    return all(d - n <= INT64_MAX and (s >= d or s + n <= INT64_MAX) for d, s, n in dims)


FAULTS: dict[str, Fault] = {
    "size-negative": put("size", 0.0, -1),
    "shape-negative": put("shape", 0.6, -2),
    "shape-overflow": replace("shape", lambda array: np.full(array.shape, 2**40)),
    "size-long": replace("size", lambda array: np.append(array, 1)),
    "start-short": replace("start", lambda array: array[:-1]),
    "shape-short": replace("shape", lambda array: array[:-1]),
    "values-length": replace("values", lambda array: array[:-1]),
    "size-scalar": as_scalar("size"),
    "start-matrix": as_matrix("start"),
    "shape-matrix": as_matrix("shape"),
    "values-matrix": as_matrix("values"),
    "indices-vector": replace("indices", lambda array: array.reshape(-1)),
}


def make_inputs(
    rng: np.random.Generator, dtype: str, indices: object, shape: object, start: object, size: object,
    palette: str = "plain",
) -> Inputs:
    entries = tensor("int64", indices)
    return {
        "indices": entries,
        "values": values(rng, dtype, entries.array.shape[:1], palette),
        "shape": tensor("int64", shape),
        "start": tensor("int64", start),
        "size": tensor("int64", size),
    }


def _draw(rng: np.random.Generator, dtype: str, rank: int, count: int, extent: int = 9, palette: str = "plain",
          order: str = "sorted") -> Inputs:
    indices = rng.integers(0, extent, (count, rank))
    if order == "sorted" and rank:
        indices = indices[np.lexsort(indices.T[::-1])]
    start = rng.integers(0, extent // 2 + 1, rank)
    return make_inputs(rng, dtype, indices, [extent] * rank, start, rng.integers(0, extent + 1, rank), palette)


def directed(op: str) -> Iterator[Case]:
    for dtype in PLAIN:
        for rank in (1, 2, 5):
            label = f"rank{rank}-{dtype}"
            yield Case(op, label, _draw(rng_for(op, label), dtype, rank, 8 + 2 * rank))
    for label, (rank, count, extent, order) in {
        "no-columns": (0, 5, 9, "sorted"), "no-entries": (2, 0, 9, "sorted"), "nothing": (0, 0, 9, "sorted"),
        "shuffled": (3, 40, 4, "shuffled"), "repeated": (2, 40, 2, "shuffled"), "larger": (2, 100, 20, "sorted"),
    }.items():
        yield Case(op, label, _draw(rng_for(op, label), "float32", rank, count, extent, order=order))
    yield from _boxes(op)
    yield from _many_columns(op)
    yield from _errors(op)
    yield from _wrong_types(op)


def _boxes(op: str) -> Iterator[Case]:
    rng = rng_for(op, "boxes")
    rows = np.array([[-9], [0], [1], [2], [3], [4], [7], [2**62]])
    boxes = {
        "all": (5, 0, 5, ""), "first": (5, 0, 1, ""), "none": (5, 2, 0, ""), "clipped": (5, 3, 9, ""),
        "behind": (5, 7, 3, "entries beyond the shape are kept"), "at-the-end": (5, 5, 3, ""),
        "start-negative": (5, -3, 5, "quirk: a negative start"),
        "start-far-negative": (5, -9, 4, "quirk: a negative start"),
        "size-negative-behind": (5, 9, -3, "quirk: a negative size, refused only before the end"),
        "size-highest": (5, 0, INT64_MAX, ""), "size-highest-behind": (5, 9, INT64_MAX, "quirk: the sum wraps"),
        "start-highest": (5, INT64_MAX, 3, "quirk: the sum wraps"),
        "start-lowest": (5, INT64_MIN, 7, ""), "no-shape": (0, -1, 2, "quirk: larger than the input"),
    }
    for label, (shape, start, size, note) in boxes.items():
        yield Case(op, f"box-{label}", make_inputs(rng, "float32", rows, [shape], [start], [size]), note=note)


def _many_columns(op: str) -> Iterator[Case]:
    rng = rng_for(op, "columns")
    for columns in (9, 254):
        indices = rng.integers(0, 9, (4, columns)) // 8
        indices[1] = 0
        ones = np.ones(columns)
        yield Case(op, f"columns-{columns}", make_inputs(rng, "float32", indices, ones, 0 * ones, 5 * ones))
    for label, first in {"255": 1, "255-large": 100_000, "255-negative": -1}.items():
        shape = np.ones(255)
        shape[0] = first
        none = np.zeros((0, 255))
        yield Case(op, f"err-columns-{label}", make_inputs(rng, "half", none, shape, 0 * shape, shape))


def _errors(op: str) -> Iterator[Case]:
    for label, chosen in singles_and_pairs(FAULTS):
        inputs = _draw(rng_for(op, label), "float32", 2, 6)
        for fault in chosen:
            fault(inputs)
        yield Case(op, f"err-{label}", inputs)
    rng = rng_for(op, "errors")
    boxes = {
        "shape-negative-beside-large": ([2**40, -1], [0, 0], [1, 1]),
        "shape-negative-behind-overflow": ([2**40, 2**40, -1], [0, 0, 0], [1, 1, 1]),
        "shape-overflow-by-a-bit": ([2**40, 2**23], [0, 0], [1, 1]),
        "shape-overflow-then-zero": ([2**40, 2**40, 0], [0, 0, 0], [1, 1, 1]),
        "size-negative-second": ([5, 5], [1, 2], [2, -4]),
        "size-negative-start-negative": ([5], [-5], [-2]),
        "output-overflow": ([2**40, 2**22], [-(2**40), 0], [2**42, 1]),
        "output-overflow-by-a-bit": ([4, 2], [INT64_MIN, 0], [INT64_MAX, 5]),
        "output-overflow-second": ([2**40, 2**22], [0, -(2**22)], [2**40, 2**62]),
        "output-overflow-small-input": ([4, 5], [INT64_MIN, 0], [INT64_MAX, 5]),
    }
    for label, (shape, start, size) in boxes.items():
        yield Case(op, f"err-{label}", make_inputs(rng, "float32", np.zeros((1, len(shape))), shape, start, size))


def _wrong_types(op: str) -> Iterator[Case]:
    rng = rng_for(op, "types")
    for name in ("indices", "shape", "start", "size"):
        inputs = make_inputs(rng, "float32", [[1]], [2], [0], [2])
        inputs[name] = tensor("int32", inputs[name].array)
        yield Case(op, f"err-{name}-int32", inputs, note="dtype")
    for dtype in QUANTIZED + SMALL:
        yield Case(op, f"err-values-{dtype}", make_inputs(rng, dtype, [[1]], [2], [0], [2]), note="dtype")


def random_case(rng: np.random.Generator, op: str, max_elements: int) -> Case:
    rank = int(rng.integers(0, 6))
    count = log_uniform(rng, max_elements // max(3 * rank, 1))
    inputs = _draw(
        rng, pick(rng, PLAIN), rank, count, int(rng.integers(1, 60)), pick(rng, PALETTES),
        pick(rng, ("sorted", "shuffled")),
    )
    if rng.random() < 0.5:  # a box that takes most of the array
        inputs["size"].array[...] = inputs["shape"].array
    if rank and rng.random() < 0.3:
        _hostile_box(rng, inputs)
    elif rank and count and rng.random() < 0.2:
        inject(rng, inputs, FAULTS)
    return Case(op, "random", inputs)


def _hostile_box(rng: np.random.Generator, inputs: Inputs) -> None:
    """Numbers at the ends of the range, in one column, where TensorFlow has an answer to them."""
    column = rng.integers(inputs["start"].array.size)
    while True:
        box = {name: inputs[name].array.copy() for name in ("shape", "start", "size")}
        for array in box.values():
            if rng.random() < 0.6:
                array[column] = rng.choice(ENDS)
        if survives(**box):
            inputs.update({name: tensor("int64", array) for name, array in box.items()})
            return
