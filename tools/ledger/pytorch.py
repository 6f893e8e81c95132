"""PyTorch: embedding_bag and Embedding, index_add, scatter_add, sparse tensors and SparseAdam.

A bag given by offsets is a ragged row: offsets are splits, which RaggedTensorToVariant checks. Pooling is a
SparseSegment operator, and its gradient is that operator's gradient. index_add into zeros is such a gradient, too.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .calls import (
    INT32_MAX,
    bf16,
    count,
    cut,
    empty,
    f16,
    f32,
    f64,
    i32,
    i64,
    pool,
    pool_grad,
    pool_grad_rows,
    unstack,
)
from .entry import Call, Entry, Project, Refusal, Result, Script, issue, pull

REPOSITORY = "pytorch/pytorch"


def _plan_survives_its_ids() -> dict[str, Any]:
    import raggrad

    ids = np.zeros(8, np.int32)
    plan = raggrad.SegmentPlan(ids, np.zeros(8, np.int32), num_rows=5, num_segments=1)
    ids.fill(INT32_MAX)  # changes the ids after the plan was made, as an alias could
    return {"grad": raggrad.ops.sparse_segment_sum_grad(np.ones((1, 2), np.float16), plan=plan).to_dense()}


def _adam_without_rows() -> dict[str, Any]:
    from raggrad import IndexedSlices, optimizers

    table = np.float32([[1], [2], [3]])
    adam = optimizers.Adam.for_table(table, learning_rate=0.1)
    IndexedSlices(np.zeros((0, 1), np.float32), np.zeros(0, np.int64), (3, 1)).apply_(table, adam)
    return {"table": table, "m": adam.m, "v": adam.v}


def _grad_with_stride_0() -> dict[str, Any]:
    from raggrad import raw_ops

    grad = np.broadcast_to(np.float32([[1, 2]]), (3, 2))
    return {"output": raw_ops.SparseSegmentSumGrad(grad=grad, indices=[0, 1, 1], segment_ids=[0, 1, 2], output_dim0=2)}


def _slices_of_a_scalar() -> dict[str, Any]:
    from raggrad import IndexedSlices

    return {"output": IndexedSlices(np.ones((1, 1, 1), np.float32), np.int64([0]), ()).to_dense()}


def _coalesce_out_of_range() -> dict[str, Any]:
    from raggrad import IndexedSlices

    return {"output": IndexedSlices(np.ones(2, np.float32), np.int64([1, -1]), (3,)).coalesce().values}


def _sequential_sums(grad: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """float32 sums of the rows with the same number, in their order."""
    sums = np.zeros((rows.max() + 1, grad.shape[1]), np.float32)
    for row, values in zip(rows, grad, strict=True):
        sums[row] += values
    return sums


_NUMBERS = np.random.default_rng(187687)
_MANY = _NUMBERS.standard_normal((1024, 3)).astype(np.float32)
_FEW_ROWS = _NUMBERS.integers(0, 7, 1024).astype(np.int32)
_SPREAD = np.random.default_rng(42).integers(0, 100_000, 64).astype(np.int32)
_SPREAD_ROWS, _SPREAD_COUNTS = np.unique(_SPREAD, return_counts=True)

_LAST = "last element of ragged splits must be the number of ragged values"
_FALLS = "ragged splits must be monotonically increasing, but ragged_splits[2]=0 is smaller than row_splits[1]=2"
_EMPTY = "ragged splits must have at least one splits, but is empty"

EMBEDDINGS = Project("PyTorch: embeddings", (
    Entry(
        *issue(REPOSITORY, 4169),
        "The mean of an empty bag was infinite.",
        (
            pool("Mean", f32(np.arange(15).reshape(5, 3)), count(5), i32([0, 2, 2, 4, 5]),
                 f32([[0, 1, 2], [0, 0, 0], [4.5, 5.5, 6.5], [0, 0, 0], [9, 10, 11], [12, 13, 14]]), i32(6)),
        ),
        "Zeros for an empty bag",
    ),
    Entry(
        *issue(REPOSITORY, 11739),
        "Empty bags were NaN on GPUs.",
        tuple(
            pool(kind, f32(np.full((5, 2), 3)), i64([4]), i64([1]), f32([[0, 0], [3, 3], [0, 0]]), i64(3))
            for kind in ("Sum", "Mean", "SqrtN")
        ),
        "Zeros",
    ),
    Entry(
        *issue(REPOSITORY, 17919),
        "Sparse gradients of an Embedding that were accumulated twice held random numbers.",
        (
            pool_grad_rows("Sum", f32(np.ones((6, 3))), i64([7, 1, 3, 7, 1, 3]), i64(np.arange(6)), 10,
                           (f32(np.full((3, 3), 2)), i64([1, 3, 7]))),
        ),
        "Every row once, with the sum of its gradients",
    ),
    Entry(
        *pull(REPOSITORY, 21400),
        "The mean of the only bag was NaN if it was empty.",
        (
            pool("Mean", f32(np.ones((100, 10))), empty("int64", 0), empty("int64", 0), f32(np.zeros((1, 10))), i64(1)),
        ),
        "Zeros",
    ),
    Entry(
        *issue(REPOSITORY, 55549),
        "embedding_bag took offsets that decrease, and gave something.",
        (unstack([i64([0, 2, 0, 4])], i64([1, 2, 3, 4]), Refusal(_FALLS)),),
    ),
    Entry(
        *issue(REPOSITORY, 70170),
        "EmbeddingBag took ids that the table does not have, and its gradient crashed.",
        (
            pool("Mean", f32(np.ones((3, 4))), i64([0, 2, 100, 2]), i64([0, 0, 0, 0]),
                 Refusal("indices[2] == 100 out of range [0, 3)")),
            pool_grad("Mean", f32(np.ones((1, 4))), i64([0, 2, 100, 2]), i64([0, 0, 0, 0]), 3,
                      Refusal("Index 100 out of range [0, 3).")),
        ),
    ),
    Entry(
        *issue(REPOSITORY, 85213),
        "embedding_bag crashed on ids and offsets of five and more dimensions.",
        (
            pool("Sum", empty("float64", 8, 8, 0, 0, 0), empty("int64", 8, 8, 0, 0, 0), i64([1, 1, 1, 1]),
                 Refusal("indices should be a vector.")),
            unstack([empty("int64", 2, 0, 0, 6, 6)], f64([1, 2]),
                    Refusal("ragged splits must be rank 1 but is rank 5")),
        ),
    ),
    Entry(
        *pull(REPOSITORY, 90358),
        "embedding_bag wrote past its output when the last offset was not the number of ids.",
        (
            unstack([i64([0, 6, 12, 15, 25, 32, 40, 42, 46, 53, 53])], i64(np.arange(55)),
                    Refusal(f"{_LAST}(55) but is 53")),
        ),
    ),
    Entry(
        *issue(REPOSITORY, 94445),
        "The gradient of embedding_bag with rows of more than one dimension had the wrong shape.",
        (
            pool_grad("Mean", f32(np.arange(24).reshape(2, 3, 4)), i64([0, 1, 0, 1]), i64([0, 0, 1, 1]), 2,
                      f32(np.tile((np.arange(12) + np.arange(12, 24)).reshape(3, 4) / 2, (2, 1, 1)))),
        ),
        "Rows of any shape",
    ),
    Entry(
        *issue(REPOSITORY, 143483),
        "embedding_bag crashed on ids of -2^31 and no offsets.",
        (
            unstack([empty("int64", 0)], i64(np.full(5, -(2**31))), Refusal(_EMPTY)),
            pool("Sum", f32(np.full((3, 4), 1.11111e15)), i64(np.full(5, -(2**31))), i64(np.zeros(5)),
                 Refusal("indices[0] == -2147483648 out of range [0, 3)")),
        ),
    ),
    Entry(
        *issue(REPOSITORY, 175368),
        "embedding_bag checked only the first and the last offset. With [0, 2, 0] and no ids it crashed.",
        (unstack([i64([0, 2, 0])], empty("int64", 0), Refusal(_FALLS)),),
    ),
    Entry(
        *issue(REPOSITORY, 175370),
        "embedding_bag in float64 with ids but without offsets crashed.",
        (
            unstack([empty("int64", 0)], i64(np.zeros(6)), Refusal(_EMPTY)),
            pool("Sum", f64(np.zeros((1, 10))), i64(np.zeros(6)), i64(np.zeros(6)),
                 Refusal("segment ids must be < num_segments"), i64(0)),
        ),
    ),
    Entry(
        *pull(REPOSITORY, 187687),
        "Threads of the embedding gradient on GPUs overwrote numbers that others still read: rarely, a wrong sum.",
        (
            pool_grad_rows("Sum", f32(_MANY), i32(_FEW_ROWS), count(1024), 7,
                           (f32(_sequential_sums(_MANY, _FEW_ROWS)), count(7))),
        ),
        "The bits of the sum in the input's order, every time",
    ),
    Entry(
        *issue(REPOSITORY, 188467),
        "A report on embedding_bag or index_add whose text was not at hand for this ledger. The replay has ids that "
        "the table does not have.",
        (
            pool("Sum", f32(np.ones((4, 2))), i64([0, 4]), i64([0, 0]),
                 Refusal("indices[1] == 4 out of range [0, 4)")),
            pool_grad("Sum", f32(np.ones((1, 2))), i64([0, 4]), i64([0, 0]), 4,
                      Refusal("Index 4 out of range [0, 4).")),
        ),
    ),
    Entry(
        *issue(REPOSITORY, 189668),
        "The gradient of an Embedding with rows of size 0 read a null pointer on a GPU.",
        (
            pool_grad("Sum", empty("float32", 3, 0), i64([0, 0, 0]), i64([0, 1, 2]), 10, empty("float32", 10, 0)),
            pool_grad_rows("Sum", empty("float32", 3, 0), i64([0, 0, 0]), i64([0, 1, 2]), 10,
                           (empty("float32", 1, 0), i64([0]))),
        ),
        "A gradient of rows of size 0",
    ),
    Entry(
        *pull(REPOSITORY, 191608),
        "embedding_bag with include_last_offset and a single offset read out of bounds.",
        (unstack([i64([0])], i64([1, 2, 3]), Refusal(f"{_LAST}(3) but is 0")),),
    ),
    Entry(
        *issue(REPOSITORY, 192445),
        "Ids that were changed between an embedding_bag and its gradient were not checked again: reads out of bounds.",
        (
            pool_grad_rows("Sum", f16(np.ones((1, 2))), i32(np.full(1024, INT32_MAX)), i32(np.zeros(1024)), 5,
                           Refusal("Index 2147483647 out of range [0, 5).")),
            Script(_plan_survives_its_ids, Result({"grad": np.float16([[8, 8], [0, 0], [0, 0], [0, 0], [0, 0]])})),
        ),
        "Every call checks the ids that it reads; a plan keeps its own",
    ),
    Entry(
        *issue(REPOSITORY, 193095),
        "embedding_bag did not check offsets on GPUs: with -10^12 it read 8 TB before the ids.",
        (
            unstack([i64(np.full(5, -(10**12)))], i64(np.zeros(5)),
                    Refusal("first element of ragged splits  must be 0 but is -1000000000000")),
        ),
    ),
    Entry(
        *issue(REPOSITORY, 193691),
        "The gradient of embedding_bag without offsets took uninitialised numbers for bags.",
        (
            pool_grad("Sum", empty("half", 0, 1), i32(np.zeros(4096)),
                      i32(np.full(4096, INT32_MAX)), 100, Refusal("Invalid number of segments")),
            unstack([empty("int32", 0)], i32(np.zeros(4096)), Refusal(_EMPTY)),
        ),
    ),
    Entry(
        *issue(REPOSITORY, 193704),
        "Sparse gradients of an Embedding were 100,000 times too large on one GPU.",
        (
            pool_grad_rows("Sum", f32(np.ones((64, 4))), i32(_SPREAD), count(64), 100_000,
                           (f32(np.repeat(_SPREAD_COUNTS[:, None], 4, 1)), i32(_SPREAD_ROWS))),
        ),
        "How often each row was used",
    ),
))

INDEXING = Project("PyTorch: index_add, scatter_add, sparse tensors", (
    Entry(
        *issue(REPOSITORY, 1653),
        "scatter_ with more indices than source rows read past the source.",
        (
            pool_grad("Sum", f32(np.arange(8).reshape(2, 4)), i64([0, 1, 2]), i64([0, 1, 2]), 3,
                      Refusal("Invalid number of segments")),
        ),
    ),
    Entry(
        *issue(REPOSITORY, 4093),
        "Making a sparse tensor dense with indices beyond its size corrupted the heap.",
        (
            pool_grad("Sum", f32(np.ones(1000)), i64(np.arange(1000) % 10), i64(np.arange(1000)), 4,
                      Refusal("Index 4 out of range [0, 4).")),
        ),
    ),
    Entry(
        *issue(REPOSITORY, 57416),
        "coalesce numbered the places of a tensor of (10^6)^4 elements in 64 bits, and the indices became negative.",
        (
            Call("SparseSliceGrad",
                 {"backprop_val_grad": f32([2.5]), "input_indices": i64([[290, 999_999, 5, 7], [999_999] * 4]),
                  "input_start": i64([999_990] * 4), "output_indices": i64([[9] * 4])},
                 Result({"val_grad": f32([0, 2.5])})),
            cut(i64([[999_999] * 4]), f32([1]), i64([10**6] * 4), i64([0] * 4), i64([10**6] * 4),
                Refusal("Encountered overflow when multiplying")),
        ),
        "Places are compared column by column; a shape whose size no number has is refused",
    ),
    Entry(
        *issue(REPOSITORY, 82486),
        "SparseAdam failed on a gradient without rows.",
        (
            Script(_adam_without_rows, Result({
                "table": np.float32([[1], [2], [3]]), "m": np.zeros((3, 1), np.float32),
                "v": np.zeros((3, 1), np.float32)})),
        ),
        "Nothing changes",
    ),
    Entry(
        *issue(REPOSITORY, 114864),
        "index_add on a scalar with a source of three dimensions crashed.",
        (
            Script(_slices_of_a_scalar, Refusal("values and dense_shape do not agree")),
            pool_grad("Sum", f32(4), i64([0]), i64([0]), 1, Refusal("Index must be less than 0, got 0")),
        ),
    ),
    Entry(
        *issue(REPOSITORY, 122117),
        "index_add with an index that is a scalar and a source of four dimensions crashed.",
        (
            pool_grad("Sum", f32(np.ones((1, 3, 4, 4))), i64(19), i64(0), 1, Refusal("indices should be a vector.")),
        ),
    ),
    Entry(
        *issue(REPOSITORY, 139242),
        "index_reduce_ with mean counted in bfloat16, which cannot go beyond 256.",
        (pool("Mean", bf16(np.ones(300)), count(300), i32(np.zeros(300)), bf16([1])),),
        "1 for 300 ones",
    ),
    Entry(
        *issue(REPOSITORY, 153329),
        "coalesce took indices that the tensor does not have; the crash came later.",
        (Script(_coalesce_out_of_range, Refusal("Index -1 out of range [0, 3).")),),
    ),
    Entry(
        *issue(REPOSITORY, 182662),
        "A sparse tensor with the index -4702111234474983746 crashed when it was made dense.",
        (
            pool_grad("Sum", f32([-16]), i64([-4702111234474983746]), i64([0]), 1,
                      Refusal("Index -4702111234474983746 out of range [0, 1).")),
        ),
    ),
    Entry(
        *issue(REPOSITORY, 183986),
        "A compiled index_add on a tensor with a stride of 0 silently gave wrong numbers.",
        (Script(_grad_with_stride_0, Result({"output": np.float32([[1, 2], [2, 4]])})),),
        "Any strides are read as NumPy reads them",
    ),
))
