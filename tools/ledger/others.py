"""Other libraries with operators of this kind."""

from __future__ import annotations

from typing import Any

import numpy as np

from .calls import f32, f64, i32, i64, pool, pool_grad, pool_grad_rows, unstack
from .entry import Entry, Project, Refusal, Result, Script, issue, pull


def _of(project: str, report: tuple[str, str]) -> tuple[str, str]:
    return f"{project} {report[0]}", report[1]


def _indices_with_stride_0() -> dict[str, Any]:
    from raggrad import raw_ops

    indices = np.broadcast_to(np.int64(2), (4,))
    output = raw_ops.SparseSegmentSumGrad(grad=np.float32([[1], [2], [4], [8]]), indices=indices,
                                          segment_ids=np.arange(4), output_dim0=3)
    return {"output": output}


def _adagrad_with_duplicates() -> dict[str, Any]:
    from raggrad import IndexedSlices, optimizers

    table = np.ones((2, 1), np.float32)
    adagrad = optimizers.Adagrad.for_table(table, learning_rate=0.5, initial_accumulator=0.0)
    IndexedSlices(np.float32([[1], [3]]), np.int64([1, 1]), (2, 1)).apply_(table, adagrad)
    return {"table": table, "accumulator": adagrad.accumulator}


PROJECT = Project("Other libraries", (
    Entry(
        *_of("Caffe2", pull("facebookarchive/caffe2", 254)),
        "A row that a sparse gradient has twice got two momentum updates in one step, on GPUs in a random order.",
        (
            Script(_adagrad_with_duplicates, Result({
                "table": np.float32([[1], [0.5]]), "accumulator": np.float32([[0], [16]])})),
        ),
        "One step, with the sum of its gradients",
    ),
    Entry(
        *_of("FlagGems", issue("flagos-ai/FlagGems", 6448)),
        "scatter_add_ took an expanded index, with a stride of 0, for a contiguous one: wrong sums, or a crash.",
        (Script(_indices_with_stride_0, Result({"output": np.float32([[0], [0], [15]])})),),
        "Any strides are read as NumPy reads them",
    ),
    Entry(
        *_of("MXNet", issue("apache/mxnet", 11314)),
        "The gradient of an Embedding had NaN at random places on GPUs.",
        (
            pool_grad("Sum", f32(np.ones((640, 2))), i64(np.arange(640) * 7 % 5), i64(np.arange(640)), 6,
                      f32(np.float32([[128, 128]] * 5 + [[0, 0]]))),
        ),
        "128 for every row, each of which is used 128 times",
    ),
    Entry(
        *_of("OneFlow", issue("Oneflow-Inc/oneflow", 10649)),
        "scatter_add with an index out of range ended the process.",
        (
            pool_grad("Sum", f32([[1], [2], [4]]), i32([0, 10000, 2]), i32([0, 1, 2]), 5,
                      Refusal("Index 10000 out of range [0, 5).")),
        ),
    ),
    Entry(
        *_of("ONNX Runtime extensions", pull("microsoft/onnxruntime-extensions", 1077)),
        "segment_sum wrote out of bounds for negative segment ids.",
        (
            pool("Sum", f32([[1], [2]]), i64([0, 1]), i64([-2, 0]), Refusal("Segment id -2 out of range [0, 1)")),
            pool("Sum", f32([[1], [2]]), i64([0, 1]), i64([0, -2]), Refusal("segment ids must be >= 0")),
        ),
    ),
    Entry(
        *_of("Paddle", pull("PaddlePaddle/Paddle", 74831)),
        "index_add with no indices accessed illegal addresses on a GPU.",
        (
            pool_grad("Sum", f32(np.ones(4)), i32(np.zeros(0)), i32(np.zeros(0)), 10, f32(np.zeros(10))),
        ),
        "Nothing is added",
    ),
    Entry(
        *_of("pytorch_scatter", issue("rusty1s/pytorch_scatter", 322)),
        "segment_csr with the pointers [0] for ten values crashed.",
        (
            unstack([i64([0])], i64(np.arange(10)),
                    Refusal("last element of ragged splits must be the number of ragged values(10) but is 0")),
        ),
    ),
    Entry(
        *_of("pytorch_sparse", issue("rusty1s/pytorch_sparse", 277)),
        "coalesce failed on indices that repeat.",
        (
            pool_grad_rows("Sum", f64([[1, 2], [2, 3], [3, 4], [4, 5], [5, 6], [6, 7]]), i64([2, 1, 3, 1, 4, 2]),
                           i64(np.arange(6)), 6, (f64([[6, 8], [7, 9], [3, 4], [5, 6]]), i64([1, 2, 3, 4]))),
        ),
        "They are added",
    ),
    Entry(
        *_of("TensorFlow Addons", pull("tensorflow/addons", 2505)),
        "The gradient of EmbeddingBag with the combiner mean was wrong.",
        (
            pool_grad("Mean", f32([[4], [6]]), i32([0, 1, 2, 1]), i32([0, 0, 1, 1]), 3, f32([[2], [5], [3]])),
        ),
        "Each gradient divided by the size of its bag",
    ),
    Entry(
        *_of("tt-metal", issue("tenstorrent/tt-metal", 6232)),
        "The gradient of an Embedding was wrong when ids repeat.",
        (
            pool_grad("Sum", f32(np.arange(32).reshape(32, 1)), i32(np.zeros(32)), i32(np.arange(32)), 2,
                      f32([[496], [0]])),
        ),
        "The sum over all uses of a row",
    ),
))
