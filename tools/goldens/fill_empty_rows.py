"""Cases of SparseFillEmptyRows and RaggedFillEmptyRows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .encoding import NUMBERS, QUANTIZED, SMALL, Case, Inputs, Tensor, rng_for, tensor
from .faults import Fault, as_matrix, as_scalar, inject, put, replace, singles_and_pairs
from .values import PALETTES, log_uniform, pick, values

OPERATORS = ("SparseFillEmptyRows", "RaggedFillEmptyRows")
PLAIN = (*NUMBERS, "bool", "string")


def _is_ragged(op: str) -> bool:
    return op.startswith("Ragged")


def make_inputs(
    rng: np.random.Generator, op: str, rows_of_entries: np.ndarray, rows: int, dtype: str,
    palette: str = "plain", columns: int = 2,
) -> Inputs:
    drawn = values(rng, dtype, (len(rows_of_entries),), palette)
    default_value = values(rng, dtype, (), palette)
    if _is_ragged(op):
        return {
            "value_rowids": tensor("int64", rows_of_entries),
            "values": drawn,
            "nrows": tensor("int64", rows),
            "default_value": default_value,
        }
    indices = rng.integers(0, 9, (len(rows_of_entries), columns))
    indices[:, 0] = rows_of_entries
    return {
        "indices": tensor("int64", indices),
        "values": drawn,
        "dense_shape": tensor("int64", [rows, *[9] * (columns - 1)]),
        "default_value": default_value,
    }


def _set_first(name: str, number: int) -> Fault:
    """Writes a number into the first element, whatever the rank."""

    def change(array: np.ndarray) -> np.ndarray:
        changed = array.copy()
        changed.reshape(-1)[:1] = number
        return changed

    return replace(name, change)


def faults(op: str) -> dict[str, Fault]:
    ragged = _is_ragged(op)
    indices, rows = ("value_rowids", "nrows") if ragged else ("indices", "dense_shape")
    numbers = {
        "row-negative": put(indices, 0.7, -1),
        "row-beyond": put(indices, 0.4, 99_999_999),
        "rows-zero": _set_first(rows, 0),
        "rows-negative": _set_first(rows, -4),
        "default-vector": replace("default_value", lambda array: array.reshape(1)),
        "values-length": replace("values", lambda array: array[:-1]),
    }
    ranks = {
        "values-matrix": as_matrix("values"),
        "indices-scalar": as_scalar(indices),
    }
    if ragged:
        return numbers | ranks | {"rows-vector": replace(rows, lambda array: array.reshape(1))}
    short = {"shape-length": replace(rows, lambda array: array[:-1])}
    return numbers | short | ranks | {"rows-matrix": as_matrix(rows)}


def _layouts(rng: np.random.Generator) -> dict[str, tuple[np.ndarray, int]]:
    """Rows of entries, and the number of rows."""
    some = rng.integers(0, 12, 17)
    return {
        "no-entries": (np.zeros(0, np.int64), 3),
        "sorted": (np.sort(some), 13),
        "shuffled": (some, 13),
        "full": (np.sort(np.concatenate([np.arange(5), some[:4] % 5])), 5),
    }


def _more_layouts(rng: np.random.Generator) -> dict[str, tuple[np.ndarray, int]]:
    return {
        "nothing": (np.zeros(0, np.int64), 0),
        "one": (np.zeros(1, np.int64), 1),
        "last-row": (np.array([6]), 7),
        "first-row": (np.zeros(4, np.int64), 7),
        "full-shuffled": (rng.permutation(11), 11),
        "descending": (np.arange(11)[::-1], 11),
        "hot-row": (np.full(40, 2), 5),
        "larger-sorted": (np.sort(rng.integers(0, 90, 70)), 90),
        "larger-shuffled": (rng.integers(0, 90, 70), 90),
    }


def directed(op: str) -> Iterator[Case]:
    def case(label: str, layout: tuple[np.ndarray, int], dtype: str, note: str = "", columns: int = 2) -> Case:
        return Case(op, label, make_inputs(rng_for(op, label), op, *layout, dtype, columns=columns), note=note)

    for dtype in PLAIN:
        for name, layout in _layouts(rng_for(op, dtype)).items():
            yield case(f"{name}-{dtype}", layout, dtype)
    for name, layout in _more_layouts(rng_for(op)).items():
        quirk = "quirk: output_value_rowids has the shape [0, 1]" if name == "nothing" and _is_ragged(op) else ""
        yield case(f"{name}-float32", layout, "float32", quirk)
    if not _is_ragged(op):
        yield from _columns(op)
    yield from _errors(op)
    yield from _wrong_types(op)


def _columns(op: str) -> Iterator[Case]:
    rng = rng_for(op, "columns")
    rows = np.array([3, 0, 3])
    for columns in (1, 3, 6):
        yield Case(op, f"columns-{columns}", make_inputs(rng, op, rows, 5, "float32", columns=columns))
    odd = make_inputs(rng, op, rows, 5, "float32")
    odd["indices"].array[:, 1] = [-7, 2**62, 100]
    odd["dense_shape"].array[1] = -3
    yield Case(op, "other-columns", odd, note="quirk: only column 0 and dense_shape[0] are looked at")


def _errors(op: str) -> Iterator[Case]:
    rng = rng_for(op, "errors")
    for label, chosen in singles_and_pairs(faults(op)):
        inputs = make_inputs(rng, op, rng.integers(0, 6, 8), 6, "float32")
        for fault in chosen:
            fault(inputs)
        yield Case(op, f"err-{label}", inputs)
    for label, row in {"lowest": -(2**63), "two-to-32": 2**32, "highest": 2**63 - 1}.items():
        yield Case(op, f"err-row-{label}", make_inputs(rng, op, np.array([0, row, 1]), 3, "float32"))
    huge = make_inputs(rng, op, np.array([0]), 2**62, "float32")
    yield Case(op, "err-out-of-memory", huge, note="oom: more rows than memory")
    if not _is_ragged(op):
        nothing: Inputs = {
            "indices": tensor("int64", np.zeros((2, 0))),
            "values": tensor("float32", [1, 2]),
            "dense_shape": tensor("int64", np.zeros(0)),
            "default_value": tensor("float32", 0),
        }
        yield Case(op, "err-no-columns", nothing)


def _wrong_types(op: str) -> Iterator[Case]:
    rng = rng_for(op, "types")
    rows = np.array([1, 0])
    for name in list(make_inputs(rng, op, rows, 2, "float32"))[::2]:
        inputs = make_inputs(rng, op, rows, 2, "float32")
        inputs[name] = tensor("int32", inputs[name].array)
        yield Case(op, f"err-{name}-int32", inputs, note="dtype")
    inputs = make_inputs(rng, op, rows, 2, "float32")
    inputs["default_value"] = Tensor("float64", np.zeros(()))
    yield Case(op, "err-default-float64", inputs, note="dtype")
    for dtype in QUANTIZED + SMALL:
        yield Case(op, f"err-values-{dtype}", make_inputs(rng, op, rows, 2, dtype), note="dtype")


def random_case(rng: np.random.Generator, op: str, max_elements: int) -> Case:
    max_elements //= 4  # two outputs have rows + count elements
    columns = int(rng.integers(1, 5))
    rows = log_uniform(rng, max_elements)
    count = log_uniform(rng, max_elements // columns) if rows else 0
    # All entries may lie in a part of the rows, which leaves long gaps.
    rows_of_entries = rng.integers(0, max(log_uniform(rng, rows), 1), count)
    if rng.random() < 0.6:
        rows_of_entries.sort()
    inputs = make_inputs(rng, op, rows_of_entries, rows, pick(rng, PLAIN), pick(rng, PALETTES), columns)
    if count and rng.random() < 0.15:
        inject(rng, inputs, faults(op))
    return Case(op, "random", inputs)
