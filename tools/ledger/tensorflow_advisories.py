"""TensorFlow's security advisories on these operators and on plain segment sums."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from goldens.encoding import Ragged, Variant, tensor

from .calls import INT32_MAX, empty, f32, f64, fill, fill_grad, i32, i64, pool, unstack
from .entry import Call, Entry, Project, Refusal, Result, Script


def _advisory(name: str) -> str:
    if name.startswith("GHSA"):
        return f"https://github.com/tensorflow/tensorflow/security/advisories/{name}"
    return f"https://github.com/tensorflow/tensorflow/blob/v2.13.0/tensorflow/security/advisory/{name}.md"


def _batching(op: str, **arguments: Any) -> Callable[[], dict[str, Any]]:
    def play() -> dict[str, Any]:
        from raggrad.batching import Runtime

        return {"output": getattr(Runtime(), op)(**arguments)}

    return play


_ROWS = np.int64([[0, 0], [0, 0], [0, 0]])
_NO_SHAPE = fill(
    empty("int64", 0, 0), empty("int64", 0), empty("int64", 0), i64(0), Refusal("Dense shape cannot be empty.")
)
_SQUARES = Variant((3,), [Ragged([], i32(np.full((n, n), n))) for n in (3, 2, 1)])

PROJECT = Project("TensorFlow: advisories", (
    Entry(
        "CVE-2019-16778", _advisory("GHSA-844w-j86r-4x2j"),
        "UnsortedSegmentSum cut a 64-bit num_segments to 32 bits. The number could become negative, and the heap was "
        "accessed out of bounds.",
        (
            pool("Sum", f32([[1]]), i32([0]), i32([0]), Refusal("num_segments must be < 2^31"), i64(2**32 + 4)),
            pool("Sum", f32([[1]]), i32([0]), i32([0]), Refusal("num_segments must be < 2^31"), i64(2**31)),
        ),
    ),
    Entry(
        "CVE-2020-15194", _advisory("GHSA-9mqp-7v2h-2382"),
        "SparseFillEmptyRowsGrad did not check the rank of grad_values. An assertion ended the process.",
        (
            fill_grad(i64([0, 1]), f32([[1, 2], [3, 4]]), Refusal("grad_values must be a vector, saw: [2,2]")),
            fill_grad(i64([0]), f32(1), Refusal("grad_values must be a vector, saw: []")),
        ),
    ),
    Entry(
        "CVE-2020-15195", _advisory("GHSA-63xm-rx5p-xvqr"),
        "SparseFillEmptyRowsGrad read grad_values at any number of reverse_index_map: a heap overflow.",
        (
            fill_grad(i64([0, 7]), f32([1, 2, 3]), Refusal("Elements in reverse index must be in [0, 3) but got 7")),
            fill_grad(i64([-1]), f32([1, 2, 3]), Refusal("Elements in reverse index must be in [0, 3) but got -1")),
        ),
    ),
    Entry(
        "CVE-2020-15212", _advisory("tfsa-2020-004"),
        "Segment sums of TensorFlow Lite wrote before their output when a segment id was negative.",
        (pool("Sum", f32([[1], [2]]), i32([0, 1]), i32([-1, 0]), Refusal("Segment id -1 out of range [0, 1)")),),
    ),
    Entry(
        "CVE-2020-15213", _advisory("GHSA-hjmq-236j-8m87"),
        "The last segment id alone decided how much memory a segment sum of TensorFlow Lite asked for.",
        (
            pool("Sum", f32(np.ones((1, 1024))), i32([0]), i32([INT32_MAX - 1]),
                 Refusal("OOM when allocating tensor with shape[2147483647,1024]", "ResourceExhausted")),
        ),
        "The request is refused before anything is touched",
    ),
    Entry(
        "CVE-2020-15214", _advisory("tfsa-2020-002"),
        "Segment sums of TensorFlow Lite trusted that segment ids are sorted, and wrote past their output if not.",
        (pool("Sum", f32([[1], [2], [4]]), i32([0, 1, 2]), i32([0, 5, 1]), Refusal("segment ids are not increasing")),),
    ),
    Entry(
        "CVE-2021-29516", _advisory("GHSA-84mw-34w6-2q43"),
        "RaggedTensorToVariant read the first of the splits without asking whether there is one: a null pointer.",
        (
            unstack([empty("int64", 0)], f32([1, 2, 3]),
                    Refusal("ragged splits must have at least one splits, but is empty")),
        ),
    ),
    Entry(
        "CVE-2021-29565", _advisory("GHSA-r6pg-pjwc-j585"),
        "SparseFillEmptyRows read the first size of an empty dense_shape: a null pointer.",
        (_NO_SHAPE,),
    ),
    Entry(
        "CVE-2021-37666", _advisory("GHSA-w4xf-2pqw-5mq7"),
        "RaggedTensorToVariant with an empty list of splits: a reference to a null pointer.",
        (unstack([], i32([1, 2, 3]), [Ragged([], i32(value)) for value in (1, 2, 3)]),),
        "Values without splits are cut into scalars, one element each",
    ),
    Entry(
        "CVE-2021-37676", _advisory("GHSA-v768-w7m9-2vmm"),
        "The same input as for CVE-2021-29565 crashed the shape inference of SparseFillEmptyRows in a graph.",
        (_NO_SHAPE,),
    ),
    Entry(
        "CVE-2021-37679", _advisory("GHSA-g8wg-cjwc-xhhp"),
        "RaggedTensorFromVariant did not compare the inner shapes of its elements. The result had rows of "
        "uninitialised heap, or lost data.",
        (
            Call("RaggedTensorFromVariant", {"encoded_ragged": _SQUARES},
                 Refusal("All flat_values must have compatible shapes.  Shape at index 0: [3].  Shape at index 1: [2]"),
                 {"input_ragged_rank": 0, "output_ragged_rank": 1, "Tvalues": "int32", "Tsplits": "int64"}),
        ),
    ),
    Entry(
        "CVE-2021-41195", _advisory("GHSA-cq76-mxrc-vchh"),
        "A large segment id made the size of the output overflow, and an assertion ended the process.",
        tuple(
            pool(kind, f64(np.ones((1, 10, 1))), i64([0]), i64([1676240524292489355]),
                 Refusal("Encountered overflow when multiplying 1676240524292489356 with 10"))
            for kind in ("Sum", "Mean")
        ),
    ),
    Entry(
        "CVE-2021-41224", _advisory("GHSA-rg3m-hqc5-344v"),
        "SparseFillEmptyRows with more rows of indices than values read past the values.",
        tuple(
            fill(tensor("int64", _ROWS), values, i64([5, 3]), default, Refusal(
                "The length of `values` (1) must match the first dimension of `indices` (3)."))
            for values, default in ((tensor("string", [b"s" * 63]), tensor("string", b"o")), (i32([7]), i32(0)))
        ),
    ),
    Entry(
        "CVE-2022-35952", _advisory("GHSA-h5vq-gw2c-pq47"),
        "UnbatchGrad ended the process when id was no scalar, or when batch_index had rows of two numbers.",
        (
            Script(_batching("unbatch_grad", original_input=np.int32([1]), batch_index=np.int64([[0, 0, 0]]),
                             grad=np.int32([1]), id=np.int64([1, 1])),
                   Refusal("Expected `id` to be scalar.")),
            Script(_batching("unbatch_grad", original_input=np.int32([1]), batch_index=np.int64([[0, 0]]),
                             grad=np.int32([1]), id=np.int64(1)),
                   Refusal("batch_index should contain 3 elements. Received 2")),
        ),
    ),
    Entry(
        "CVE-2022-36002", _advisory("tfsa-2022-134"),
        "Unbatch ended the process when id was no scalar.",
        (
            Script(_batching("unbatch", batched_tensor=np.ones((3, 3, 1)), batch_index=np.ones((3, 3, 1), np.int64),
                             id=np.ones((3, 3, 1), np.int64), timeout_micros=47), Refusal("Input id should be scalar")),
        ),
    ),
    Entry(
        "CVE-2022-36018", _advisory("GHSA-m6cv-4fmf-66xf"),
        "RaggedTensorToVariant ended the process when splits were no vectors.",
        (
            unstack([i64(0), i64(32), i64(64)], i64([0, 32, 64]),
                    Refusal("Invalid ragged splits: ragged splits must be rank 1 but is rank 0")),
        ),
    ),
    Entry(
        "CVE-2022-41898", _advisory("tfsa-2022-160"),
        "SparseFillEmptyRowsGrad of empty inputs ended the process.",
        tuple(
            fill_grad(empty("int64", 0), empty(dtype, 0),
                      Result({"d_values": empty(dtype, 0), "d_default_value": tensor(dtype, 0)}))
            for dtype in ("float32", "half", "int64", "complex128")
        ),
        "An empty gradient and the default's gradient 0",
    ),
))
