"""Issues of TensorFlow: the operators themselves, their GPU kernels, and functions built on them."""

from __future__ import annotations

from typing import Any

import numpy as np

from goldens.encoding import Ragged, Variant

from .calls import (
    INT64_MAX,
    bf16,
    count,
    cut,
    empty,
    f32,
    f64,
    fill,
    fill_grad,
    i32,
    i64,
    pool,
    pool_grad,
    pool_grad_rows,
    unstack,
    unstack_grad,
)
from .entry import Entry, Project, Refusal, Result, Script, issue, pull

REPOSITORY = "tensorflow/tensorflow"


def _lookup_with_weights_of_zero() -> dict[str, Any]:
    from raggrad import Ragged, ops

    table = np.float32([[1, 2], [3, 4]])
    ids = Ragged.from_lists([[0, 1], [1]], dtype="int64")
    weights = np.float32([0, 0, 2])
    return {"output": ops.embedding_lookup_sparse(table, ids, weights, combiner="mean")}


def _adagrad_out_of_range() -> dict[str, Any]:
    from raggrad import IndexedSlices, errors, optimizers

    table = np.ones((3, 3), np.float32)
    adagrad = optimizers.Adagrad.for_table(table, learning_rate=0.1, initial_accumulator=0.5)
    try:
        IndexedSlices(np.ones((2, 3), np.float32), np.int64([0, 3]), (3, 3)).apply_(table, adagrad)
    except errors.InvalidArgumentError:
        assert (table == 1).all() and (adagrad.accumulator == 0.5).all(), "a failed step left something behind"
        raise
    return {}


def _adagrad_of_a_short_gradient() -> dict[str, Any]:
    from raggrad import IndexedSlices, optimizers

    table = np.ones((3, 3), np.float32)
    adagrad = optimizers.Adagrad.for_table(table, learning_rate=0.01)
    IndexedSlices(np.ones(2, np.float32), np.int64([0, 2]), (3, 3)).apply_(table, adagrad)
    return {}


def _unbatch(refusal: str, **arguments: Any) -> Script:
    def play() -> dict[str, Any]:
        from raggrad.batching import Runtime

        return {"output": Runtime().unbatch(id=np.int64(0), timeout_micros=1_000_000, **arguments)}

    return Script(play, Refusal(refusal))


def _unbatch_grad(original_input: Any, grad: Any) -> dict[str, Any]:
    from raggrad.batching import Runtime

    return {"output": Runtime().unbatch_grad(original_input=original_input, grad=grad, id=np.int64(1),
                                             batch_index=np.zeros((0, 3), np.int64))}


def _batch(threads: int) -> dict[str, Any]:
    from raggrad.batching import Runtime

    rows = np.float32([[1], [2], [3]])
    output = Runtime().batch(in_tensors=[rows], num_batch_threads=threads, max_batch_size=3, batch_timeout_micros=1000)
    return {"rows": output.batched_tensors[0]}


_TABLE = f32(np.arange(40).reshape(10, 4))
_PICKED = i32([8, 3, 0, 9])
_GROUPS = i32([1, 2, 2, 2])

