"""A program as a user with strict types writes it. test_types.py lets mypy read it, and runs it."""

from __future__ import annotations

import asyncio
import copy
import pickle
from concurrent.futures import Future
from typing import Any

import numpy as np
import numpy.typing as npt
import raggrad
from raggrad import IndexedSlices, Ragged, SegmentPlan, Tensor, VariantArray, batching, errors, ops, optimizers, raw_ops
from raggrad.typing import ArrayLike, DTypeLike

Floats = npt.NDArray[np.float32]


def settings() -> tuple[int, int | None, int, str]:
    raggrad.set_num_threads(2)
    raggrad.set_memory_limit(None)
    raggrad.set_memory_limit(1 << 30)
    raggrad.set_memory_pool(raggrad.get_memory_pool())
    with raggrad.accumulation("fast"):
        raw_ops.SparseFillEmptyRowsGrad(reverse_index_map=[], grad_values=[0.5])
    return raggrad.get_num_threads(), raggrad.get_memory_limit(), raggrad.get_memory_pool(), raggrad.__version__


def tensors(data: ArrayLike, dtype: DTypeLike) -> list[Any]:
    tensor = Tensor(data, dtype)
    first: Tensor = tensor[0]
    array: npt.NDArray[Any] = tensor.numpy()
    shape: tuple[int, ...] = tensor.shape
    name: str = tensor.dtype
    device: tuple[int, int] = tensor.__dlpack_device__()
    return [first.tolist(), array.sum(), shape, name, device, len(tensor), np.asarray(tensor), np.from_dlpack(tensor)]


def ragged_data() -> Ragged:
    ragged = Ragged.from_lists([[1, 2], [], [3]], "int64", splits_dtype="int32")
    same: bool = ragged == ragged[:] and ragged.dtype == "int64"
    rank: int = ragged.ragged_rank
    rows: int | None = ragged.shape[0]
    assert same
    assert (rank, rows, len(ragged)) == (1, 3, 3)
    chosen: Ragged = ragged[1:]
    chosen = ragged[[0, 2]]
    chosen = ragged[np.array([True, False, True])]
    chosen = ragged[Ragged(ragged.nested_splits, ragged.values > 1)]
    lists: list[Any] = chosen.to_lists()
    pieces: VariantArray = ops.unstack(ragged)
    assert (pieces.shape, lists) == ((3,), [[2], [], [3]])
    return ops.stack(pieces)


def training(table: Floats, bags: Ragged) -> Floats:
    pooled: Any = ops.embedding_lookup_sparse(table, bags, combiner="mean")
    grad: IndexedSlices = ops.embedding_lookup_sparse_grad(pooled, table, bags, combiner="mean").params
    for optimizer in (
        optimizers.SGD(learning_rate=0.1),
        optimizers.Adagrad.for_table(table, learning_rate=0.1),
        optimizers.Adam.for_table(table, learning_rate=0.1),
        optimizers.RowwiseAdagrad.for_table(table, learning_rate=0.1),
    ):
        grad.apply_(table, optimizer)
    plan = SegmentPlan(indices=[0, 1], segment_ids=[0, 0], num_rows=len(table), num_segments=1)
    assert pickle.loads(pickle.dumps(plan)).num_ids == copy.copy(plan).num_ids == 2
    slices: IndexedSlices = ops.sparse_segment_sum_grad(np.ones((1, 2), np.float32), plan=plan)
    summed: Floats = ops.segment_sum(table, segment_ids=np.arange(len(table)) % 3, num_segments=3)
    assert summed.shape == (3, 2)
    dense: Floats = slices.coalesce().to_dense()
    return dense


def operators() -> None:
    out = raw_ops.SparseSegmentMeanGradV2(
        grad=np.ones((1, 2), np.float32), indices=[7, 2], segment_ids=[0, 0], dense_output_dim0=10, T="float32"
    )
    print(out.sorted_unique_indices, out.output)
    filled = raw_ops.SparseFillEmptyRows(indices=[[0, 0]], values=[1.0], dense_shape=[2, 2], default_value=0.0)
    sliced = raw_ops.SparseSlice(
        indices=filled.output_indices, values=filled.output_values, shape=[2, 2], start=[0, 0], size=[1, 2]
    )
    print(sliced.output_values)
    try:
        raw_ops.SparseFillEmptyRowsGrad(reverse_index_map=[5], grad_values=[1.0])
    except errors.InvalidArgumentError as error:
        code: str = error.code
        assert code == "INVALID_ARGUMENT"


async def later(runtime: batching.Runtime) -> Any:
    call = {"batched_tensor": [[1.0]], "batch_index": [[7, 0, 1]], "id": 7}
    return await runtime.unbatch_async(**call)


def batches() -> int:
    token = batching.Cancellation(batching.Cancellation())
    with batching.Runtime(batching.Limits(max_pieces=10)) as runtime:
        waiting: Future[Any] = runtime.unbatch_grad_future(
            original_input=[[0.0], [0.0]], batch_index=[[1, 0, 1], [2, 1, 2]], grad=[[1.0]], id=1, cancellation=token
        )
        runtime.unbatch_grad(original_input=[], batch_index=[], grad=[[20.0]], id=2)
        assert waiting.result().tolist() == [[1.0], [20.0]]
        assert asyncio.run(later(runtime)).tolist() == [[1.0]]
        resource: batching.Resource = runtime.resource("UnbatchGrad")
        statistics: batching.Statistics = resource.statistics()
    token.cancel()
    batching.set_default_runtime(batching.default_runtime())
    return statistics.succeeded if token.cancelled else 0


if __name__ == "__main__":
    settings()
    tensors([1, 2], "int32")
    tensors(np.ones(2, np.float32), np.float32)
    operators()
    training(np.ones((10, 2), np.float32), ragged_data())
    assert batches() == 2
