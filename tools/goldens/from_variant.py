"""Cases of RaggedTensorFromVariant.

No case has an array of rank 1 or more in which an element's splits are empty, nor elements with 2^31 or more rows in
all: TensorFlow survives neither.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from .encoding import FLOATS, SMALL, Case, Ragged, Tensor, Variant, rng_for, tensor
from .to_variant import nested
from .values import PALETTES, log_uniform, pick, values
from .variant_grad import SPLIT_TYPES, VALUE_TYPES

(FROM,) = OPERATORS = ("RaggedTensorFromVariant",)


def _case(
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
        nested(rng, dtype, split_type, levels, n, inner, palette, longest) for n in rows
    ])


def directed(op: str) -> Iterator[Case]:
    for dtype in VALUE_TYPES:
        for split_type in SPLIT_TYPES:
            rng = rng_for(op, dtype, split_type)
            name = f"{dtype}-{split_type}"
            variant = _elements(rng, dtype, split_type, 1, (2,))
            yield _case(f"rank1-{name}", variant, 2, dtype, split_type)
        flat = _elements(rng, dtype, "int64", 0, (2, 2), (2,))
        yield _case(f"matrix-{dtype}", flat, 2, dtype)
        same = Variant((2,), [Ragged([], values(rng, dtype, (2, 2))) for _ in range(2)])
        yield _case(f"stack-{dtype}", same, 0, dtype)
    yield from _shapes(op)
    for dtype in FLOATS:
        for palette in PALETTES[1:]:
            variant = _elements(rng_for(op, palette, dtype), dtype, "int64", 0, (3,), (), palette)
            yield _case(f"values-{palette}-{dtype}", variant, 1, dtype,
                             note="bits are copied")
    yield from _unchecked_splits(op)
    yield from _errors(op)


def _shapes(op: str) -> Iterator[Case]:
    for shape in ((), (1,), (0,), (2, 3), (2, 0), (0, 3), (1, 1), (2, 3, 2), (3, 1, 2), (1, 3, 1, 2)):
        for levels in (0, 2):
            name = f"{'x'.join(map(str, shape)) or 'scalar'}-{levels}"
            variant = _elements(rng_for(op, name), "float32", "int64", levels, shape, (2,), longest=2)
            note = "quirk: a level has the rows of one row of the level above" if len(shape) > 2 else ""
            rank = levels + len(shape)
            stated = -1 if levels == 0 else levels
            yield _case(f"shape-{name}", variant, rank, "float32", "int64", stated, note)
    for shape in ((), (0,), (3,), (2, 2), (2, 0)):
        rng = rng_for(op, "stack", str(shape))
        for inner in ((), (2, 3), (0, 2)):
            count = int(np.prod(shape))
            variant = Variant(shape, [Ragged([], values(rng, "int8", inner)) for _ in range(count)])
            name = f"stack-{'x'.join(map(str, shape)) or 'scalar'}-of-{len(inner)}-{sum(inner)}"
            yield _case(name, variant, 0, "int8", input_rank=0 if inner else -1)


def _unchecked_splits(op: str) -> Iterator[Case]:
    """Splits of elements are joined without a check."""
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
        yield _case(f"quirk-{label}", variant, 2, "float32", note="quirk: splits not checked")
    wrapped = Variant((3,), [one([0, 2**31 - 1], "int32"), one([4, 5], "int32"), one([0], "int32")])
    yield _case("quirk-wrap", wrapped, 2, "float32", "int32", note="quirk: sums wrap")
    for label, splits in (("any", [5, 2, 9]), ("none", [])):
        yield _case(f"quirk-scalar-{label}", Variant((), [one(splits)]), 1, "float32",
                         note="quirk: splits not checked")


def _errors(op: str) -> Iterator[Case]:
    def one(dtype: str = "float32", shape: tuple[int, ...] = (2,), *splits: Tensor) -> Ragged:
        return Ragged(list(splits), values(rng_for(op, dtype, str(shape)), dtype, shape))

    def case(label: str, elements: list[Ragged | None], output_rank: int, **more: Any) -> Case:
        shape = more.pop("shape", (len(elements),))
        return _case(f"err-{label}", Variant(shape, elements), output_rank, "float32", **more)

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
        if dtype != "string":  # a string may hold bytes that no message can hold
            variant = Variant((1,), [one(dtype, ())])
            yield _case(f"err-scalar-values-{dtype}", variant, 1, dtype)
    for value in (1e6, 1e-5, 123456792.0, 0.1, -0.0, 3.4e38, 1e-45, np.inf, -np.inf, np.nan):
        for dtype in ("float32", "float64"):
            variant = Variant((1,), [Ragged([], tensor(dtype, value))])
            yield _case(f"err-scalar-values-{dtype}-{value}", variant, 1, dtype)
    for dtype in SMALL:
        yield _case(f"err-values-{dtype}", Variant((0,), []), 1, dtype, note="dtype")
    yield _case("err-splits-int16", Variant((0,), []), 1, "float32", "int16", note="dtype")


def random_case(rng: np.random.Generator, op: str, max_elements: int) -> Case:
    dtype, split_type = pick(rng, VALUE_TYPES), pick(rng, SPLIT_TYPES)
    shape = tuple(int(d) for d in rng.integers(0 if rng.random() < 0.1 else 1, 4,
                                               rng.integers(0, 4)))
    inner = tuple(int(d) for d in rng.integers(0 if rng.random() < 0.1 else 1, 4,
                                               rng.integers(0, 3)))
    levels = int(rng.integers(0, 3))
    room = max(max_elements // max(int(np.prod(shape)) * int(np.prod(inner)), 1), 1)
    longest = max(int(log_uniform(rng, min(room, 1 + max_elements // 20)) ** (1 / (levels + 1))), 1)
    variant = _elements(rng, dtype, split_type, levels, shape, inner, pick(rng, PALETTES), longest)
    case = _case("random", variant, levels + len(shape), dtype, split_type,
                      levels if rng.random() < 0.5 else -1)
    if variant.elements and rng.random() < 0.15:
        _disturb(rng, case)
    return case


def _disturb(rng: np.random.Generator, case: Case) -> None:
    """Changes one element or an attribute so that TensorFlow may refuse."""
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
