"""FBGEMM and torchrec: jagged tensors, table batched embeddings and their bounds checks."""

from __future__ import annotations

from typing import Any

import numpy as np

from goldens.encoding import Ragged, Variant

from .calls import empty, f32, i32, i64, pool, pool_grad, pool_grad_rows, unstack
from .entry import Call, Entry, Project, Refusal, Result, Script, pull

REPOSITORY = "pytorch/FBGEMM"


def _lookup_grad(ids: list[list[int]]) -> Any:
    from raggrad import Ragged as Rows
    from raggrad import ops

    table = np.float32([[1, 2], [3, 4], [5, 6]])
    grad = np.float32([[1, 1], [10, 0]])
    return ops.embedding_lookup_sparse_grad(grad, table, Rows.from_lists(ids, dtype="int64"), np.float32([2, 3, 4]),
                                            combiner="sum")


def _weights_have_a_gradient() -> dict[str, Any]:
    return {"weights": _lookup_grad([[0, 2], [1]]).weights}


def _weights_of_ids_out_of_range() -> dict[str, Any]:
    return {"weights": _lookup_grad([[0, 3], [1]]).weights}


_LAST = "last element of ragged splits must be the number of ragged values"
_HUGE = Variant((1,), [Ragged([], empty("float32", 2**32 + 3, 0))])

PROJECT = Project("FBGEMM", (
    Entry(
        *pull(REPOSITORY, 1187),
        "jagged_to_padded_dense of a jagged tensor without any values read out of bounds.",
        (unstack([i64([0, 0, 0])], empty("float32", 0), [Ragged([], empty("float32", 0))] * 2),),
        "Rows without values",
    ),
    Entry(
        *pull(REPOSITORY, 3877),
        "The gradient of weights accessed illegal addresses when ids were int32.",
        (Script(_weights_have_a_gradient, Result({"weights": np.float32([3, 11, 30])})),),
        "The dot products of rows and gradients",
    ),
    Entry(
        *pull(REPOSITORY, 3943),
        "The gradient of weights read the table at ids that nobody had checked.",
        (Script(_weights_of_ids_out_of_range, Refusal("an id is out of range")),),
    ),
    Entry(
        *pull(REPOSITORY, 3979),
        "The second version of the bounds check did not run at all, so bad ids went on to the kernels.",
        (
            pool("Sum", f32(np.ones((4, 2))), i64([0, 2**40]), i64([0, 0]),
                 Refusal("indices[1] == 1099511627776 out of range [0, 4)")),
        ),
        "There is no call without checks",
    ),
    Entry(
        *pull(REPOSITORY, 5741),
        "Malformed offsets were silently corrected on GPUs, with races between threads that corrected the same ones.",
        (
            unstack([i64([0, 3, 2, 4])], i64([1, 2, 3, 4]), Refusal("ragged splits must be monotonically increasing")),
            unstack([i64([0, 2, 9])], i64([1, 2, 3, 4]), Refusal(f"{_LAST}(4) but is 9")),
        ),
    ),
    Entry(
        *pull(REPOSITORY, 5755),
        "jagged_to_padded_dense computed places in 32 bits. Beyond 2^31 elements it wrote elsewhere and left garbage.",
        (
            Call("RaggedTensorFromVariant", {"encoded_ragged": _HUGE},
                 Result({"output_nested_splits": [i64([0, 2**32 + 3])],
                         "output_dense_values": empty("float32", 2**32 + 3, 0)}),
                 {"input_ragged_rank": 0, "output_ragged_rank": 1, "Tvalues": "float32", "Tsplits": "int64"}),
        ),
        "2^32 + 3 rows are counted as they are",
    ),
    Entry(
        *pull(REPOSITORY, 5877),
        "segment_sum_csr counted in 32 bits and overflowed.",
        (
            pool_grad_rows("Sum", empty("float32", 2**33 + 2, 0), i32([0]), i32([5]), 1,
                           (empty("float32", 1, 0), i32([0]))),
            pool_grad_rows("Mean", empty("float32", 2**40, 0), i32([0]), i64([2**40 - 1]), 1,
                           (empty("float32", 1, 0), i32([0]))),
        ),
        "Gradients of 2^33 and 2^40 rows are taken",
    ),
    Entry(
        *pull(REPOSITORY, 5879),
        "A garbage offset of about -1.4 * 10^18 became the size of a tensor.",
        (
            unstack([i64([0, 2, -(14 * 10**17)])], f32([1, 2]),
                    Refusal("ragged splits must be monotonically increasing")),
        ),
    ),
    Entry(
        *pull(REPOSITORY, 5891),
        "A garbage offset of 6737232377933725696 became the size of a tensor.",
        (unstack([i64([0, 2, 6737232377933725696])], f32([1, 2]), Refusal(f"{_LAST}(2) but is 6737232377933725696")),),
    ),
    Entry(
        *pull(REPOSITORY, 6215),
        "An id equal to the number of rows passed the check, and the row behind the table was read.",
        (
            pool("Sum", f32(np.ones((4, 2))), i64([4]), i64([0]), Refusal("indices[0] == 4 out of range [0, 4)")),
            pool_grad("Sum", f32(np.ones((1, 2))), i64([4]), i64([0]), 4, Refusal("Index 4 out of range [0, 4).")),
        ),
    ),
    Entry(
        *pull(REPOSITORY, 6318),
        "Eight offsets for two tables: the forward dropped the last bag, the backward wrote behind the gradient.",
        (
            pool_grad("Sum", f32(np.ones((6, 1))), i64(np.arange(7)), i64(np.arange(7)), 8,
                      Refusal("Invalid number of segments")),
        ),
    ),
    Entry(
        "torchrec pull request 4602", pull("meta-pytorch/torchrec", 4602)[1],
        "Weights took part in the forward but silently got no gradient.",
        (Script(_weights_have_a_gradient, Result({"weights": np.float32([3, 11, 30])})),),
        "The dot products of rows and gradients",
    ),
    Entry(
        "torchrec pull request 4638", pull("meta-pytorch/torchrec", 4638)[1],
        "A batch without examples had no offsets at all, and the bounds check read before them.",
        (unstack([empty("int64", 0)], empty("int64", 0), Refusal("must have at least one splits, but is empty")),),
    ),
))
