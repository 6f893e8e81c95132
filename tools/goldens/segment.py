"""Cases of SparseSegment{Mean,Sum,SqrtN} and ...WithNumSegments."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

from .encoding import COMPLEX, FLOATS, INTEGERS, QUANTIZED, SMALL, Case, Inputs, rng_for, tensor
from .faults import Fault, as_matrix, as_scalar, inject, put, replace, singles_and_pairs
from .values import PALETTES, flush_note, log_uniform, pick, values

OPERATORS = tuple(
    f"SparseSegment{kind}{form}" for form, kind in product(("", "WithNumSegments"), ("Mean", "Sum", "SqrtN"))
)
INDEX_TYPES = ("int32", "int64")
INDEX_PAIRS = tuple(product(INDEX_TYPES, INDEX_TYPES))


def _dtypes(op: str) -> tuple[str, ...]:
    return FLOATS + INTEGERS if "Sum" in op else FLOATS


def _has_num_segments(op: str) -> bool:
    return op.endswith("WithNumSegments")


def _draw(
    rng: np.random.Generator,
    op: str,
    dtype: str,
    index_type: str = "int32",
    segment_type: str = "int32",
    *,
    rows: int = 7,
    inner: tuple[int, ...] = (3,),
    count: int = 13,
    segments: int = 5,
    palette: str = "plain",
) -> Inputs:
    inputs = {
        "data": values(rng, dtype, (rows, *inner), palette),
        "indices": tensor(index_type, rng.integers(0, max(rows, 1), count)),
        "segment_ids": tensor(segment_type, np.sort(rng.integers(0, max(segments, 1), count))),
    }
    if _has_num_segments(op):
        inputs["num_segments"] = tensor(pick(rng, INDEX_TYPES), segments + int(rng.integers(0, 3)))
    return inputs


def faults(op: str) -> dict[str, Fault]:
    numbers = {
        "index-negative": put("indices", 0.3, -2),
        "index-beyond": put("indices", 0.8, lambda inputs: inputs["data"].array.shape[0]),
        "segment-negative": put("segment_ids", 0.0, -1),
        "segments-fall": put("segment_ids", 0.6, 0),
        "segment-last-negative": put("segment_ids", 1.0, -1),
        "length": replace("segment_ids", lambda array: array[:-1]),
    }
    ranks = {
        "data-scalar": as_scalar("data"),
        "segments-matrix": as_matrix("segment_ids"),
        "indices-scalar": as_scalar("indices"),
    }
    if not _has_num_segments(op):
        return numbers | ranks
    count = {
        "num-segments-small": replace("num_segments", lambda array: np.array(1)),
        "num-segments-negative": replace("num_segments", lambda array: np.array(-3)),
    }
    return numbers | count | ranks | {"num-segments-vector": replace("num_segments", lambda array: array.reshape(1))}


def _case(op: str, label: str, dtype: str, *index_types: str, note: str = "", **drawn: Any) -> Case:
    inputs = _draw(rng_for(op, label), op, dtype, *index_types, **drawn)
    return Case(op, label, inputs, note=note or flush_note(inputs["data"]))


def directed(op: str) -> Iterator[Case]:
    for dtype in _dtypes(op):
        yield _case(op, f"some-{dtype}", dtype, *INDEX_PAIRS[len(dtype) % 4])
        # Sums are made in groups of eight: all numbers of rows around multiples of it.
        yield _case(op, f"long-{dtype}", dtype, count=60, segments=4, inner=(5,))
    for dtype in FLOATS:
        for count in (1, 2, 7, 8, 9, 10, 16, 17, 18, 26):
            yield _case(op, f"rows-{count}-{dtype}", dtype, count=count, segments=1, inner=(2,), palette="wide")
        for palette in PALETTES[2:]:
            yield _case(op, f"values-{palette}-{dtype}", dtype, count=30, inner=(4,), palette=palette)
    for pair in INDEX_PAIRS:
        yield _case(op, f"types-{'-'.join(pair)}", "float32", *pair)
    for inner in ((), (1,), (2, 3), (0,), (2, 0, 3)):
        yield _case(op, f"inner-{'x'.join(map(str, inner)) or 'none'}", "float32", inner=inner)
    yield _case(op, "skipped-float32", "float32", count=5, segments=40)
    yield _case(op, "larger-float32", "float32", rows=50, count=200, segments=20, inner=(19,))
    yield _case(op, "empty-float32", "float32", count=0)
    yield _case(op, "empty-no-rows", "half", count=0, rows=0)
    zeros = _case(op, "negative-zeros", "float32", note="a sum of -0 is -0")
    zeros.inputs["data"].array[...] = -0.0
    yield zeros
    yield from _errors(op)
    yield from _wrong_types(op)


def _errors(op: str) -> Iterator[Case]:
    for label, chosen in singles_and_pairs(faults(op)):
        inputs = _draw(rng_for(op, label), op, "float32", *INDEX_PAIRS[len(label) % 4])
        for fault in chosen:
            fault(inputs)
        yield Case(op, f"err-{label}", inputs)
    rng = rng_for(op, "errors")
    for label, number in {"highest": 2**63 - 1, "lowest": -(2**63)}.items():
        for name in ("indices", "segment_ids"):
            inputs = _draw(rng, op, "float32", "int64", "int64")
            put(name, 1.0, number)(inputs)
            yield Case(op, f"err-{name}-last-{label}", inputs)


def _wrong_types(op: str) -> Iterator[Case]:
    wrong = {"indices": "int16", "segment_ids": "uint32"}
    for name, dtype in wrong.items():
        inputs = _draw(rng_for(op, "wrong", name), op, "float32")
        inputs[name] = tensor(dtype, inputs[name].array)
        yield Case(op, f"err-{name}-{dtype}", inputs, note="dtype")
    for dtype in ("bool", "string", *COMPLEX, QUANTIZED[0], SMALL[0], *(() if "Sum" in op else INTEGERS[2:4])):
        rng = rng_for(op, "wrong", dtype)
        inputs = _draw(rng, op, "float32", rows=2, inner=(2,), count=3)
        inputs["data"] = values(rng, dtype, (2, 2))
        yield Case(op, f"err-data-{dtype}", inputs, note="dtype")


def _at_the_edge_of_flushing(op: str, inputs: Inputs) -> bool:
    """Whether a quotient is the smallest normal number, or next to it.

    Machines differ there: aarch64 flushes what is below it before rounding, x86-64 after rounding.
    """
    data = inputs["data"]
    if "Sum" in op or data.dtype not in ("float32", "float64"):
        return False
    smallest = np.finfo(data.dtype).tiny
    with np.errstate(all="ignore"):
        rows = data.array.astype(np.longdouble)[inputs["indices"].array]
        for segment in np.unique(inputs["segment_ids"].array):
            own = rows[inputs["segment_ids"].array == segment]
            quotient = np.abs(own.sum(0) / (len(own) if "Mean" in op else np.sqrt(np.longdouble(len(own)))))
            if len(own) > 1 and np.any(np.abs(quotient - smallest) <= 1e-6 * smallest):
                return True
    return False


def random_case(rng: np.random.Generator, op: str, max_elements: int) -> Case:
    inner = tuple(int(d) for d in rng.integers(0 if rng.random() < 0.1 else 1, 9, rng.integers(0, 4)))
    max_elements //= 2
    room = max(max_elements // max(int(np.prod(inner)), 1), 1)
    rows = log_uniform(rng, room)
    count = log_uniform(rng, max_elements) if rows else 0
    inputs = _draw(
        rng, op, pick(rng, _dtypes(op)), pick(rng, INDEX_TYPES), pick(rng, INDEX_TYPES), rows=rows, inner=inner,
        count=count, segments=log_uniform(rng, room), palette=pick(rng, PALETTES),
    )
    if _has_num_segments(op) and count:  # not below the largest segment id
        least = int(inputs["segment_ids"].array[-1]) + 1
        inputs["num_segments"].array[...] = max(int(inputs["num_segments"].array), least)
    while _at_the_edge_of_flushing(op, inputs):
        with np.errstate(over="ignore"):
            inputs["data"].array[...] *= 2
    if count and rng.random() < 0.15:
        inject(rng, inputs, faults(op))
    return Case(op, "random", inputs, note=flush_note(inputs["data"]))
