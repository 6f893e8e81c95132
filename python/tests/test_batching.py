"""Batch, Unbatch and UnbatchGrad through the door: operands, results, errors, resources. How calls wait is in
test_batching_waiting.py."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import raggrad
import raggrad.conformance
import raggrad.scenarios
from conftest import NUMBERS, QUANTIZED, ROOT, numpy_dtype, same_bits, values_of
from raggrad import batching, errors, raw_ops
from raggrad.batching import Limits, Runtime
from raggrad.conformance import find_files, read_cases

DTYPES = [*NUMBERS, "bool", "string"]
NO_INDEX = np.zeros((0, 3), np.int64)


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    with Runtime() as runtime:
        yield runtime


def index_of(*keys: int) -> np.ndarray:
    return np.array([[key, i, i + 1] for i, key in enumerate(keys)])


def bring(runtime: Runtime, key: int, grad: Any, **more: Any) -> Any:
    return runtime.unbatch_grad(original_input=grad[:0], batch_index=NO_INDEX, grad=grad, id=key, **more)


def own(runtime: Runtime, key: int, grad: Any, *keys: int, **more: Any) -> Any:
    return runtime.unbatch_grad(original_input=grad, batch_index=index_of(*keys), grad=grad, id=key, **more)


def batch_arguments(*tensors: Any, size: int = 2, **more: Any) -> dict[str, Any]:
    return {
        "in_tensors": list(tensors),
        "num_batch_threads": 1,
        "max_batch_size": size,
        "batch_timeout_micros": 10_000_000,
        "grad_timeout_micros": 0,
        **more,
    }


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


def test_outputs_are_of_the_kind_of_the_first_input(runtime: Runtime) -> None:
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


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"id": [1]}, "Expected `id` to be scalar. Received Tensor<type: int64 shape: [1] values: 1>"),
        ({"id": np.int32(1)}, "input #3(zero-based) was expected to be a int64 tensor but is a int32 tensor"),
        ({"batch_index": np.int32([[1, 0, 1]])}, "input #1(zero-based)"),
        ({"grad": np.float64([[1]])}, "was expected to be a float tensor but is a double tensor"),
        ({"grad": np.float32(1)}, "grad: expected at least rank 1"),
        ({"batch_index": NO_INDEX}, "batch_index is empty while the tensor isn't."),
        ({"batch_index": [[1, 2]]}, "batch_index should contain 3 elements. Received 2"),
        ({"batch_index": [[1, 0, 1], [1, 1, 2]]}, "bad bookkeeping of available tensors."),
        ({"timeout_micros": "soon"}, "timeout_micros: expected None or a number of microseconds, got str"),
        ({"timeout_micros": math.nan}, "got nan"),
        ({"batch_index": [[1, 5, 6]], "strict": True}, "expected a range that starts at 0"),
        ({"grad": object()}, "grad: expected an array"),
    ],
)
def test_errors_leave_no_trace(change: dict[str, Any], message: str, runtime: Runtime) -> None:
    call = {"original_input": np.float32([[1]]), "batch_index": [[1, 0, 1]], "grad": np.float32([[2]]), "id": 1}
    with pytest.raises(errors.OpError) as raised:
        runtime.unbatch_grad(**{**call, **change})
    assert message in raised.value.message
    future = runtime.unbatch_grad_future(**{**call, **change})
    assert message in future.exception().message
    assert runtime.unbatch_grad(**call).tolist() == [[2]]


def test_errors_of_the_others(runtime: Runtime) -> None:
    rows = np.ones((1, 2), np.float32)
    with pytest.raises(errors.InvalidArgumentError, match="timeout_micros has value 2147483648 out of range"):
        runtime.unbatch(batched_tensor=rows, batch_index=index_of(1), id=1, timeout_micros=1 << 31)
    with pytest.raises(errors.InvalidArgumentError, match="max_batch_size has value 9223372036854775807"):
        runtime.batch(**batch_arguments(rows, size=1 << 70))
    with pytest.raises(errors.InvalidArgumentError, match="max_batch_size: expected an integer, got float"):
        runtime.batch(**batch_arguments(rows, size=1.5))
    with pytest.raises(errors.InvalidArgumentError, match="'T' of 0 must be at least minimum 1"):
        runtime.batch(**batch_arguments())
    with pytest.raises(errors.InvalidArgumentError, match=r"None or a raggrad.batching.Cancellation, got int"):
        own(runtime, 1, rows, 1, cancellation=1)
    with pytest.raises(TypeError):
        runtime.unbatch_grad_future(cancellation=1)
    runtime.unbatch(batched_tensor=rows[[0, 0]], batch_index=index_of(1, 2), id=1)
    with pytest.raises(errors.AlreadyExistsError, match="Multiple tensors returned for same batch key"):
        runtime.unbatch(batched_tensor=rows[[0, 0]], batch_index=index_of(1, 2), id=1)
    with pytest.raises(TypeError):
        raw_ops.Batch(in_tensors=[rows])


def test_limits_and_statistics(runtime: Runtime) -> None:
    resource = runtime.resource("UnbatchGrad", "head", "box")
    where = {"shared_name": "head", "container": "box"}
    for use in (lambda: resource.limits, resource.statistics, resource.close):
        with pytest.raises(errors.NotFoundError, match="no resource 'head' in container 'box'"):
            use()
    grad = np.ones((1, 4), np.float32)
    bring(runtime, 1, grad, **where)
    assert resource.limits == Limits()
    assert resource.statistics() == (1, 1, 0, 0, 0, 0, 0, 0, 1, 16, 0)
    resource.limits = Limits(max_pieces=2, max_bytes=None, default_timeout_micros=1000)
    assert resource.limits == Limits(2, None, 1 << 16, 600_000_000, 1000)
    bring(runtime, 2, grad, **where)
    with pytest.raises(errors.ResourceExhaustedError, match="holds as many pieces as it may: 2"):
        bring(runtime, 3, grad, **where)
    resource.limits = resource.limits._replace(max_pieces=3)
    with pytest.raises(errors.DeadlineExceededError):
        own(runtime, 4, grad, 5, 4, **where)
    statistics = resource.statistics()
    assert (statistics.refused, statistics.deadline_exceeded, statistics.pieces) == (1, 1, 2)
    assert statistics.calls == statistics.succeeded + statistics.failed == 4
    resource.limits = resource.limits._replace(max_piece_age_micros=0)
    assert resource.statistics().pieces_expired == 2
    assert repr(resource) == "<UnbatchGrad resource 'head' in container 'box'>"
    with resource:
        pass
    with resource:  # closed already
        pass
    with pytest.raises(errors.NotFoundError):
        resource.statistics()
    with pytest.raises(errors.InvalidArgumentError, match="kind: expected 'Batch', 'Unbatch' or 'UnbatchGrad'"):
        runtime.resource("Grad").statistics()


def test_limits_of_a_runtime() -> None:
    with Runtime(Limits(max_bytes=10)) as runtime:
        with pytest.raises(errors.ResourceExhaustedError, match="bytes"):
            bring(runtime, 1, np.ones((1, 4), np.float32))
        assert bring(runtime, 1, np.ones((1, 2), np.float32)).shape == (0, 2)
    with pytest.raises(TypeError):
        Runtime((1, 2))


def test_names_are_separate(runtime: Runtime) -> None:
    grad = np.ones((1, 1), np.float32)
    for where in ({}, {"shared_name": "a"}, {"container": "a"}, {"shared_name": "a", "container": "a"}):
        bring(runtime, 1, grad, **where)
    with pytest.raises(errors.InvalidArgumentError, match="Two runs with the same batch key"):
        bring(runtime, 1, grad, shared_name="UnbatchGrad")  # what an empty name stands for
    with Runtime() as other:
        bring(other, 1, grad)


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


def test_recorded_scenarios(capsys: pytest.CaptureFixture[str]) -> None:
    assert raggrad.conformance.run_files([str(ROOT / "goldens" / "batching")], skip_unknown=False) == 0
    assert "407 passed, 0 failed" in capsys.readouterr().out
    assert threading.active_count() < 50


def test_a_wrong_result_of_a_scenario_is_found(tmp_path: Any) -> None:
    """The player itself: a result that is not as recorded, a call that should wait, a wish that is not fulfilled."""
    tensor = {"dtype": "float32", "shape": [1], "data": "AACAPw=="}
    other = {**tensor, "data": "AAAAQA=="}
    key = {"dtype": "int64", "shape": [], "data": "AQAAAAAAAAA="}
    index = {"dtype": "int64", "shape": [1, 3], "data": "AQAAAAAAAAAAAAAAAAAAAAEAAAAAAAAA"}
    step = {
        "call": "UnbatchGrad",
        "id_of_call": 0,
        "inputs": {"original_input": tensor, "batch_index": index, "grad": tensor, "id": key},
        "attrs": {"container": "", "shared_name": "s"},
        "expect": "returns_now",
        "completes": [],
    }
    right = {"name": "right", "steps": [step], "results": {"0": {"output": tensor}}}
    error = {"error": {"code": "INTERNAL", "message": "x"}}
    cases = [
        (right, None),
        ({**right, "results": {"0": {"output": other}}}, "1 of 1 elements differ"),
        ({**right, "results": {"0": error}}, "expected INTERNAL x, got a result"),
        ({**right, "results": {"0": {"pending": True}}}, "expected a call that waits"),
        ({"name": "script", "steps": [step], "want": {"0": "ok"}}, None),
        ({"name": "script", "steps": [step], "want": {"0": "ok_empty"}}, "wanted 'ok_empty', got a result"),
        ({"name": "script", "steps": [step], "want": {"0": "INTERNAL"}}, "wanted 'INTERNAL', got a result"),
        ({"name": "script", "steps": [step], "want": {"0": "keeps waiting"}}, "wanted 'keeps waiting'"),
    ]
    codec = (raggrad.conformance._decode, raggrad.conformance._encode)
    for case, expected in cases:
        difference = raggrad.scenarios.play(case, codec, raggrad.conformance._compare_outputs)
        assert difference is None if expected is None else expected in difference
    (tmp_path / "broken.jsonl").write_text('{"steps": []}\n')
    with pytest.raises(raggrad.conformance.BrokenFile, match="a scenario needs a name"):
        list(read_cases(find_files([str(tmp_path)])[0]))
