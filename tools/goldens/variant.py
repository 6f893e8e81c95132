"""Cases of RaggedTensorToVariant and RaggedTensorFromVariant.

TensorFlow does not survive an array of rank 1 or more in which an element's splits have no entry,
nor elements whose rows are 2^31 or more in all: no case has either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .encoding import FLOATS, SMALL, Case, Inputs, Ragged, Tensor, Variant, rng_for, tensor
from .faults import Fault, inject, singles_and_pairs
from .values import PALETTES, log_uniform, pick, values
from .variant_grad import SPLIT_TYPES, VALUE_TYPES, random_splits

TO, FROM = OPERATORS = ("RaggedTensorToVariant", "RaggedTensorFromVariant")


def directed(op: str) -> Iterator[Case]:
    yield from _to_variant(op) if op == TO else _from_variant(op)


def random_case(rng: np.random.Generator, op: str, max_elements: int) -> Case:
    return _random_to(rng, max_elements) if op == TO else _random_from(rng, max_elements)


def _nested(
    rng: np.random.Generator, dtype: str, split_type: str, levels: int, rows: int,
    inner: tuple[int, ...] = (), palette: str = "plain", longest: int = 4,
) -> Ragged:
    """A ragged tensor of so many rows, each of up to `longest` rows of the level below."""
    splits = []
    for _ in range(levels):
        below = int(rng.integers(0, longest + 1, rows).sum())
        splits.append(random_splits(rng, split_type, rows, below))
        rows = below
    return Ragged(splits, values(rng, dtype, (rows, *inner), palette))


# RaggedTensorToVariant


def _to_case(label: str, ragged: Ragged, batched: bool, note: str = "") -> Case:
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


TO_FAULTS: dict[str, Fault] = {
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


def _to_variant(op: str) -> Iterator[Case]:
    for dtype in VALUE_TYPES:
        for split_type in SPLIT_TYPES:
            rng = rng_for(op, dtype, split_type)
            name = f"{dtype}-{split_type}"
            batched = split_type == "int64"
            yield _to_case(f"rank2-{name}", _nested(rng, dtype, split_type, 2, 3), batched)
            yield _to_case(f"rank1-{name}", _nested(rng, dtype, split_type, 1, 4, (2,)), True)
        dense = Ragged([], values(rng, dtype, (3, 2)))
        yield _to_case(f"rank0-{dtype}", dense, True)
    for batched in (True, False):
        yield from _to_shapes(op, batched)
    for dtype in FLOATS:
        for palette in PALETTES[1:]:
            rng = rng_for(op, palette, dtype)
            ragged = _nested(rng, dtype, "int64", 1, 3, palette=palette)
            yield _to_case(f"values-{palette}-{dtype}", ragged, True, "bits are copied")
    yield from _to_errors(op)


def _to_shapes(op: str, batched: bool) -> Iterator[Case]:
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
        "rank4": _nested(rng, "int16", "int32", 4, 2, (2,), longest=2),
        "dense-vector": Ragged([], values(rng, "float32", (4,))),
        "dense-empty": Ragged([], values(rng, "float32", (0, 3))),
        "dense-no-columns": Ragged([], values(rng, "float32", (2, 0))),
        "dense-cube": Ragged([], values(rng, "string", (2, 1, 2))),
    }
    for name, ragged in shapes.items():
        yield _to_case(f"{name}-{suffix}", ragged, batched)
    scalar = Ragged([], values(rng, "float32", ()))
    yield _to_case(f"dense-scalar-{suffix}", scalar, batched)


def _to_errors(op: str) -> Iterator[Case]:
    for number, (label, chosen) in enumerate(singles_and_pairs(TO_FAULTS)):
        case = _to_case(f"err-{label}", _nested(rng_for(op, label), "float32", "int64", 2, 3),
                        number % 2 == 0)
        for fault in chosen:
            fault(case.inputs)
        yield case
    rng = rng_for(op, "errors")
    splits = tensor("int64", [0, 1])
    yield _to_case("err-scalar-values", Ragged([splits], values(rng, "float32", ())), True)
    mixed = Ragged([splits, tensor("int32", [0, 2])], values(rng, "float32", (2,)))
    yield _to_case("err-mixed-splits", mixed, True, "dtype")
    narrow = Ragged([tensor("int16", [0, 2])], values(rng, "float32", (2,)))
    yield _to_case("err-splits-int16", narrow, True, "dtype")
    for dtype in SMALL:
        yield _to_case(f"err-values-{dtype}", Ragged([splits], tensor(dtype, [0])), True, "dtype")


def _random_to(rng: np.random.Generator, max_elements: int) -> Case:
    levels = int(rng.integers(0, 4))
    inner = tuple(int(d) for d in rng.integers(0 if rng.random() < 0.1 else 1, 4,
                                               rng.integers(0, 3)))
    dtype, split_type = pick(rng, VALUE_TYPES), pick(rng, SPLIT_TYPES)
    room = max(max_elements // max(int(np.prod(inner)) * 3**levels, 1), 1)
    ragged = _nested(rng, dtype, split_type, levels, log_uniform(rng, min(room, 1 + max_elements // 20)), inner,
                     pick(rng, PALETTES))
    case = _to_case("random", ragged, bool(rng.random() < 0.8))
    if levels and rng.random() < 0.15:
        inject(rng, case.inputs, TO_FAULTS)
    return case


# RaggedTensorFromVariant


def _from_case(
    label: str, variant: Variant, output_rank: int, dtype: str, split_type: str = "int64",
    input_rank: int = -1, note: str = "",
) -> Case:
    attrs = {"input_ragged_rank": input_rank, "output_ragged_rank": output_rank, "Tvalues": dtype,
             "Tsplits": split_type}
    return Case(FROM, label, {"encoded_ragged": variant}, attrs, note)


def _elements(
    rng: np.random.Generator, dtype: str, split_type: str, levels: int, shape: tuple[int, ...],
    inner: tuple[int, ...] = (), palette: str = "plain", longest: int = 3,
) -> Variant:
    count = int(np.prod(shape))
    rows = [int(rng.integers(0, longest + 1)) for _ in range(count)]
    return Variant(shape, [
        _nested(rng, dtype, split_type, levels, n, inner, palette, longest) for n in rows
    ])


def _from_variant(op: str) -> Iterator[Case]:
    for dtype in VALUE_TYPES:
        for split_type in SPLIT_TYPES:
            rng = rng_for(op, dtype, split_type)
            name = f"{dtype}-{split_type}"
            variant = _elements(rng, dtype, split_type, 1, (2,))
            yield _from_case(f"rank1-{name}", variant, 2, dtype, split_type)
        flat = _elements(rng, dtype, "int64", 0, (2, 2), (2,))
        yield _from_case(f"matrix-{dtype}", flat, 2, dtype)
        same = Variant((2,), [Ragged([], values(rng, dtype, (2, 2))) for _ in range(2)])
        yield _from_case(f"stack-{dtype}", same, 0, dtype)
    yield from _from_shapes(op)
    for dtype in FLOATS:
        for palette in PALETTES[1:]:
            variant = _elements(rng_for(op, palette, dtype), dtype, "int64", 0, (3,), (), palette)
            yield _from_case(f"values-{palette}-{dtype}", variant, 1, dtype,
                             note="bits are copied")
    yield from _unchecked_splits(op)
    yield from _from_errors(op)


def _from_shapes(op: str) -> Iterator[Case]:
    for shape in ((), (1,), (0,), (2, 3), (2, 0), (0, 3), (1, 1), (2, 3, 2), (3, 1, 2), (1, 3, 1, 2)):
        for levels in (0, 2):
            name = f"{'x'.join(map(str, shape)) or 'scalar'}-{levels}"
            variant = _elements(rng_for(op, name), "float32", "int64", levels, shape, (2,), longest=2)
            note = "quirk: a level has the rows of one row of the level above" if len(shape) > 2 else ""
            rank = levels + len(shape)
            stated = -1 if levels == 0 else levels
            yield _from_case(f"shape-{name}", variant, rank, "float32", "int64", stated, note)
    for shape in ((), (0,), (3,), (2, 2), (2, 0)):
        rng = rng_for(op, "stack", str(shape))
        for inner in ((), (2, 3), (0, 2)):
            count = int(np.prod(shape))
            variant = Variant(shape, [Ragged([], values(rng, "int8", inner)) for _ in range(count)])
            name = f"stack-{'x'.join(map(str, shape)) or 'scalar'}-of-{len(inner)}-{sum(inner)}"
            yield _from_case(name, variant, 0, "int8", input_rank=0 if inner else -1)


def _unchecked_splits(op: str) -> Iterator[Case]:
    """Stored splits are joined without a look at them."""
    def one(splits: list[int], split_type: str = "int64") -> Ragged:
        return Ragged([tensor(split_type, splits)], values(rng_for(op, str(splits)), "float32", (2,)))

    good = one([0, 1, 2])
    cases = {
        "decreasing": [one([0, 5, 1]), good],
        "beyond": [one([0, 2, 9]), good],
        "first-not-zero": [one([7, 1]), one([-7, 2]), good],
        "one-entry": [one([7]), one([-3]), good],
        "wide": [one([0, 2**62]), one([0, 2**62]), good],
    }
    for label, elements in cases.items():
        variant = Variant((len(elements),), elements)
        yield _from_case(f"quirk-{label}", variant, 2, "float32", note="quirk: splits not checked")
    wrapped = Variant((3,), [one([0, 2**31 - 1], "int32"), one([4, 5], "int32"), one([0], "int32")])
    yield _from_case("quirk-wrap", wrapped, 2, "float32", "int32", note="quirk: sums wrap")
    for label, splits in (("any", [5, 2, 9]), ("none", [])):
        yield _from_case(f"quirk-scalar-{label}", Variant((), [one(splits)]), 1, "float32",
                         note="quirk: splits not checked")


def _from_errors(op: str) -> Iterator[Case]:
    def one(dtype: str = "float32", shape: tuple[int, ...] = (2,), *splits: Tensor) -> Ragged:
        return Ragged(list(splits), values(rng_for(op, dtype, str(shape)), dtype, shape))

    def case(label: str, elements: list[Ragged | None], output_rank: int, **more: Any) -> Case:
        shape = more.pop("shape", (len(elements),))
        return _from_case(f"err-{label}", Variant(shape, elements), output_rank, "float32", **more)

    row = tensor("int64", [0, 2])
    narrow = tensor("int32", [0, 2])
    matrix = tensor("int64", [[0, 1], [2, 3]])
    yield case("missing", [one(), None], 1)
    yield case("missing-and-type", [one("int64"), None], 1)
    yield case("missing-scalar", [None], 0, shape=())
    yield case("missing-in-stack", [None, one()], 0)
    yield case("ragged-rank", [one(), one("int64", (2,), narrow)], 1)
    yield case("ragged-rank-less", [one("float32", (2,), row), one()], 2)
    yield case("type-before-splits", [one("int64", (), narrow)], 2)
    yield case("rank-sum", [one()], 3, input_rank=1)
    yield case("rank-sum-stack", [one()], 0, input_rank=1)
    yield case("inferred", [one()], 1, shape=(1, 1))
    yield case("output-minimum", [one()], -1)
    yield case("input-minimum", [one()], 1, input_rank=-2)
    yield case("splits-type", [one("float32", (2,), row), one("float32", (2,), narrow)], 2)
    yield case("splits-rank", [one("float32", (2,), row), one("float32", (2,), matrix)], 2)
    yield case("splits-scalar", [one("float32", (2,), tensor("int64", -6))], 2)
    yield case("splits-long", [one("float32", (2,), tensor("int64", [[[5, 6, 7, 8]]]))], 2)
    yield case("splits-hollow", [one("float32", (2,), tensor("int64", np.zeros((2, 0))))], 2)
    yield case("second-splits", [one("float32", (2,), row, narrow)], 3)
    yield case("splits-rank-before-type", [one("float32", (2,), matrix, narrow)], 3)
    yield case("value-ranks", [one("float32", (1, 2)), one("float32", (1, 3)), one()], 1)
    yield case("value-shapes", [one("float32", (1, 2)), one("float32", (0, 2)),
                                one("float32", (1, 3))], 1)
    yield case("stack-shapes", [one(), one("float32", (3,))], 0)
    yield case("stack-ranks", [one(), one("float32", (2, 1))], 0)
    yield case("scalar-values-under-splits", [one("float32", (), row)], 1, shape=())
    for dtype in VALUE_TYPES:
        if dtype != "string":  # may hold bytes that no message can
            variant = Variant((1,), [one(dtype, ())])
            yield _from_case(f"err-scalar-values-{dtype}", variant, 1, dtype)
    for value in (1e6, 1e-5, 123456792.0, 0.1, -0.0, 3.4e38, 1e-45, np.inf, -np.inf, np.nan):
        for dtype in ("float32", "float64"):
            variant = Variant((1,), [Ragged([], tensor(dtype, value))])
            yield _from_case(f"err-scalar-values-{dtype}-{value}", variant, 1, dtype)
    for dtype in SMALL:
        yield _from_case(f"err-values-{dtype}", Variant((0,), []), 1, dtype, note="dtype")
    yield _from_case("err-splits-int16", Variant((0,), []), 1, "float32", "int16", note="dtype")


def _random_from(rng: np.random.Generator, max_elements: int) -> Case:
    dtype, split_type = pick(rng, VALUE_TYPES), pick(rng, SPLIT_TYPES)
    shape = tuple(int(d) for d in rng.integers(0 if rng.random() < 0.1 else 1, 4,
                                               rng.integers(0, 4)))
    inner = tuple(int(d) for d in rng.integers(0 if rng.random() < 0.1 else 1, 4,
                                               rng.integers(0, 3)))
    levels = int(rng.integers(0, 3))
    room = max(max_elements // max(int(np.prod(shape)) * int(np.prod(inner)), 1), 1)
    longest = max(int(log_uniform(rng, min(room, 1 + max_elements // 20)) ** (1 / (levels + 1))), 1)
    variant = _elements(rng, dtype, split_type, levels, shape, inner, pick(rng, PALETTES), longest)
    case = _from_case("random", variant, levels + len(shape), dtype, split_type,
                      levels if rng.random() < 0.5 else -1)
    if variant.elements and rng.random() < 0.15:
        _disturb(rng, case)
    return case


def _disturb(rng: np.random.Generator, case: Case) -> None:
    """Makes one element, or an attribute, such that TensorFlow may refuse."""
    elements = case.inputs["encoded_ragged"].elements
    place = int(rng.integers(len(elements)))
    kind = rng.integers(5)
    if kind == 0:
        elements[place] = None
    elif kind == 1:
        elements[place].values = values(rng, pick(rng, FLOATS), (2,))
    elif kind == 2:
        elements[place].splits = elements[place].splits[1:]
    elif kind == 3 and elements[place].splits:
        old = elements[place].splits[-1]
        elements[place].splits[-1] = tensor(old.dtype, rng.integers(-9, 99, old.array.shape))
    else:
        case.attrs["output_ragged_rank"] = int(rng.integers(0, 4))
