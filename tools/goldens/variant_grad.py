"""Cases of RaggedTensorToVariantGradient.

TensorFlow does not check row_splits and dense_values_shape. It answers with garbage or dies unless a case keeps three
rules: the elements fill dense_values_shape exactly; row_splits has the true length of every missing element; no element
is missing among strings.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace as altered
from typing import Any

import numpy as np

from .encoding import (
    FLOATS,
    NUMBERS,
    QUANTIZED,
    SMALL,
    Case,
    Inputs,
    Ragged,
    Tensor,
    Variant,
    rng_for,
    tensor,
)
from .faults import Fault, as_matrix, inject, put, replace, singles_and_pairs
from .values import PALETTES, log_uniform, pick, values

OPERATORS = ("RaggedTensorToVariantGradient",)
VALUE_TYPES = NUMBERS + ("bool", "string") + QUANTIZED
SPLIT_TYPES = ("int32", "int64")

FAULTS: dict[str, Fault] = {
    "splits-first": put("row_splits", 0.0, 2),
    "splits-decreasing": put("row_splits", 1.0, -5),
    "shape-negative": put("dense_values_shape", 0.0, -3),
    "shape-overflow": replace("dense_values_shape", lambda array: np.full(3, 2**31 - 1)),
    "splits-empty": replace("row_splits", lambda array: array[:0]),
    "splits-matrix": as_matrix("row_splits"),
}


def random_splits(rng: np.random.Generator, dtype: str, rows: int, total: int) -> Tensor:
    """Random row splits that cut the total into the given number of rows."""
    cuts = np.sort(rng.integers(0, total + 1, max(rows - 1, 0)))
    return tensor(dtype, [0, *cuts, total] if rows else [0])


def _element(
    rng: np.random.Generator, dtype: str, split_type: str, ragged_rank: int,
    shape: tuple[int, ...], palette: str,
) -> Ragged:
    """Values of the given shape under as many levels of splits as the ragged rank says."""
    splits: list[Tensor] = []
    rows = shape[0] if ragged_rank else 0
    for _ in range(ragged_rank):
        parents = int(rng.integers(1, rows + 2)) if rows else 0
        splits.insert(0, random_splits(rng, split_type, parents, rows))
        rows = parents
    return Ragged(splits, values(rng, dtype, shape, palette))


def _draw(
    rng: np.random.Generator,
    dtype: str,
    split_type: str = "int64",
    *,
    lengths: tuple[int, ...] = (2, 0, 3),
    inner: tuple[int, ...] = (),
    ragged_rank: int = 0,
    missing: tuple[int, ...] = (),
    shape: tuple[int, ...] | None = None,
    palette: str = "plain",
) -> Inputs:
    """One element per length, with row_splits and dense_values_shape that agree with them."""
    elements = [
        None if i in missing
        else _element(rng, dtype, split_type, ragged_rank, (n, *inner), palette)
        for i, n in enumerate(lengths)
    ]
    return {
        "encoded_ragged_grad": Variant(shape if shape is not None else (len(lengths),), elements),
        "row_splits": tensor(split_type, np.cumsum([0, *lengths])),
        "dense_values_shape": tensor("int32", [sum(lengths), *inner]),
    }


def _case(op: str, label: str, dtype: str, inputs: Inputs, note: str = "") -> Case:
    return Case(op, label, inputs, {"Tvalues": dtype}, note)


def directed(op: str) -> Iterator[Case]:
    for dtype in VALUE_TYPES:
        for split_type in SPLIT_TYPES:
            yield from _layouts(op, dtype, split_type)
    for dtype in FLOATS:
        for palette in PALETTES[1:]:
            inputs = _draw(rng_for(op, palette, dtype), dtype, lengths=(7, 4), palette=palette)
            yield _case(op, f"values-{palette}-{dtype}", dtype, inputs, "bits are copied")
    yield from _variant_ranks(op)
    yield from _unused_numbers(op)
    yield from _errors(op)
    yield from _wrong_types(op)


def _layouts(op: str, dtype: str, split_type: str) -> Iterator[Case]:
    rng = rng_for(op, dtype, split_type)
    layouts: dict[str, dict[str, Any]] = {
        "rank1": {"lengths": (1, 0, 3, 2, 1)},
        "rank2": {"ragged_rank": 1, "lengths": (4, 0, 1)},
        "rank3-inner": {"ragged_rank": 2, "lengths": (3, 2), "inner": (2,)},
        "inner-2x2": {"lengths": (1, 2), "inner": (2, 2)},
        "inner-empty": {"lengths": (1, 2), "inner": (3, 0)},
        "no-elements": {"lengths": ()},
        "all-empty": {"lengths": (0, 0)},
        "one": {"lengths": (3,), "inner": (2,)},
        "scalar": {"lengths": (3,), "ragged_rank": 1, "shape": ()},
    }
    if dtype != "string":
        layouts |= {
            "missing": {"lengths": (1, 2, 0, 3), "missing": (1, 2), "inner": (2,)},
            "missing-all": {"lengths": (2, 3), "missing": (0, 1)},
            "missing-one": {"lengths": (3,), "missing": (0,), "inner": (2,)},
            "missing-rank2": {"lengths": (2, 3), "missing": (0,), "ragged_rank": 1},
            "missing-scalar": {"lengths": (4,), "missing": (0,), "shape": ()},
        }
    for name, drawn in layouts.items():
        inputs = _draw(rng, dtype, split_type, **drawn)
        yield _case(op, f"{name}-{dtype}-{split_type}", dtype, inputs)

    rows: list[Ragged | None] = [Ragged([], values(rng, dtype, ())) for _ in range(3)]
    dense = {
        "encoded_ragged_grad": Variant((3,), rows),
        "row_splits": tensor(split_type, 0),
        "dense_values_shape": tensor("int32", [3]),
    }
    yield _case(op, f"rank0-{dtype}-{split_type}", dtype, dense, "row_splits is the scalar 0")


def _variant_ranks(op: str) -> Iterator[Case]:
    shapes = {(2, 3): 6, (1, 1): 1, (3, 1, 2): 6, (2, 0): 0, (0, 3, 1): 0, (1, 1, 1): 1, (1, 4): 4}
    for shape, count in shapes.items():
        name = "x".join(map(str, shape))
        rng = rng_for(op, name)
        lengths = tuple(int(n) for n in rng.integers(0, 4, count))
        inputs = _draw(rng, "float32", lengths=lengths, shape=shape)
        yield _case(op, f"variant-{name}", "float32", inputs)
        inputs = _draw(rng, "int16", lengths=lengths, shape=shape, missing=(0, 2), inner=(2,))
        yield _case(op, f"variant-{name}-missing", "int16", inputs)


def _unused_numbers(op: str) -> Iterator[Case]:
    """Numbers that TensorFlow does not read."""
    def drawn(label: str, **arguments: Any) -> Inputs:
        return _draw(rng_for(op, label), "float32", **arguments)

    def changed(inputs: Inputs, splits: object = None, shape: object = None) -> Inputs:
        if splits is not None:
            inputs["row_splits"] = tensor("int64", splits)
        if shape is not None:
            inputs["dense_values_shape"] = tensor("int32", shape)
        return inputs

    one = {"lengths": (2,)}
    gone = {"lengths": (2,), "missing": (0,)}
    full = {"lengths": (2, 2)}
    cases = {
        "one-shape-unused": (changed(drawn("a", **one), shape=[7, 9]), "one element"),
        "one-shape-scalar": (changed(drawn("b", **one), shape=[]), "one element"),
        "one-splits-unused": (changed(drawn("c", **one), splits=[0]), "one element"),
        "one-missing-shape": (changed(drawn("d", **gone), splits=[0, 5], shape=[2, 2]),
                              "rows of row_splits, inner shape of dense_values_shape"),
        "scalar-missing": (changed(drawn("e", **gone, shape=()), splits=[0, 1, 4], shape=[4]),
                           "as long as the first row"),
        "splits-unused": (changed(drawn("f", **full), splits=[0, 50, 90]), "nothing missing"),
        "splits-short": (changed(drawn("g", **full), splits=[0]), "nothing missing"),
        "splits-long": (changed(drawn("h", **full), splits=[0, 2, 4, 9, 9]), "nothing missing"),
        "splits-scalar": (changed(drawn("i", **full), splits=-6), "a scalar is not checked"),
        "other-shape": (changed(drawn("j", **full), shape=[2, 1, 2]), "only sizes count"),
        "scalar-output": (changed(drawn("k", lengths=(0, 1)), shape=[]), "only sizes count"),
        "no-elements-inner": (changed(drawn("l", lengths=()), shape=[4, 0]), "empty output"),
    }
    for label, (inputs, why) in cases.items():
        yield _case(op, f"quirk-{label}", "float32", inputs, f"quirk: {why}")

    mixed = drawn("mixed", lengths=(1,), inner=(2, 2))
    other = drawn("other", lengths=(3,))
    both = mixed["encoded_ragged_grad"].elements + other["encoded_ragged_grad"].elements
    mixed["encoded_ragged_grad"] = Variant((2,), both)
    yield _case(op, "quirk-ranks-differ", "float32",
                changed(mixed, splits=[0, 1, 2], shape=[7]), "quirk: only sizes count")


def _errors(op: str) -> Iterator[Case]:
    for label, chosen in singles_and_pairs(FAULTS):
        for missing in ((), (1,)):
            inputs = _draw(rng_for(op, label), "float32", lengths=(2, 1), missing=missing)
            for fault in chosen:
                fault(inputs)
            suffix = "-missing" if missing else ""
            yield _case(op, f"err-{label}{suffix}", "float32", inputs)
    for actual, expected in (("int64", "float32"), ("half", "bfloat16"), ("qint8", "int8"),
                             ("float64", "string"), ("string", "bool")):
        inputs = _draw(rng_for(op, actual, expected), actual, lengths=(2,))
        yield _case(op, f"err-one-{actual}-as-{expected}", expected, inputs)
    inputs = _draw(rng_for(op, "both"), "int64", lengths=(2,))
    FAULTS["splits-first"](inputs)
    yield _case(op, "err-one-other-type-and-splits-first", "float32", inputs)


def _wrong_types(op: str) -> Iterator[Case]:
    inputs = _draw(rng_for(op, "wrong"), "float32", lengths=(2,))
    wide = {**inputs, "dense_values_shape": tensor("int64", [2])}
    yield _case(op, "err-shape-int64", "float32", wide, "dtype")
    for dtype in ("int16", "uint32"):
        splits = {**inputs, "row_splits": tensor(dtype, [0, 2])}
        yield _case(op, f"err-splits-{dtype}", "float32", splits, "dtype")
    for dtype in SMALL:
        yield _case(op, f"err-values-{dtype}", dtype, inputs, "dtype")


def random_case(rng: np.random.Generator, op: str, max_elements: int) -> Case:
    dtype = pick(rng, VALUE_TYPES)
    inner = tuple(int(d) for d in rng.integers(0 if rng.random() < 0.1 else 1, 5,
                                               rng.integers(0, 3)))
    shape = tuple(int(d) for d in rng.integers(0 if rng.random() < 0.1 else 1, 6,
                                               rng.integers(0, 4)))
    count = int(np.prod(shape))
    room = max_elements // max(count * int(np.prod(inner)), 1)
    lengths = tuple(log_uniform(rng, room) for _ in range(count))
    missing: tuple[int, ...] = ()
    if dtype != "string" and rng.random() < 0.5:
        missing = tuple(np.flatnonzero(rng.random(count) < rng.random()))
    inputs = _draw(
        rng, dtype, pick(rng, SPLIT_TYPES), lengths=lengths, inner=inner, shape=shape,
        ragged_rank=int(rng.integers(0, 3)), missing=missing, palette=pick(rng, PALETTES),
    )
    _disturb_unused(rng, inputs, lengths, missing)
    if inputs["row_splits"].array.ndim and rng.random() < 0.15:
        inject(rng, inputs, FAULTS)
    return _case(op, "random", dtype, inputs)


def _disturb_unused(
    rng: np.random.Generator, inputs: Inputs, lengths: tuple[int, ...], missing: tuple[int, ...]
) -> None:
    """Changes numbers that the operator must not read."""
    kind = inputs["row_splits"].dtype
    if rng.random() < 0.3:
        inputs["row_splits"] = _disturbed_splits(rng, kind, lengths, missing)
    total = inputs["dense_values_shape"].array
    if not missing and rng.random() < 0.2:
        size = int(np.prod(total, dtype=np.int64))
        inputs["dense_values_shape"] = tensor("int32", [1, size, 1])
        variant = inputs["encoded_ragged_grad"]
        flat = [
            altered(e, splits=[], values=Tensor(e.values.dtype, e.values.array.reshape(-1)))
            for e in variant.elements
        ]
        inputs["encoded_ragged_grad"] = altered(variant, elements=flat)


def _disturbed_splits(
    rng: np.random.Generator, kind: str, lengths: tuple[int, ...], missing: tuple[int, ...]
) -> Tensor:
    if not missing and rng.random() < 0.5:
        return tensor(kind, rng.integers(-9, 9))  # a scalar is never read
    rows = [n if i in missing else rng.integers(0, 9) for i, n in enumerate(lengths)]
    return tensor(kind, np.cumsum([0, *rows]))
