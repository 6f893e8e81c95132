#!/usr/bin/env python3
"""Writes crashes.jsonl: inputs that TensorFlow does not survive or answers with garbage.

None of them is run through TensorFlow. `tf` is what TensorFlow 2.21.0 does: "garbage" (memory that was never written,
or a plainly wrong answer), "segfault" or "abort". `error.code` is raggrad's answer; "OK" means that `outputs` holds it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from goldens import fill_empty_rows, segment, sparse_slice
from goldens.encoding import (
    FLOATS,
    Case,
    Inputs,
    Ragged,
    Tensor,
    Variant,
    encode,
    rng_for,
    tensor,
)
from goldens.segment_grad import INT32_MAX, make_inputs
from goldens.segment_grad import OPERATORS as SEGMENT_GRADS
from goldens.values import values

VARIANT_GRAD = "RaggedTensorToVariantGradient"
FROM_VARIANT = "RaggedTensorFromVariant"
VARIES = "segfault*"  # or garbage or an abort, depending on the memory beside the buffers

Crash = dict[str, Any]


def _crash(case: Case, tf: str, code: str = "InvalidArgument",
           outputs: dict[str, Any] | None = None) -> Crash:
    crash = case.to_json() | {"error": {"code": "OK" if outputs else code}, "tf": tf.strip("*")}
    if tf == VARIES:
        crash["note"] = f"{case.note} (TensorFlow: garbage, abort or segfault)".strip()
    if outputs:
        crash["outputs"] = {name: encode(value) for name, value in outputs.items()}
    return crash


def segment_crashes(op: str) -> Iterator[Crash]:
    second_version = op.endswith("V2")

    def result(rows: int, dtype: str, inner: int, unique: list[int]) -> dict[str, Tensor]:
        outputs = {"output": tensor(dtype, np.zeros((rows, inner)))}
        if second_version:
            outputs["sorted_unique_indices"] = tensor("int32", unique)
        return outputs

    def many_rows(label: str, rows: int, segment_type: str, segment: int, tf: str,
                  note: str) -> Crash:
        grad = Tensor("float32", np.zeros((rows, 0), np.float32))
        inputs = make_inputs(op, grad, tensor("int32", [0]), tensor(segment_type, [segment]), 1)
        return _crash(Case(op, label, inputs, note=note), tf, outputs=result(1, "float32", 0, [0]))

    narrow = "int32 segment_ids: the number of rows is taken modulo 2^32"
    yield many_rows("rows-two-to-32", 2**32, "int32", 0, "garbage", narrow)
    yield many_rows("rows-two-to-33-plus-2", 2**33 + 2, "int32", 5, "garbage", narrow)
    if "Sum" not in op:
        yield many_rows("rows-two-to-40", 2**40, "int64", 0, "segfault",
                        "a table with an entry per row is made without asking for its memory")
    if second_version:
        return

    nothing = np.zeros(0)
    for dtype in FLOATS:
        for index_type, segment_type in (("int32", "int64"), ("int64", "int32")):
            label = f"nothing-summed-{dtype}-{index_type}"
            grad = values(rng_for(op, label), dtype, (2, 3))
            inputs = make_inputs(op, grad, tensor(index_type, nothing),
                                 tensor(segment_type, nothing), 4)
            yield _crash(Case(op, label, inputs, note="no indices: the output is never written"),
                         "garbage", outputs=result(4, dtype, 3, []))
    for dtype in ("half", "bfloat16"):
        label = f"scratch-{dtype}"
        grad = values(rng_for(op, label), dtype, (1, 1024))
        inputs = make_inputs(op, grad, tensor("int32", [0]), tensor("int32", [0]), INT32_MAX)
        note = "oom: an output of 4 TiB and a float32 copy of it, whose allocation is not checked"
        yield _crash(Case(op, label, inputs, note=note), "segfault", "ResourceExhausted")


def _ragged(dtype: str, shape: tuple[int, ...]) -> Ragged:
    return Ragged([], values(rng_for(VARIANT_GRAD, dtype, str(shape)), dtype, shape))


def _inputs(elements: list[Ragged | None], splits: object, shape: object,
            encoded_shape: tuple[int, ...] | None = None) -> Inputs:
    if encoded_shape is None:
        encoded_shape = (len(elements),)
    return {
        "encoded_ragged_grad": Variant(encoded_shape, elements),
        "row_splits": tensor("int64", splits),
        "dense_values_shape": tensor("int32", shape),
    }


def variant_refusals() -> Iterator[Crash]:
    """Inputs whose sizes cannot be right. raggrad refuses them."""
    one, two, three = (_ragged("float32", (n,)) for n in (1, 2, 3))
    scalar, gone = _ragged("float32", ()), None
    nested = Ragged([tensor("int64", [0, 2, 3])], three.values)
    other = _ragged("int64", (1,))
    good = [0, 2, 3]
    cases: dict[str, tuple[list[Ragged | None], Any, Any, str]] = {
        "values-too-few": ([two, one], good, [5], "garbage"),
        "values-too-many": ([two, one], good, [2], VARIES),
        "values-far-too-many": ([_ragged("float32", (400,)), one], good, [2], VARIES),
        "no-elements": ([], [0], [3], "garbage"),
        "shape-scalar-three-values": ([two, one], good, [], "garbage"),
        "missing-rank2": ([nested, gone], good, [5], "garbage"),
        "missing-splits-larger": ([gone, two], [0, 70, 90], [3], VARIES),
        "missing-splits-one-entry": ([two, gone], [0], [3], VARIES),
        "missing-splits-two-entries": ([two, gone], [0, 2], [3], VARIES),
        "missing-splits-scalar": ([scalar, gone], 0, [2], VARIES),
        "missing-one-splits-one-entry": ([gone], [0], [2], VARIES),
        "missing-shape-scalar": ([gone], [0, 2], [], "abort"),
        "missing-shape-scalar-two": ([gone, two], [0, 2, 4], [], "abort"),
        "missing-splits-two-to-32": ([gone, two], [0, 2**32, 2**32 + 2], [2], "segfault"),
        "shape-rank0": ([two, one], good, 3, "abort"),
        "shape-rank0-one-element": ([two], [0, 2], 2, "abort"),
        "shape-rank0-bad-splits": ([two, one], [4, 2], 3, "abort"),
        "shape-rank2": ([two, one], good, [[3]], "abort"),
        "one-other-type": ([two, other], good, [3], "abort"),
        "all-other-type": ([other, other], [0, 1, 2], [2], "abort"),
    }
    for label, (elements, splits, shape, tf) in cases.items():
        inputs = _inputs(elements, splits, shape)
        yield _crash(Case(VARIANT_GRAD, label, inputs, {"Tvalues": "float32"}), tf)


def variant_answers() -> Iterator[Crash]:
    """Inputs that have a right answer although they kill TensorFlow."""
    scalar = _inputs([None], 0, [2], ())
    yield _crash(Case(VARIANT_GRAD, "missing-scalar-splits-scalar", scalar,
                      {"Tvalues": "float32"}, "zeros of dense_values_shape"),
                 VARIES, outputs={"dense_values_grad": tensor("float32", [0, 0])})

    words = _ragged("string", (2,))
    both = list(words.values.array)
    strings: dict[str, tuple[list[Ragged | None], list[int], list[int], list[bytes]]] = {
        "missing": ([words, None], [0, 2, 3], [3], [*both, b""]),
        "missing-one": ([None], [0, 2], [2], [b"", b""]),
        "missing-without-rows": ([words, None], [0, 2, 2], [2], both),
    }
    for label, (elements, splits, shape, expected) in strings.items():
        inputs = _inputs(elements, splits, shape)
        case = Case(VARIANT_GRAD, f"string-{label}", inputs, {"Tvalues": "string"},
                    "missing strings are empty strings")
        outputs = {"dense_values_grad": tensor("string", expected)}
        yield _crash(case, "segfault", outputs=outputs)


def from_variant_crashes() -> Iterator[Crash]:
    """Elements whose splits are empty, and more rows than 32 bits can count."""
    empty, good = tensor("int64", []), tensor("int64", [0, 2])
    none, two = tensor("float32", []), tensor("float32", [1, 2])

    def case(label: str, elements: list[Ragged | None], rank: int, **more: Any) -> Case:
        attrs = {"input_ragged_rank": rank, "output_ragged_rank": rank + 1, "Tvalues": "float32",
                 "Tsplits": "int64"}
        inputs = {"encoded_ragged": Variant((len(elements),), elements)}
        return Case(FROM_VARIANT, label, inputs, attrs, **more)

    yield _crash(case("empty-splits", [Ragged([empty], none)], 1), "segfault")
    yield _crash(case("empty-splits-and-good", [Ragged([good], two), Ragged([empty], none)], 1), "garbage")
    yield _crash(case("empty-inner-splits", [Ragged([tensor("int64", [0]), empty], none)], 2), "segfault")

    def rows(label: str, counts: list[int], tf: str) -> Crash:
        elements: list[Ragged | None] = [
            Ragged([], Tensor("float32", np.zeros((n, 0), np.float32))) for n in counts
        ]
        outputs = {
            "output_nested_splits": [tensor("int64", np.cumsum([0, *counts]))],
            "output_dense_values": Tensor("float32", np.zeros((sum(counts), 0), np.float32)),
        }
        return _crash(case(label, elements, 0, note="rows are counted in 32 bits"), tf, outputs=outputs)

    yield rows("rows-two-to-31", [2**31 - 1, 2**31 - 1], "abort")
    yield rows("rows-two-to-33-plus-5", [2**33 + 5], "garbage")


def segment_forward_crashes(op: str) -> Iterator[Crash]:
    """More segments than TensorFlow can count: it takes the low 32 bits."""
    data = values(rng_for(op, "data"), "float32", (3, 2))
    for label, ids, count in (("low-bits-four", [0, 1], 2**40 + 4), ("low-bits-zero", [], 2**40)):
        inputs = {
            "data": data,
            "indices": tensor("int32", ids),
            "segment_ids": tensor("int32", ids),
            "num_segments": tensor("int64", count),
        }
        yield _crash(Case(op, f"num-segments-{label}", inputs), "garbage")


def fill_crashes(op: str) -> Iterator[Crash]:
    rng = rng_for(op, "crashes")
    inputs = fill_empty_rows.make_inputs(rng, op, np.array([0]), 2**33, "float32")
    yield _crash(Case(op, "rows-two-to-33", inputs, note="oom: a table with 8 bytes per row is not asked for"),
                 "segfault", "ResourceExhausted")


def slice_crashes(op: str) -> Iterator[Crash]:
    boxes = {
        "start-plus-size": ([4, 5], [1, 1], [2**63 - 1, 2**63 - 1], "the sum wraps, all entries are lost"),
        "size-lowest": ([4, 5], [0, 0], [-(2**63), 5], "shape - size wraps, a negative size is accepted"),
        "size-lowest-start-negative": ([4, 5], [-5, 0], [-(2**63), 5], "both wrap, all entries are kept"),
    }
    for label, (shape, start, size, note) in boxes.items():
        entries = [[0, 0], [1, 2], [3, 3]]
        inputs = sparse_slice.make_inputs(rng_for(op, label), "float32", entries, shape, start, size)
        yield _crash(Case(op, label, inputs, note=note), "garbage")


def all_crashes() -> Iterator[Crash]:
    for op in SEGMENT_GRADS:
        yield from segment_crashes(op)
    yield from variant_refusals()
    yield from variant_answers()
    yield from from_variant_crashes()
    for op in segment.OPERATORS:
        if op.endswith("WithNumSegments"):
            yield from segment_forward_crashes(op)
    for op in fill_empty_rows.OPERATORS:
        yield from fill_crashes(op)
    for op in sparse_slice.OPERATORS:
        yield from slice_crashes(op)


def write(path: Path) -> None:
    with open(path, "w") as file:
        for crash in all_crashes():
            file.write(json.dumps(crash, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    write(Path(__file__).resolve().parents[2] / "goldens" / "crashes.jsonl")