PROJECT = Project("TensorFlow: issues", (
    Entry(
        *issue(REPOSITORY, 466),
        "unsorted_segment_sum ended the process without a message when a segment id was negative.",
        (
            pool("Sum", f32([[1], [2]]), i32([0, 1]), i32([-1, 0]),
                 Refusal("Segment id -1 out of range [0, 2)"), i32(2)),
            pool_grad("Sum", f32([[1], [2]]), i32([0, 1]), i32([-1, 0]), 2,
                      Refusal("Segment id -1 out of range [0, 2)")),
        ),
    ),
    Entry(
        *issue(REPOSITORY, 36359),
        "embedding_lookup_sparse with weights that sum to 0 and the combiner mean divided by zero: NaN.",
        (Script(_lookup_with_weights_of_zero, Result({"output": np.float32([[0, 0], [3, 4]])})),),
        "Zeros for an example whose weights are all 0",
    ),
    Entry(
        *issue(REPOSITORY, 46897),
        "Sparse segment sums of a scalar, with a large segment id, failed an assertion.",
        tuple(
            pool(kind, f32(1), i32([1]), i32([1205444461]), Refusal("Shape must be at least rank 1"))
            for kind in ("SqrtN", "Sum")
        ),
    ),
    Entry(
        *issue(REPOSITORY, 55475),
        "The gradient through tf.map_fn on a ragged tensor failed on GPUs: rows without a gradient had no zeros there.",
        (
            unstack_grad(Variant((2,), [None, Ragged([], f32([3, 4]))]), i64([0, 2, 4]), i32([4]), "float32",
                         f32([0, 0, 3, 4])),
        ),
        "A row without a gradient counts as zeros",
    ),
    Entry(
        *issue(REPOSITORY, 57765),
        "SparseFillEmptyRowsGrad of empty lists asked for a GPU kernel without threads, and the process ended.",
        (
            fill_grad(empty("int64", 0), empty("float32", 0),
                      Result({"d_values": empty("float32", 0), "d_default_value": f32(0)})),
            fill_grad(empty("int64", 0), f32([1, 2]),
                      Result({"d_values": empty("float32", 0), "d_default_value": f32(3)})),
        ),
        "An empty gradient; what no value has goes into the default's",
    ),
    Entry(
        *pull(REPOSITORY, 57785),
        "An invalid num_segments crashed the unsorted segment sums.",
        (
            pool("Sum", f32([[1]]), i32([0]), i32([0]), Refusal("num_segments should be a scalar, not shape [2]"),
                 i32([1, 2])),
        ),
    ),
    Entry(
        *issue(REPOSITORY, 58352),
        "RaggedTensorToVariant with levels of splits that do not fit together asked for a negative size and aborted.",
        (
            unstack([i64([0, 2, 3, 5, 6]), i64([0, 1, 2]), i64([0, 1, 2, 3, 4, 5])], i32(np.arange(1, 16)),
                    Refusal("last element of ragged splits must be the number of ragged values(15) but is 5")),
        ),
    ),
    Entry(
        *issue(REPOSITORY, 59084),
        "RaggedTensorToVariant of a scalar, with random splits, failed a check.",
        (
            unstack([i64([-7, 120, 4])], i32(3), Refusal("Requires flat_values to have rank>=1")),
            unstack([i32([9, -256, 200, 13, 0])], i32([3, 4]),
                    Refusal("Invalid ragged splits: first element of ragged splits  must be 0 but is 9")),
        ),
    ),
    Entry(
        *issue(REPOSITORY, 59086),
        "sparse_segment_sum of an empty array, with ids that it does not have, read memory that is not its own.",
        (pool("Sum", empty("float32", 0), _PICKED, _GROUPS, Refusal("indices[0] == 8 out of range [0, 0)")),),
    ),
    Entry(
        *issue(REPOSITORY, 59161),
        "sparse_segment_sum reported an illegal memory access on a GPU for good input.",
        (
            pool("Sum", _TABLE, _PICKED, _GROUPS, f32([[0, 0, 0, 0], [32, 33, 34, 35], [48, 51, 54, 57]])),
        ),
        "The sums, and zeros for the segment that is left out",
    ),
    Entry(
        *issue(REPOSITORY, 59355),
        "unsorted_segment_sum took -67794891775896 segments for 1166991464. The memory for them was too much.",
        (
            pool("Sum", f32([[1]]), i32([0]), i32([0]), Refusal("segment ids must be >= 0"), i64(-67794891775896)),
        ),
    ),
    Entry(
        *issue(REPOSITORY, 59385),
        "sparse_segment_sum without ids failed.",
        (
            pool("Sum", f64(np.ones((3, 3, 3))), empty("int32", 0), empty("int32", 0), empty("float64", 0, 3, 3)),
        ),
        "No segments",
    ),
    Entry(
        *issue(REPOSITORY, 59393),
        "SparseFillEmptyRows with indices of no columns and a dense_shape of two crashed.",
        (
            fill(empty("int64", 6, 0), i32([1, 2, 3, 4, 5, 6]), i64([-200, 17]), i32(0), Refusal(
                "The length of `dense_shape` (2) must match the second dimension of `indices` (0).")),
        ),
    ),
    Entry(
        *issue(REPOSITORY, 59928),
        "SparseFillEmptyRowsGrad and SparseSlice accessed illegal addresses on GPUs.",
        (
            fill_grad(i64([2**40, -(2**40)]), f32([1, 2]), Refusal("Elements in reverse index must be in [0, 2)")),
            cut(i64([[0, 1], [2**40, -1]]), f32([1, 2, 3]), i64([4, 4]), i64([0, 0]), i64([4, 4]),
                Refusal("Number of elements in indices (2) and values (3) do not match")),
        ),
    ),
    Entry(
        *issue(REPOSITORY, 63066),
        "SparseFillEmptyRows with a dense_shape of -1 asked for a vector of 2^64 - 1 entries, and the process ended.",
        (
            fill(i64([[1]]), i32([1]), i64([-1]), i32(0),
                 Refusal("Expected shape dimensions to be non-negative, got -1")),
        ),
    ),
    Entry(
        *issue(REPOSITORY, 65633),
        "Unbatch failed assertions: pieces of -1 rows, and a batch_index with too few or too many numbers.",
        (
            _unbatch("batch_index[0]: expected start <= end, got 2 and 1",
                     batched_tensor=np.ones((2, 3), np.float32), batch_index=np.int64([[0, 2, 1], [1, 0, 1]])),
            _unbatch("Wrong shape for index tensor.",
                     batched_tensor=np.ones((1, 2), np.float32), batch_index=np.ones(3, np.int64)),
            _unbatch("batch_index: expected shape [calls,3], got [1,3,6]",
                     batched_tensor=np.ones((1, 2), np.float32), batch_index=np.ones((1, 3, 6), np.int64)),
        ),
    ),
    Entry(
        *issue(REPOSITORY, 65636),
        "UnbatchGrad of an empty original_input failed an assertion.",
        (
            Script(lambda: _unbatch_grad(np.float32([]), np.float32([1])), Result({"output": np.float32([])})),
            Script(lambda: _unbatch_grad(np.float32(1), np.float32([1])),
                   Refusal("batch_index is empty while the tensor isn't.")),
            Script(lambda: _unbatch_grad(np.float32(1), np.float32(1)),
                   Refusal("grad: expected at least rank 1, got a scalar")),
        ),
        "An empty gradient; scalars are refused",
    ),
    Entry(
        *issue(REPOSITORY, 65729),
        "Batch with a very large num_batch_threads could not start its threads, and the process ended.",
        (
            Script(lambda: _batch(10_000), Result({"rows": np.float32([[1], [2], [3]])})),
            Script(lambda: _batch(93_389_718), Refusal("num_batch_threads must be at most 10000; was 93389718")),
        ),
        "No threads are started, whatever the number",
    ),
    Entry(
        *issue(REPOSITORY, 65791),
        "SparseFillEmptyRows crashed when dense_shape was too large.",
        (
            fill(i64([[0]]), f32([1]), i64([2**60]), f32(0),
                 Refusal("OOM when allocating tensor with shape[1152921504606846976]", "ResourceExhausted")),
        ),
    ),
    Entry(
        *issue(REPOSITORY, 72785),
        "The gradient of sparse_segment_sum and _mean without ids was whatever lay in memory.",
        tuple(
            pool_grad(kind, f32(np.ones((8, 3))), empty("int32", 0), empty("int32", 0), 5, f32(np.zeros((5, 3))))
            for kind in ("Sum", "Mean", "SqrtN")
        ),
        "Zeros",
    ),
    Entry(
        *issue(REPOSITORY, 80332),
        "RaggedTensorToVariantGradient ended the process when row_splits and dense_values_shape were no vectors.",
        (
            unstack_grad(Variant((), [None]), i32(np.full((2, 2, 2, 1, 8, 8, 2, 1), -7)), empty("int32", 0, 0, 4, 1),
                         "int32", Refusal("dense_values_shape must be a vector")),
        ),
    ),
    Entry(
        *issue(REPOSITORY, 80751),
        "Unbatch with a scalar batch_index failed an assertion.",
        (
            _unbatch("batch_index: expected shape [calls,3], got a scalar",
                     batched_tensor=np.arange(1, 10).reshape(3, 3), batch_index=np.int64(1)),
        ),
    ),
    Entry(
        *issue(REPOSITORY, 93136),
        "sparse.segment_mean refused an id that the data do not have on the CPU. A GPU answered otherwise.",
        (pool("Mean", f32([np.nan]), i32([1]), i32([0]), Refusal("indices[0] == 1 out of range [0, 1)")),),
    ),
    Entry(
        *issue(REPOSITORY, 93159),
        "sparse.segment_mean with num_segments = 0 gave a reason on GPUs that is not true of the input.",
        (pool("Mean", f32([np.inf]), i32([0]), i32([0]), Refusal("segment ids must be < num_segments"), i32(0)),),
    ),
    Entry(
        *pull(REPOSITORY, 99116),
        "SparseApplyAdagrad on a GPU silently skipped rows that the table does not have.",
        (Script(_adagrad_out_of_range, Refusal("Index 3 out of range [0, 3).")),),
        "The step fails as a whole; table and accumulator are as before",
    ),
    Entry(
        *issue(REPOSITORY, 104261),
        "SparseSegmentSum of an empty table read out of bounds on a GPU.",
        (
            pool("Sum", empty("float64", 0, 4), i32([48, 0, 116, 0]), i32([0, 0, 0, 0]),
                 Refusal("indices[0] == 48 out of range [0, 0)")),
        ),
    ),
    Entry(
        *issue(REPOSITORY, 106388),
        "SparseFillEmptyRowsGrad refused a reverse_index_map near 2^63 on the CPU, but gave a result for it on a GPU.",
        (
            fill_grad(i64([INT64_MAX - 2, INT64_MAX - 1]), i64(np.arange(15)), Refusal(
                "Elements in reverse index must be in [0, 15) but got 9223372036854775805")),
        ),
    ),
    Entry(
        *issue(REPOSITORY, 106494),
        "ResourceSparseApplyAdagradV2 with a gradient of fewer dimensions than the table ended the process.",
        (Script(_adagrad_of_a_short_gradient, Refusal("values and dense_shape do not agree")),),
    ),
    Entry(
        *pull(REPOSITORY, 108041),
        "SparseSegmentSqrtNGradV2 and SumGradV2 took negative ids on GPUs that they refuse on the CPU.",
        tuple(
            pool_grad_rows(kind, f32([[1], [2]]), i32([-1, 0]), i32([0, 1]), 2,
                           Refusal("Index -1 out of range [0, 2)."))
            for kind in ("SqrtN", "Sum")
        ),
    ),
    Entry(
        *issue(REPOSITORY, 113146),
        "SparseSegmentSqrtNGrad did not check ids on GPUs. An illegal address ended the process.",
        (
            pool_grad("SqrtN", f32([[1], [2]]), i32([0, 9]), i32([0, 1]), 4, Refusal("Index 9 out of range [0, 4).")),
            pool_grad("SqrtN", f32([[1], [2]]), i32([0, 3]), i32([-5, 1]), 4,
                      Refusal("Segment id -5 out of range [0, 2).")),
        ),
    ),
    Entry(
        *issue(REPOSITORY, 113148),
        "SparseSegmentSumGrad accessed illegal addresses on a GPU, and nothing could be run there afterwards.",
        (
            pool_grad("Sum", f32([[1], [2]]), i64([2**40, 0]), i64([0, 1]), 4,
                      Refusal("Index 1099511627776 out of range [0, 4).")),
            pool_grad("Sum", f32([[1], [2]]), i64([1, 0]), i64([0, 2**40]), 4, Refusal("Invalid number of segments")),
        ),
    ),
    Entry(
        *issue(REPOSITORY, 117549),
        "UnsortedSegmentSum with a num_segments near 2^63 overflowed and accessed memory that is not its own.",
        (
            pool("Sum", f32([[1, 2]]), i64([0]), i64([0]), Refusal("num_segments must be < 2^31"), i64(INT64_MAX)),
        ),
    ),
    Entry(
        *issue(REPOSITORY, 118196),
        "SparseFillEmptyRowsGrad gave zeros on a GPU for numbers that reverse_index_map must not have.",
        (fill_grad(i64([20, 21]), i64([3, 4, 5]), Refusal("Elements in reverse index must be in [0, 3) but got 20")),),
    ),
    Entry(
        *issue(REPOSITORY, 118200),
        "SparseSegmentSumGradV2 with negative indices and segment_ids ended the process on a GPU.",
        (
            pool_grad_rows("Sum", f64([1, 2, 3]), i64([-2]), i64([-2]), 2, Refusal("Index -2 out of range [0, 2).")),
        ),
    ),
    Entry(
        *issue(REPOSITORY, 126125),
        "Slice added begin and size in 64 bits. The sum wrapped around, passed the check, and an assertion failed.",
        (
            cut(i64([[1], [2]]), f32([1, 2]), i64([4]), i64([1]), i64([INT64_MAX]),
                Refusal("start + size must be below 2^63")),
        ),
    ),
    Entry(
        *issue(REPOSITORY, 127233),
        "An empty segment made the derivative of segment_mean NaN.",
        (
            pool("Mean", f32([2, 4, 3, 6, 9]), count(5), i32([0, 0, 2, 2, 2]), f32([3, 0, 6])),
            pool_grad("Mean", f32([1, 7, 3]), count(5), i32([0, 0, 2, 2, 2]), 5, f32([0.5, 0.5, 1, 1, 1])),
        ),
        "Zero for the empty segment, and nothing of it in the gradient",
    ),
    Entry(
        *issue(REPOSITORY, 127818),
        "unsorted_segment_mean of 512 bfloat16 zeros and ones was 1.0 instead of 0.5.",
        tuple(
            pool("Mean", bf16(np.arange(n) % 2), count(n), i32(np.zeros(n)), bf16([0.5]))
            for n in (256, 512, 1024)
        ),
        "0.5: sums and counts are wider than bfloat16",
    ),
))
