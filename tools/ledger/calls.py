"""Short forms of operands and calls that the ledger replays."""

from __future__ import annotations

from typing import Any

import numpy as np

from goldens.encoding import Ragged, Tensor, Variant, tensor

from .entry import Call, Refusal, Result

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1


def f16(data: Any) -> Tensor:
    return tensor("half", data)


def bf16(data: Any) -> Tensor:
    return tensor("bfloat16", data)


def f32(data: Any) -> Tensor:
    return tensor("float32", data)


def f64(data: Any) -> Tensor:
    return tensor("float64", data)


def i32(data: Any) -> Tensor:
    return tensor("int32", data)


def i64(data: Any) -> Tensor:
    return tensor("int64", data)


def empty(dtype: str, *shape: int) -> Tensor:
    """A tensor without elements. Its other dimensions may be huge."""
    made = tensor(dtype, np.zeros(0))
    return Tensor(dtype, made.array.reshape(shape))


def count(n: int) -> Tensor:
    """0, 1, ..., n - 1."""
    return i32(np.arange(n))


def pool(kind: str, data: Tensor, indices: Tensor, segment_ids: Tensor, answer: Refusal | Tensor,
         num_segments: Tensor | None = None) -> Call:
    """SparseSegment{Sum,Mean,SqrtN}, with num_segments if it is given. Stands for embedding bags and segment sums."""
    inputs = {"data": data, "indices": indices, "segment_ids": segment_ids}
    op = f"SparseSegment{kind}"
    if num_segments is not None:
        op += "WithNumSegments"
        inputs["num_segments"] = num_segments
    return Call(op, inputs, _one(answer, "output"))


def pool_grad(kind: str, grad: Tensor, indices: Tensor, segment_ids: Tensor, rows: int,
              answer: Refusal | Tensor) -> Call:
    """The dense gradient. Stands for index_add and scatter_add into zeros."""
    inputs = {"grad": grad, "indices": indices, "segment_ids": segment_ids, "output_dim0": i32(rows)}
    return Call(f"SparseSegment{kind}Grad", inputs, _one(answer, "output"))


def pool_grad_rows(kind: str, grad: Tensor, indices: Tensor, segment_ids: Tensor, rows: int,
                   answer: Refusal | tuple[Tensor, Tensor]) -> Call:
    """The gradient as rows and their numbers. Stands for sparse gradients and coalesce."""
    inputs = {"grad": grad, "indices": indices, "segment_ids": segment_ids, "dense_output_dim0": i32(rows)}
    if not isinstance(answer, Refusal):
        answer = Result({"output": answer[0], "sorted_unique_indices": answer[1]})
    return Call(f"SparseSegment{kind}GradV2", inputs, answer)


def fill(indices: Tensor, values: Tensor, dense_shape: Tensor, default_value: Tensor, answer: Refusal) -> Call:
    inputs = {"indices": indices, "values": values, "dense_shape": dense_shape, "default_value": default_value}
    return Call("SparseFillEmptyRows", inputs, answer)


def fill_grad(reverse_index_map: Tensor, grad_values: Tensor, answer: Refusal | Result) -> Call:
    inputs = {"reverse_index_map": reverse_index_map, "grad_values": grad_values}
    return Call("SparseFillEmptyRowsGrad", inputs, answer)


def cut(indices: Tensor, values: Tensor, shape: Tensor, start: Tensor, size: Tensor, answer: Refusal) -> Call:
    inputs = {"indices": indices, "values": values, "shape": shape, "start": start, "size": size}
    return Call("SparseSlice", inputs, answer)


def unstack(splits: list[Tensor], values: Tensor, answer: Refusal | list[Ragged]) -> Call:
    """RaggedTensorToVariant. Stands for operators that cut values into bags by offsets."""
    inputs = {"rt_nested_splits": splits, "rt_dense_values": values}
    if not isinstance(answer, Refusal):
        answer = Result({"encoded_ragged": Variant((len(answer),), answer)})
    return Call("RaggedTensorToVariant", inputs, answer, {"batched_input": True})


def unstack_grad(grad: Variant, row_splits: Tensor, shape: Tensor, dtype: str, answer: Refusal | Tensor) -> Call:
    inputs = {"encoded_ragged_grad": grad, "row_splits": row_splits, "dense_values_shape": shape}
    answer = _one(answer, "dense_values_grad")
    return Call("RaggedTensorToVariantGradient", inputs, answer, {"Tvalues": dtype})


def _one(answer: Refusal | Tensor, name: str) -> Refusal | Result:
    return answer if isinstance(answer, Refusal) else Result({name: answer})
