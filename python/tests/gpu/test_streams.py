"""Order of work: calls wait for what their framework queued before them, and what it queues after waits for them.

A kernel that runs for a tenth of a second stands before the operands' last change. A call that did not wait for it
would read what was there before. The control shows that this is so on another stream.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from raggrad import IndexedSlices, ops, optimizers, raw_ops

from .conftest import OnGpu

CYCLES = 200_000_000  # 0.1 s at 2 GHz; a call takes less than a millisecond
ROWS, SEGMENT = 64, 8

CALLS: dict[str, Callable[..., Any]] = {
    "sparse_segment_sum": lambda table, ids, segments: ops.sparse_segment_sum(table, ids, segments, ROWS // SEGMENT),
    "segment_sum": lambda table, ids, segments: ops.segment_sum(table, segments, ROWS // SEGMENT),
    "to_dense": lambda table, ids, segments: IndexedSlices(table, segments, (ROWS // SEGMENT, 4)).to_dense(),
}


class Streams:
    """Streams of torch or CuPy, and a kernel that takes long."""

    def __init__(self, gpu: OnGpu) -> None:
        self.module = gpu.module
        self.torch = gpu.name == "torch"
        if self.torch:
            self.sleep = lambda: self.module.cuda._sleep(CYCLES)
        else:
            spin = self.module.RawKernel(
                'extern "C" __global__ void spin(long long n) '
                "{ long long start = clock64(); while (clock64() - start < n) {} }",
                "spin",
            )
            self.sleep = lambda: spin((1,), (1,), (np.int64(CYCLES),))

    def new(self) -> Any:
        return self.module.cuda.Stream() if self.torch else self.module.cuda.Stream(non_blocking=True)

    def use(self, stream: Any) -> Any:
        return self.module.cuda.stream(stream) if self.torch else stream

    def wait(self) -> None:
        (self.module.cuda if self.torch else self.module.cuda.Device()).synchronize()

    def copy(self, array: Any) -> Any:
        return array.clone() if self.torch else array.copy()

    def fill(self, array: Any, value: float) -> None:
        array.fill_(value) if self.torch else array.fill(value)


@pytest.fixture
def streams(gpu: OnGpu) -> Streams:
    if gpu.name == "jax":
        pytest.skip("JAX has no streams to choose; it has a test of its own")
    return Streams(gpu)


def operands(gpu: OnGpu) -> tuple[Any, Any, Any]:
    ids = np.arange(ROWS, dtype=np.int32)
    return gpu.put(np.zeros((ROWS, 4), np.float32)), gpu.put(ids), gpu.put(ids // SEGMENT)


@pytest.mark.parametrize("name", CALLS)
def test_both_directions(gpu: OnGpu, streams: Streams, name: str) -> None:
    table, ids, segments = operands(gpu)
    side = streams.new()
    with streams.use(side):
        CALLS[name](table, ids, segments)  # loads kernels and makes pools grow
        streams.wait()
        streams.sleep()
        streams.fill(table, 1.0)
        pooled = CALLS[name](table, ids, segments)
        streams.fill(table, 5.0)  # must not be seen by the call
        read = streams.copy(pooled)  # must see the call
    streams.wait()
    assert (gpu.fetch(read) == SEGMENT).all()


@pytest.mark.parametrize("name", ["sparse_segment_sum"])
def test_without_order_the_call_reads_too_early(gpu: OnGpu, streams: Streams, name: str) -> None:
    """The control: a call on another stream does not wait, so the order above comes from the stream."""
    table, ids, segments = operands(gpu)
    side, other = streams.new(), streams.new()
    for stream in (side, other):
        with streams.use(stream):
            CALLS[name](table, ids, segments)
            streams.copy(table)
    streams.wait()
    with streams.use(side):
        streams.sleep()
        streams.fill(table, 1.0)
    with streams.use(other):
        pooled = CALLS[name](table, ids, segments)
    other.synchronize()
    streams.wait()
    assert (gpu.fetch(pooled) == 0).all()
    assert (gpu.fetch(table) == 1).all()


def test_updates_in_place(gpu: OnGpu, streams: Streams) -> None:
    table, ids, segments = operands(gpu)
    grad = gpu.put(np.ones((ROWS // SEGMENT, 4), np.float32))
    sgd = optimizers.SGD(learning_rate=0.5)
    side = streams.new()
    with streams.use(side):
        ops.sparse_segment_sum_grad_apply_(table, grad, ids, segments, optimizer=sgd)
        streams.wait()
        streams.sleep()
        streams.fill(table, 1.0)
        ops.sparse_segment_sum_grad_apply_(table, grad, ids, segments, optimizer=sgd)
        IndexedSlices(grad, segments[::SEGMENT], (ROWS, 4)).apply_(table, sgd)
        read = streams.copy(table)
        streams.fill(table, 9.0)
    streams.wait()
    want = np.full((ROWS, 4), 0.5, np.float32)
    want[: ROWS // SEGMENT] = 0
    assert (gpu.fetch(read) == want).all()


def test_jax_computes_before_and_after() -> None:
    jax = OnGpu("jax").module
    device = jax.devices("cuda")[0]
    size = 4096

    @jax.jit
    def slow(matrix: Any) -> Any:
        scaled = jax.lax.fori_loop(0, 200, lambda _, m: (m @ m) / size, matrix)
        return scaled[:ROWS, :4] * 0 + 1

    ones = jax.device_put(np.ones((size, size), np.float32), device)
    ids, segments = (jax.device_put(a, device) for a in (np.arange(ROWS), np.arange(ROWS) // SEGMENT))
    slow(ones).block_until_ready()
    table = slow(ones)  # not ready yet
    pooled = CALLS["sparse_segment_sum"](table, ids, segments) * 2
    assert (np.asarray(pooled) == 2 * SEGMENT).all()


def test_operands_of_two_frameworks() -> None:
    """CuPy's operand comes first, so its stream is used. torch's operand becomes ready on torch's stream."""
    torch, cupy = OnGpu("torch").module, OnGpu("cupy").module
    values, side = torch.zeros(ROWS, device="cuda"), torch.cuda.Stream()
    places = cupy.arange(ROWS, dtype=cupy.int64)[:, None]
    torch.cuda.synchronize()
    with torch.cuda.stream(side), cupy.cuda.Stream(non_blocking=True):
        torch.cuda._sleep(CYCLES)
        values.fill_(1.0)
        sliced = raw_ops.SparseSlice(indices=places, values=values, shape=[ROWS], start=[0], size=[ROWS])
        total = sliced.output_values.sum()
    assert isinstance(total, torch.Tensor)
    assert float(total) == ROWS
