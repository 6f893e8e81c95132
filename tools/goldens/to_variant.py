"""Cases of RaggedTensorToVariant."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from .encoding import FLOATS, SMALL, Case, Inputs, Ragged, Tensor, rng_for, tensor
from .faults import Fault, inject, singles_and_pairs
from .values import PALETTES, log_uniform, pick, values
from .variant_grad import SPLIT_TYPES, VALUE_TYPES, random_splits

(TO,) = OPERATORS = ("RaggedTensorToVariant",)


def nested(
    rng: np.random.Generator, dtype: str, split_type: str, levels: int, rows: int,
    inner: tuple[int, ...] = (), palette: str = "plain", longest: int = 4,
) -> Ragged:
    """A ragged tensor of the given number of rows, each with up to `longest` rows of the next level."""
    splits = []
    for _ in range(levels):
        below = int(rng.integers(0, longest + 1, rows).sum())
        splits.append(random_splits(rng, split_type, rows, below))
        rows = below
    return Ragged(splits, values(rng, dtype, (rows, *inner), palette))


def _case(label: str, ragged: Ragged, batched: bool, note: str = "") -> Case:
    inputs = {"rt_nested_splits": ragged.splits, "rt_dense_values": ragged.values}
    return Case(TO, label, inputs, {"batched_input": batched}, note)


def _changed(level: int, change: Callable[[np.ndarray], np.ndarray]) -> Fault:
    def apply(inputs: Inputs) -> None:
        splits = list(inputs["rt_nested_splits"])
        old = splits[level]
        splits[level] = Tensor(old.dtype, np.array(change(old.array.copy()), old.array.dtype))
        inputs["rt_nested_splits"] = splits

    return apply


def _put(place: int, value: int) -> Callable[[np.ndarray], np.ndarray]:
    def change(array: np.ndarray) -> np.ndarray:
        if array.ndim == 1 and array.size:
            array[place] = value
        return array

    return change


FAULTS: dict[str, Fault] = {
    "inner-first": _changed(-1, _put(0, 1)),
    "inner-decreasing": _changed(-1, lambda array: np.append(array, -3)),
    "inner-last": _changed(-1, lambda array: np.append(array, 10_000)),
    "outer-first": _changed(0, _put(0, -2)),
    "outer-last": _changed(0, _put(-1, 77)),
    "inner-empty": _changed(-1, lambda array: array[:0]),
    "outer-empty": _changed(0, lambda array: array[:0]),
    "inner-matrix": _changed(-1, lambda array: array.reshape(array.size, 1)),
    "outer-scalar": _changed(0, lambda array: np.zeros((), array.dtype)),
}


def directed(op: str) -> Iterator[Case]:
    for dtype in VALUE_TYPES:
        for split_type in SPLIT_TYPES:
            rng = rng_for(op, dtype, split_type)
            name = f"{dtype}-{split_type}"
            batched = split_type == "int64"
            yield _case(f"rank2-{name}", nested(rng, dtype, split_type, 2, 3), batched)
            yield _case(f"rank1-{name}", nested(rng, dtype, split_type, 1, 4, (2,)), True)
        dense = Ragged([], values(rng, dtype, (3, 2)))
        yield _case(f"rank0-{dtype}", dense, True)
    for batched in (True, False):
        yield from _shapes(op, batched)
    for dtype in FLOATS:
        for palette in PALETTES[1:]:
            rng = rng_for(op, palette, dtype)
            ragged = nested(rng, dtype, "int64", 1, 3, palette=palette)
            yield _case(f"values-{palette}-{dtype}", ragged, True, "bits are copied")
    yield from _errors(op)


def _shapes(op: str, batched: bool) -> Iterator[Case]:
    suffix = "batched" if batched else "whole"
    rng = rng_for(op, suffix)
    none = tensor("int64", [0])
    shapes = {
        "no-rows": Ragged([none], values(rng, "float32", (0, 3))),
        "no-rows-rank3": Ragged([none, none, none], values(rng, "float32", (0,))),
        "empty-rows": Ragged([tensor("int64", [0, 0, 0])], values(rng, "float32", (0, 2))),
        "one-row": Ragged([tensor("int64", [0, 5])], values(rng, "float32", (5,))),
        "one-value": Ragged([tensor("int64", [0, 0, 1])], values(rng, "float32", (1, 2, 3))),
        "no-columns": Ragged([tensor("int64", [0, 2, 3])], values(rng, "float32", (3, 0))),
        "rank4": nested(rng, "int16", "int32", 4, 2, (2,), longest=2),
        "dense-vector": Ragged([], values(rng, "float32", (4,))),
        "dense-empty": Ragged([], values(rng, "float32", (0, 3))),
        "dense-no-columns": Ragged([], values(rng, "float32", (2, 0))),
        "dense-cube": Ragged([], values(rng, "string", (2, 1, 2))),
    }
    for name, ragged in shapes.items():
        yield _case(f"{name}-{suffix}", ragged, batched)
    scalar = Ragged([], values(rng, "float32", ()))
    yield _case(f"dense-scalar-{suffix}", scalar, batched)


def _errors(op: str) -> Iterator[Case]:
    for number, (label, chosen) in enumerate(singles_and_pairs(FAULTS)):
        case = _case(f"err-{label}", nested(rng_for(op, label), "float32", "int64", 2, 3),
                        number % 2 == 0)
        for fault in chosen:
            fault(case.inputs)
        yield case
    rng = rng_for(op, "errors")
    splits = tensor("int64", [0, 1])
    yield _case("err-scalar-values", Ragged([splits], values(rng, "float32", ())), True)
    mixed = Ragged([splits, tensor("int32", [0, 2])], values(rng, "float32", (2,)))
    yield _case("err-mixed-splits", mixed, True, "dtype")
    narrow = Ragged([tensor("int16", [0, 2])], values(rng, "float32", (2,)))
    yield _case("err-splits-int16", narrow, True, "dtype")
    for dtype in SMALL:
        yield _case(f"err-values-{dtype}", Ragged([splits], tensor(dtype, [0])), True, "dtype")


def random_case(rng: np.random.Generator, op: str, max_elements: int) -> Case:
    levels = int(rng.integers(0, 4))
    inner = tuple(int(d) for d in rng.integers(0 if rng.random() < 0.1 else 1, 4,
                                               rng.integers(0, 3)))
    dtype, split_type = pick(rng, VALUE_TYPES), pick(rng, SPLIT_TYPES)
    room = max(max_elements // max(int(np.prod(inner)) * 3**levels, 1), 1)
    ragged = nested(rng, dtype, split_type, levels, log_uniform(rng, min(room, 1 + max_elements // 20)), inner,
                     pick(rng, PALETTES))
    case = _case("random", ragged, bool(rng.random() < 0.8))
    if levels and rng.random() < 0.15:
        inject(rng, case.inputs, FAULTS)
    return case
