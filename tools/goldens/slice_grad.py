"""Cases of SparseSliceGrad."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .encoding import COMPLEX, FLOATS, NUMBERS, Case, Inputs, Tensor, rng_for, tensor
from .faults import Fault, as_cube, as_matrix, as_scalar, inject, replace, singles_and_pairs
from .values import PALETTES, log_uniform, pick, values

OPERATORS = ("SparseSliceGrad",)


def _append(array: np.ndarray) -> np.ndarray:
    return np.concatenate([array, array[:1]])


def _more_outputs_than_inputs(inputs: Inputs) -> None:
    outputs = inputs["output_indices"].array
    extra = inputs["input_indices"].array.shape[0] + 1 - outputs.shape[0]
    grown = np.concatenate([outputs, np.zeros((max(extra, 1), outputs.shape[1]), np.int64)])
    inputs["output_indices"] = tensor("int64", grown)


FAULTS: dict[str, Fault] = {
    "unmatched": replace("output_indices", lambda array: array[::-1] + 1),
    "start-long": replace("input_start", _append),
    "start-matrix": as_matrix("input_start"),
    "start-scalar": as_scalar("input_start"),
    "backprop-length": replace("backprop_val_grad", _append),
    "too-many-outputs": _more_outputs_than_inputs,
    "columns": replace("output_indices", lambda array: array[:, :-1]),
    "backprop-matrix": as_matrix("backprop_val_grad"),
    "backprop-scalar": as_scalar("backprop_val_grad"),
    "output-vector": replace("output_indices", lambda array: array.reshape(-1)),
    "output-cube": as_cube("output_indices"),
    "input-vector": replace("input_indices", lambda array: array.reshape(-1)),
    "input-scalar": as_scalar("input_indices"),
}


def _inputs(backprop: Tensor, entries: object, start: object, outputs: object) -> Inputs:
    return {
        "backprop_val_grad": backprop,
        "input_indices": tensor("int64", entries),
        "input_start": tensor("int64", start),
        "output_indices": tensor("int64", outputs),
    }


def _slice(
    rng: np.random.Generator,
    dtype: str,
    rank: int,
    count: int,
    *,
    order: str = "sorted",
    extent: int = 12,
    start: np.ndarray | None = None,
    palette: str = "plain",
) -> Inputs:
    """Random entries, and those of them that lie in a random box, moved to its corner."""
    entries = rng.integers(0, extent, (count, rank))
    if order == "sorted":
        entries = entries[np.lexsort(entries.T[::-1])] if rank else entries
    if start is None:
        start = rng.integers(0, max(extent // 3, 1), rank)
    lower, upper = np.sort(rng.integers(0, extent + 1, (2, rank)), axis=0)
    kept = entries[np.all((entries >= lower) & (entries < upper), axis=1)]
    with np.errstate(over="ignore"):
        outputs = kept - start
    return _inputs(values(rng, dtype, (len(kept),), palette), entries, start, outputs)


def directed(op: str) -> Iterator[Case]:
    for dtype in NUMBERS:
        yield from _sizes(op, dtype)
    for dtype in FLOATS + COMPLEX:
        for palette in PALETTES[1:]:
            rng = rng_for(op, palette, dtype)
            yield Case(op, f"values-{palette}-{dtype}",
                       _slice(rng, dtype, 1, 60, palette=palette), note="bits are copied")
    yield from _odd_matches(op)
    yield from _errors(op)
    yield from _wrong_types(op)


def _sizes(op: str, dtype: str) -> Iterator[Case]:
    rng = rng_for(op, "sizes", dtype)
    for rank in (1, 2, 3, 5):
        for order in ("sorted", "shuffled"):
            inputs = _slice(rng, dtype, rank, 11 + 4 * rank, order=order, extent=8 // rank + 1)
            yield Case(op, f"rank{rank}-{order}-{dtype}", inputs)
    nothing = np.zeros((0, 2))
    some = rng.integers(0, 9, (5, 2))
    none = values(rng, dtype, (0,))
    yield Case(op, f"empty-{dtype}", _inputs(none, nothing, [0, 0], nothing))
    yield Case(op, f"nothing-kept-{dtype}", _inputs(none, some, [1, 2], nothing))
    yield Case(op, f"all-kept-{dtype}", _inputs(values(rng, dtype, (5,)), some, [0, 0], some))
    yield Case(op, f"one-{dtype}", _inputs(values(rng, dtype, (1,)), [[4]], [1], [[3]]))


def _odd_matches(op: str) -> Iterator[Case]:
    def grad(count: int) -> Tensor:
        return values(rng_for(op, "odd", str(count)), "float32", (count,))

    cases = {
        "no-columns": (grad(2), np.zeros((5, 0)), [], np.zeros((2, 0)), "every row matches"),
        "no-columns-empty": (grad(0), np.zeros((0, 0)), [], np.zeros((0, 0)), ""),
        "repeated-input": (grad(1), [[2], [2], [2]], [0], [[2]], "the first match wins"),
        "repeated-both": (grad(2), [[2], [2], [2]], [0], [[2], [2]], ""),
        "negative-start": (grad(2), [[1], [2], [3]], [-4], [[5], [7]], ""),
        "negative-indices": (grad(2), [[-9], [0], [-7]], [3], [[-12], [-10]], ""),
        "start-wraps": (grad(1), [[-(2**63) + 1]], [2**63 - 1], [[2]], "quirk: the sum wraps"),
    }
    for label, (backprop, entries, start, outputs, note) in cases.items():
        yield Case(op, label, _inputs(backprop, entries, start, outputs), note=note)
    rng = rng_for(op, "larger")
    for order in ("sorted", "shuffled"):
        yield Case(op, f"larger-{order}", _slice(rng, "float32", 2, 700, order=order, extent=90))


def _errors(op: str) -> Iterator[Case]:
    entries = np.arange(12).reshape(6, 2)
    start = np.array([1, 0])
    for label, chosen in singles_and_pairs(FAULTS):
        backprop = values(rng_for(op, label), "float32", (3,))
        inputs = _inputs(backprop, entries, start, entries[1:4] - start)
        for fault in chosen:
            fault(inputs)
        yield Case(op, f"err-{label}", inputs)
    two = values(rng_for(op, "err"), "float32", (2,))
    yield Case(op, "err-order-differs", _inputs(two, [[1], [2], [3]], [0], [[3], [1]]))
    yield Case(op, "err-one-unmatched", _inputs(two, [[1], [2], [3]], [0], [[2], [4]]))
    yield Case(op, "err-start-empty", _inputs(two, [[1], [2]], [], [[1], [2]]))


def _wrong_types(op: str) -> Iterator[Case]:
    for name in ("input_indices", "input_start", "output_indices"):
        inputs = _inputs(values(rng_for(op, name), "float32", (1,)), [[1]], [0], [[1]])
        inputs[name] = tensor("int32", inputs[name].array)
        yield Case(op, f"err-{name}-int32", inputs, note="dtype")
    # Without qint8, quint8 and qint32: TensorFlow lacks these kernels, raggrad has them.
    for dtype in ("bool", "string", "qint16", "quint16", "float8_e4m3fn", "int4"):
        backprop = values(rng_for(op, dtype), dtype, (1,))
        inputs = _inputs(backprop, [[1]], [0], [[1]])
        yield Case(op, f"err-backprop-{dtype}", inputs, note="dtype")


def random_case(rng: np.random.Generator, op: str, max_elements: int) -> Case:
    rank = int(rng.integers(0, 5))
    count = log_uniform(rng, max_elements // max(rank, 1))
    start = rng.integers(-5, 6, rank)
    if rng.random() < 0.2:
        start = rng.integers(-(2**63), 2**63 - 1, rank)  # output + start wraps around
    inputs = _slice(
        rng, pick(rng, NUMBERS), rank, count, order=pick(rng, ("sorted", "shuffled")),
        extent=int(rng.integers(1, 60)), start=start, palette=pick(rng, PALETTES),
    )
    enough = rank and inputs["output_indices"].array.size
    if enough and rng.random() < 0.15:
        inject(rng, inputs, FAULTS)
    return Case(op, "random", inputs)
