"""Cases of SparseSegment{Mean,Sum,SqrtN}Grad and ...GradV2."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

from .encoding import (
    COMPLEX,
    FLOATS,
    INTEGERS,
    QUANTIZED,
    SMALL,
    Case,
    Inputs,
    Tensor,
    rng_for,
    tensor,
)
from .faults import Fault, as_matrix, as_scalar, inject, put, replace, singles_and_pairs
from .values import PALETTES, flush_note, log_uniform, pick, values

OPERATORS = tuple(
    f"SparseSegment{kind}Grad{version}"
    for version, kind in product(("V2", ""), ("Mean", "Sum", "SqrtN"))
)
INDEX_TYPES = ("int32", "int64")
INT32_MAX = 2**31 - 1
INNER_SHAPES = ((), (1,), (17,), (2, 3), (3, 1, 5), (0,), (2, 0, 3))


def dim0_name(op: str) -> str:
    return "dense_output_dim0" if op.endswith("V2") else "output_dim0"


def make_inputs(op: str, grad: Tensor, indices: Tensor, segment_ids: Tensor, dim0: int) -> Inputs:
    return {
        "grad": grad,
        "indices": indices,
        "segment_ids": segment_ids,
        dim0_name(op): tensor("int32", dim0),
    }


def _draw(
    rng: np.random.Generator,
    op: str,
    dtype: str,
    index_type: str = "int32",
    segment_type: str = "int32",
    *,
    rows: int = 5,
    inner: tuple[int, ...] = (3,),
    count: int = 13,
    dim0: int = 9,
    palette: str = "plain",
    order: str = "sorted",
) -> Inputs:
    segments = rng.integers(0, max(rows, 1), count)
    if order == "sorted":
        segments.sort()
    indices = rng.integers(0, max(dim0, 1), count)
    grad = values(rng, dtype, (rows, *inner), palette)
    return make_inputs(
        op, grad, tensor(index_type, indices), tensor(segment_type, segments), dim0
    )


def faults(op: str) -> dict[str, Fault]:
    dim0 = dim0_name(op)

    def rows(inputs: Inputs) -> int:
        return inputs["grad"].array.shape[0]

    def beyond(inputs: Inputs) -> int:
        return min(int(inputs[dim0].array) + 3, INT32_MAX)

    def overflow(inputs: Inputs) -> None:
        inputs["grad"] = Tensor("float32", np.zeros((0, 2**33, 2**10), np.float32))
        inputs[dim0] = tensor("int32", INT32_MAX)

    return {
        "index-negative": put("indices", 0.3, -2),
        "index-beyond": put("indices", 0.6, beyond),
        "segment-negative": put("segment_ids", 0.5, -1),
        "segment-beyond": put("segment_ids", 0.2, lambda inputs: rows(inputs) + 4),
        "segment-last": put("segment_ids", 1.0, rows),
        "dim0-negative": replace(dim0, lambda array: np.array(-3)),
        "overflow": overflow,
        "length": replace("segment_ids", lambda array: array[:-1]),
        "grad-scalar": as_scalar("grad"),
        "dim0-vector": replace(dim0, lambda array: array.reshape(1)),
        "segments-matrix": as_matrix("segment_ids"),
        "segments-scalar": as_scalar("segment_ids"),
        "indices-matrix": as_matrix("indices"),
        "indices-scalar": as_scalar("indices"),
    }


def directed(op: str) -> Iterator[Case]:
    for dtype in FLOATS:
        yield from _types_and_sizes(op, dtype)
        yield from _shapes_and_orders(op, dtype)
        yield from _numbers(op, dtype)
        yield from _nothing_to_do(op, dtype)
    yield from _errors(op)
    yield from _wrong_types(op)


def _case(op: str, label: str, note: str = "", **drawn: Any) -> Case:
    rng = rng_for(op, label)
    inputs = _draw(rng, op, **drawn)
    return Case(op, label, inputs, note=note or flush_note(inputs["grad"]))


def _types_and_sizes(op: str, dtype: str) -> Iterator[Case]:
    sizes: dict[str, dict[str, Any]] = {
        "one": {"rows": 1, "count": 1, "dim0": 1},
        "odd": {"inner": (7,)},
        "unsorted": {"order": "unsorted", "rows": 11},
    }
    for index_type, segment_type in product(INDEX_TYPES, INDEX_TYPES):
        for size, drawn in sizes.items():
            yield _case(op, f"{size}-{dtype}-{index_type}-{segment_type}", dtype=dtype,
                        index_type=index_type, segment_type=segment_type, **drawn)


def _shapes_and_orders(op: str, dtype: str) -> Iterator[Case]:
    for inner in INNER_SHAPES:
        name = "x".join(map(str, inner)) or "none"
        yield _case(op, f"inner-{name}-{dtype}", dtype=dtype, inner=inner)
    layouts: dict[str, dict[str, Any]] = {
        "hot-row": {"count": 150, "dim0": 1, "rows": 20},
        "one-segment": {"count": 41, "rows": 1},
        "mostly-skipped": {"count": 5, "rows": 60},
        "few-repeats": {"count": 20, "dim0": 200, "rows": 20},
        "larger": {"count": 257, "rows": 67, "dim0": 50, "inner": (19,)},
    }
    for layout, drawn in layouts.items():
        yield _case(op, f"{layout}-{dtype}", dtype=dtype, order="unsorted", **drawn)

    rng = rng_for(op, "descending", dtype)
    descending = _draw(rng, op, dtype, count=9, dim0=9)
    for name in ("indices", "segment_ids"):
        descending[name].array[::-1].sort()
    yield Case(op, f"descending-{dtype}", descending)


def _numbers(op: str, dtype: str) -> Iterator[Case]:
    for palette in PALETTES:
        yield _case(op, f"values-{palette}-{dtype}", dtype=dtype, count=40, dim0=6,
                    inner=(11,), palette=palette)
    yield _case(op, f"rounding-{dtype}", dtype=dtype, count=300, dim0=2, rows=9,
                palette="wide", order="unsorted")

    rng = rng_for(op, "zeros", dtype)
    zeros = _draw(rng, op, dtype)
    zeros["grad"].array[...] = -0.0
    yield Case(op, f"negative-zeros-{dtype}", zeros, note="a sum of -0 is +0")

    cancelling = _draw(rng, op, dtype, rows=6, count=48, dim0=4, inner=(5,), order="unsorted")
    array = cancelling["grad"].array
    array[1::2] = -array[::2] * array.dtype.type(1.0078125)
    yield Case(op, f"cancelling-{dtype}", cancelling)


def _nothing_to_do(op: str, dtype: str) -> Iterator[Case]:
    rng = rng_for(op, "nothing", dtype)
    unchecked = _draw(rng, op, dtype, dim0=0)
    put("indices", 0.0, 99)(unchecked)
    put("segment_ids", 0.5, -7)(unchecked)
    yield Case(op, f"dim0-zero-{dtype}", unchecked, note="quirk: dim0 = 0, nothing is checked")
    yield Case(op, f"dim0-zero-empty-{dtype}", _draw(rng, op, dtype, dim0=0, count=0))
    yield Case(op, f"empty-no-columns-{dtype}", _draw(rng, op, dtype, count=0, inner=(0,)))
    if op.endswith("V2"):
        yield Case(op, f"empty-{dtype}", _draw(rng, op, dtype, count=0))
        yield Case(op, f"empty-no-rows-{dtype}", _draw(rng, op, dtype, count=0, rows=0))
        largest = _draw(rng, op, dtype, dim0=INT32_MAX)
        put("indices", 0.4, INT32_MAX - 1)(largest)
        yield Case(op, f"dim0-largest-{dtype}", largest, note="dim0 only bounds the indices")


def _errors(op: str) -> Iterator[Case]:
    for label, chosen in singles_and_pairs(faults(op)):
        inputs = _draw(rng_for(op, label), op, "float32", *_index_types(label))
        for fault in chosen:
            fault(inputs)
        yield Case(op, f"err-{label}", inputs)

    dim0 = dim0_name(op)
    numbers = {
        "index-two-to-32": put("indices", 0.5, 2**32),
        "index-lowest": put("indices", 0.5, -(2**63)),
        "segment-two-to-32": put("segment_ids", 0.5, 2**32),
        "segment-last-two-to-32": put("segment_ids", 1.0, 2**32),
        "segment-last-highest": put("segment_ids", 1.0, 2**63 - 1),
        "segment-last-negative": put("segment_ids", 1.0, -1),
        "dim0-lowest": replace(dim0, lambda array: np.array(-(2**31))),
    }
    for label, fault in numbers.items():
        inputs = _draw(rng_for(op, label), op, "float32", "int64", "int64")
        fault(inputs)
        yield Case(op, f"err-{label}", inputs)

    rng = rng_for(op, "err-empty")
    yield Case(op, "err-no-rows", _draw(rng, op, "float32", rows=0))
    yield Case(op, "err-empty-dim0-negative", _draw(rng, op, "float32", count=0, dim0=-1))
    no_rank = _draw(rng, op, "half", count=0)
    as_scalar("grad")(no_rank)
    yield Case(op, "err-empty-grad-scalar", no_rank)
    if not op.endswith("V2"):
        too_large = _draw(rng, op, "float64", inner=(1024,), rows=1, count=2, dim0=INT32_MAX)
        yield Case(op, "err-out-of-memory", too_large, note="oom: an output of 16 TiB")


def _index_types(label: str) -> tuple[str, str]:
    """Distributes the four combinations of index types over the error cases."""
    return list(product(INDEX_TYPES, INDEX_TYPES))[len(label) % 4]


def _wrong_types(op: str) -> Iterator[Case]:
    wrong = {"indices": "int16", "segment_ids": "uint32", dim0_name(op): "int64"}
    for name, dtype in wrong.items():
        inputs = _draw(rng_for(op, "wrong", name), op, "float32")
        inputs[name] = tensor(dtype, inputs[name].array)
        yield Case(op, f"err-{name}-{dtype}", inputs, note="dtype")
    for dtype in INTEGERS + COMPLEX + ("bool", "string") + QUANTIZED + SMALL:
        rng = rng_for(op, "wrong", dtype)
        inputs = _draw(rng, op, "float32", rows=2, inner=(2,), count=3)
        inputs["grad"] = values(rng, dtype, (2, 2))
        yield Case(op, f"err-grad-{dtype}", inputs, note="dtype")


def random_case(rng: np.random.Generator, op: str, max_elements: int) -> Case:
    inner = tuple(int(d) for d in rng.integers(0 if rng.random() < 0.1 else 1, 9,
                                               rng.integers(0, 4)))
    room = max(max_elements // max(int(np.prod(inner)), 1), 1)
    count = log_uniform(rng, min(room * 2, max_elements))
    dim0 = log_uniform(rng, room)
    if not op.endswith("V2") and count == 0 and 0 not in inner:
        dim0 = 0  # otherwise TensorFlow returns uninitialised memory
    inputs = _draw(
        rng, op, pick(rng, FLOATS), pick(rng, INDEX_TYPES), pick(rng, INDEX_TYPES),
        rows=log_uniform(rng, room), inner=inner, count=count, dim0=dim0,
        palette=pick(rng, PALETTES), order=pick(rng, ("sorted", "unsorted")),
    )
    if op.endswith("V2") and dim0 and rng.random() < 0.2:
        _spread_indices(rng, inputs)
    if count and rng.random() < 0.15:
        inject(rng, inputs, faults(op))
    return Case(op, "random", inputs, note=flush_note(inputs["grad"]))


def _spread_indices(rng: np.random.Generator, inputs: Inputs) -> None:
    """Moves the indices of a V2 case far apart. Its output has only the rows that they name."""
    indices = inputs["indices"]
    stride = int(rng.integers(1, INT32_MAX // int(inputs["dense_output_dim0"].array)))
    inputs["indices"] = tensor(indices.dtype, indices.array.astype(np.int64) * stride)
    inputs["dense_output_dim0"] = tensor("int32", INT32_MAX)
