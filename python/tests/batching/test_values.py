"""Batch, Unbatch and UnbatchGrad: operands, results, kinds of arrays."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import raggrad
import raggrad.conformance
from conftest import NUMBERS, QUANTIZED, numpy_dtype, same_bits, values_of
from raggrad import batching, errors, raw_ops
from raggrad.batching import Runtime

from .calls import NO_INDEX, batch_arguments, bring, index_of, own

DTYPES = [*NUMBERS, "bool", "string"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype(dtype: str, runtime: Runtime) -> None:
    first, last = values_of(dtype, 6).reshape(3, 2), values_of(dtype, 4).reshape(2, 2)
    nothing = bring(runtime, 7, first)
    assert (nothing.shape, nothing.dtype) == ((0, 2), first.dtype)
    assert same_bits(own(runtime, 8, last, 8, 7), np.concatenate([last, first]))
    rows = runtime.unbatch(batched_tensor=first, batch_index=[[1, 0, 2], [2, 2, 3]], id=1)
    assert same_bits(rows, first[:2])
    assert same_bits(runtime.unbatch(batched_tensor=first[:0], batch_index=NO_INDEX, id=2), first[2:])
    out = runtime.batch(**batch_arguments(first, last[[0, 1, 1]], size=3))
    assert same_bits(out.batched_tensors[0], first)
    assert same_bits(out.batched_tensors[1], last[[0, 1, 1]])


@pytest.mark.parametrize("dtype", QUANTIZED)
def test_types_that_cannot_be_joined(dtype: str, runtime: Runtime) -> None:
    grad = raggrad.Tensor(np.ones((1, 2), numpy_dtype(dtype)), dtype)
    with pytest.raises(errors.InvalidArgumentError, match=r"Unsupported data type: 1[1-6]"):
        runtime.unbatch_grad(original_input=grad, batch_index=index_of(1), grad=grad, id=1)


def test_a_whole_step(runtime: Runtime) -> None:
    """Batch, Unbatch and UnbatchGrad of three threads that share a batch."""
    inputs = [np.full((rows, 2), rows, np.float32) for rows in (1, 2, 3)]

    def work(rows: np.ndarray) -> tuple[Any, Any, Any]:
        out = runtime.batch(**batch_arguments(rows, size=6))
        doubled = out.batched_tensors[0] * 2
        mine = runtime.unbatch(batched_tensor=doubled, batch_index=out.batch_index, id=out.id)
        grad = runtime.unbatch_grad(original_input=doubled, batch_index=out.batch_index, grad=mine * 10, id=out.id)
        return out, mine, grad

    with ThreadPoolExecutor(3) as executor:
        results = list(executor.map(work, inputs))
    for rows, (out, mine, _) in zip(inputs, results, strict=True):
        assert same_bits(mine, rows * 2)
        assert out._fields == ("batched_tensors", "batch_index", "id")
        assert (out.id.dtype, out.id.shape) == (np.int64, ())
    (owner,) = (result for result in results if len(result[0].batch_index))
    assert same_bits(owner[2], owner[0].batched_tensors[0] * 20)
    assert sorted(owner[0].batch_index[:, 0]) == sorted(int(out.id) for out, _, _ in results)
    assert all(grad.shape == (0, 2) for out, _, grad in results if not len(out.batch_index))


def test_padding_and_no_rows(runtime: Runtime) -> None:
    out = runtime.batch(**batch_arguments([[5.0]], size=4, allowed_batch_sizes=[2, 4], batch_timeout_micros=1000))
    assert out.batched_tensors[0].tolist() == [[5.0], [5.0]]
    out = runtime.batch(**batch_arguments(np.zeros((0, 3), np.float32)))
    assert (out.batched_tensors[0].shape, out.batch_index.shape, out.id.shape) == ((0,), (0,), (0,))


def test_literals_take_the_dtype_of_the_array_beside_them(runtime: Runtime) -> None:
    half = np.float16([[1], [2]])
    assert runtime.unbatch_grad(original_input=[], batch_index=[], grad=half, id=1).dtype == np.float16
    joined = runtime.unbatch_grad(original_input=half, batch_index=[[2, 0, 1]], grad=[[3]], id=2)
    assert same_bits(joined, np.float16([[3]]))
    for dtype, literal, expected in [(None, [1, 2], np.int32), (None, [0.5], np.float32), ("int8", [1], np.int8)]:
        got = runtime.unbatch_grad(original_input=literal, batch_index=[[3, 0, 1]], grad=literal, id=3, T=dtype)
        assert got.dtype == expected
    with pytest.raises(errors.InvalidArgumentError, match="T says half but grad has dtype float32"):
        runtime.unbatch_grad(original_input=[], batch_index=[], grad=np.float32([1]), id=4, T="half")
    out = runtime.batch(**batch_arguments([1, 2], [b"a", b"b"], T=["int64", "string"]))
    assert [tensor.dtype for tensor in out.batched_tensors] == [np.int64, object]
    with pytest.raises(errors.InvalidArgumentError, match="T says 1 tensors, in_tensors has 2"):
        runtime.batch(**batch_arguments([1, 2], [3, 4], T=["int64"]))
    for tensor in (np.ones((2, 1)), range(2), "ab"):
        with pytest.raises(errors.InvalidArgumentError, match=r"Batch: in_tensors: expected a list of arrays, got"):
            runtime.batch(**batch_arguments(in_tensors=tensor))


def test_torch_in_torch_out(runtime: Runtime) -> None:
    torch = pytest.importorskip("torch")
    grad = torch.ones(2, 3, requires_grad=True)
    got = own(runtime, 1, grad, 1)
    assert isinstance(got, torch.Tensor)
    assert torch.equal(got, grad.detach())
    out = runtime.batch(**batch_arguments(grad, [1, 2]))
    assert all(isinstance(tensor, torch.Tensor) for tensor in (*out.batched_tensors, out.batch_index, out.id))
    future = runtime.unbatch_grad_future(original_input=grad, batch_index=[[5, 0, 1], [6, 1, 2]], grad=grad, id=5)
    bring(runtime, 6, grad)
    assert isinstance(future.result(), torch.Tensor)
    tensor = raggrad.Tensor(np.float32([1]))
    assert isinstance(
        runtime.unbatch_grad(original_input=tensor, batch_index=index_of(1), grad=tensor, id=1), raggrad.Tensor
    )


def test_jax(runtime: Runtime) -> None:
    jax = pytest.importorskip("jax")
    grad = jax.device_put(np.ones((2, 3), np.float32), jax.devices("cpu")[0]).astype("bfloat16")
    assert isinstance(own(runtime, 1, grad, 1), type(grad))


def test_a_result_owns_its_memory_without_a_copy(runtime: Runtime) -> None:
    joined = own(runtime, 1, np.ones((2, 3)), 1)
    assert joined.flags.writeable
    assert not joined.flags.owndata  # a capsule owns the library's tensor
    with pytest.raises(errors.ResourceExhaustedError):
        try:
            raggrad.set_memory_limit(1000)
            own(runtime, 2, np.ones((200, 3)), 2)  # one allocation: the result
        finally:
            raggrad.set_memory_limit(None)
    assert runtime.resource("UnbatchGrad").statistics().refused == 1
    assert same_bits(joined, np.ones((2, 3)))


def test_the_default_runtime() -> None:
    before = batching.default_runtime()
    try:
        with Runtime() as runtime:
            assert batching.set_default_runtime(runtime) is runtime
            raw_ops.UnbatchGrad(original_input=[], batch_index=[], grad=[1.0], id=1, name="ignored")
            assert runtime.resource("UnbatchGrad").statistics().pieces == 1
    finally:
        batching.set_default_runtime(before)
    assert batching.default_runtime() is before


def test_the_arguments_are_tensorflows() -> None:
    runtime = batching.default_runtime()
    where = {"container": "c", "shared_name": "s"}
    out = raw_ops.Batch(**batch_arguments([1.0, 2.0], batching_queue="q", max_enqueued_batches=1, **where))
    got = raw_ops.Unbatch(
        batched_tensor=out.batched_tensors[0], batch_index=out.batch_index, id=out.id, timeout_micros=1000, **where
    )
    assert got.tolist() == [1, 2]
    assert runtime.resource("Unbatch", "s", "c").limits.default_timeout_micros == 1000
    grad = raw_ops.UnbatchGrad(original_input=got, batch_index=out.batch_index, grad=got, id=out.id, **where)
    assert grad.tolist() == [1, 2]
