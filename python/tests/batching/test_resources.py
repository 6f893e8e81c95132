"""Resources of the batching operators: errors that leave no trace, limits, statistics, names."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from raggrad import errors, raw_ops
from raggrad.batching import Limits, Runtime

from .calls import NO_INDEX, batch_arguments, bring, index_of, own


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


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"in_tensors": 5}, "in_tensors: expected a list of arrays, got int"),
        ({"in_tensors": None}, "in_tensors: expected a list of arrays, got NoneType"),
        ({"allowed_batch_sizes": 5}, "allowed_batch_sizes: expected a list of integers, got int"),
        ({"allowed_batch_sizes": None}, "allowed_batch_sizes: expected a list of integers, got NoneType"),
        ({"T": 5}, "T: expected None or a list of dtypes, got int"),
        ({"batching_queue": b"a"}, "batching_queue: expected a str, got bytes"),
        ({"container": 5}, "container: expected a str, got int"),
        ({"shared_name": None}, "shared_name: expected a str, got NoneType"),
        ({"shared_name": "\ud800"}, r"shared_name: expected a str that UTF-8 has, got '\\ud800'"),
    ],
)
def test_attributes_of_another_type(change: dict[str, Any], text: str, runtime: Runtime) -> None:
    grad = np.ones((1, 2), np.float32)
    with pytest.raises(errors.InvalidArgumentError, match=f"^Batch: {text}$"):
        runtime.batch(**batch_arguments(grad, **change))
    if not change.keys() & {"container", "shared_name"}:
        return
    with pytest.raises(errors.InvalidArgumentError, match=f"^UnbatchGrad: {text}$"):
        bring(runtime, 1, grad, **change)
    with pytest.raises(errors.InvalidArgumentError, match=f"^Unbatch: {text}$"):
        runtime.unbatch(batched_tensor=grad, batch_index=index_of(1), id=1, **change)


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
    with pytest.raises(errors.InvalidArgumentError, match=r"^UnbatchGrad: strict: expected a bool, got str"):
        bring(runtime, 1, rows, strict="yes")
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
    with pytest.raises(errors.ResourceExhaustedError, match=r"the resource is full \[pieces: expected at most 2\]"):
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
    with pytest.raises(errors.InvalidArgumentError, match=r"^Limits: max_waiters: expected an integer, got str"):
        Runtime(Limits(max_waiters="many"))


def test_names_are_separate(runtime: Runtime) -> None:
    grad = np.ones((1, 1), np.float32)
    for where in ({}, {"shared_name": "a"}, {"container": "a"}, {"shared_name": "a", "container": "a"}):
        bring(runtime, 1, grad, **where)
    with pytest.raises(errors.InvalidArgumentError, match="Two runs with the same batch key"):
        bring(runtime, 1, grad, shared_name="UnbatchGrad")  # what an empty name stands for
    with Runtime() as other:
        bring(other, 1, grad)
