"""Memory on a GPU: operands are not copied, results come from the framework, and running out of it is survived."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import raggrad
from conftest import same_bits
from device_calls import INDICES, SEGMENTS, TABLE
from raggrad import IndexedSlices, ops, optimizers, raw_ops
from raggrad.errors import InvalidArgumentError, ResourceExhaustedError

from .conftest import OnGpu


class OnlyInterface:
    """An array with nothing but __cuda_array_interface__, as Numba's are."""

    def __init__(self, array: Any) -> None:
        self.array = array
        self.shape = tuple(array.shape)
        self.dtype = np.dtype(str(array.dtype).rpartition(".")[2])

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return self.array.__cuda_array_interface__


def test_arrays_with_only_the_interface(gpu: OnGpu) -> None:
    if gpu.name == "jax":
        pytest.skip("JAX's arrays come by DLPack")
    operands = [gpu.put(array) for array in (TABLE, INDICES, SEGMENTS)]
    data, indices, segments = map(OnlyInterface, operands)
    few = OnlyInterface(operands[0][:8])
    # Without a stream in the interface, whoever shares an array makes sure that it is ready.
    (gpu.module.cuda if gpu.name == "torch" else gpu.module.cuda.Device()).synchronize()
    for call in (
        lambda data, ids, segments: raw_ops.SparseSegmentSum(data=data, indices=ids, segment_ids=segments),
        ops.sparse_segment_sum,
        lambda data, ids, segments: ops.segment_sum(data[:8] if isinstance(data, np.ndarray) else few, segments),
    ):
        pooled = call(data, indices, segments)
        assert isinstance(pooled, raggrad.Tensor)
        assert pooled.device == "cuda:0"
        assert same_bits(gpu.fetch(pooled), call(TABLE, INDICES, SEGMENTS))


def test_tensors_share_device_memory(gpu: OnGpu) -> None:
    array = gpu.put(TABLE)
    tensor = raggrad.Tensor(array)
    assert tensor.device == "cuda:0"
    assert gpu.address(gpu.from_tensor(tensor)) == gpu.address(array)
    assert repr(tensor) == "Tensor(<on cuda:0>, dtype='float32', shape=(11, 3))"
    with pytest.raises(InvalidArgumentError, match="NumPy cannot read device memory"):
        tensor.numpy()


def test_rows_are_views(gpu: OnGpu) -> None:
    values = gpu.put(np.arange(8, dtype=np.float32))
    row = raggrad.Ragged([np.array([0, 2, 8])], values)[1]
    assert same_bits(gpu.fetch(row), np.arange(2, 8, dtype=np.float32))
    if gpu.name != "jax":  # slices of JAX's arrays are copies on the device
        assert gpu.address(row) == gpu.address(values) + 8


def test_torch_sees_outputs_and_no_copies(torch: Any) -> None:
    table = torch.ones(1 << 20, 64, device="cuda")  # 256 MiB
    ids = torch.arange(0, 1 << 20, 64, device="cuda")
    segments = torch.arange(len(ids), device="cuda") // 4
    for _ in range(2):  # the first call makes pools grow
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        pooled = ops.sparse_segment_sum(table, ids, segments)
        after = torch.cuda.memory_allocated()
        assert after - before >= pooled.numel() * 4
        assert torch.cuda.max_memory_allocated() - before < table.numel() * 4 // 4
        address, size = pooled.data_ptr(), pooled.numel() * 4
        del pooled
        assert after - torch.cuda.memory_allocated() >= size
    assert address
    optimizer = optimizers.SGD(0.1)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    grad = torch.ones(len(ids) // 4, 64, device="cuda")
    ops.sparse_segment_sum_grad_apply_(table, grad, ids, segments, optimizer=optimizer)
    assert torch.cuda.max_memory_allocated() - before < table.numel() * 4 // 4


def test_cupy_sees_outputs(cupy: Any) -> None:
    pool = cupy.get_default_memory_pool()
    operands = [cupy.asarray(array) for array in (TABLE, INDICES, SEGMENTS)]
    before = pool.used_bytes()
    pooled = ops.sparse_segment_sum(*operands, num_segments=1000)
    assert pool.used_bytes() - before >= pooled.nbytes


def test_an_absurd_size_and_then_the_next_call(gpu: OnGpu) -> None:
    wide = gpu.put(np.ones((2, 4096), np.float32))
    ids = gpu.put(np.int32([0, 1]))
    with pytest.raises(ResourceExhaustedError):
        ops.sparse_segment_sum(wide, ids, ids, num_segments=2**31 - 1)  # 32 TiB
    with pytest.raises(ResourceExhaustedError):
        IndexedSlices(wide, ids, (2**31, 4096)).to_dense()
    assert same_bits(gpu.fetch(ops.sparse_segment_sum(wide, ids, ids)), np.ones((2, 4096), np.float32))


def test_torch_without_memory_and_then_the_next_call(torch: Any) -> None:
    data, ids = torch.ones(2, 1024, device="cuda"), torch.tensor([0, 1], device="cuda")
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + (256 << 20)) / total)
    try:
        with pytest.raises(ResourceExhaustedError):
            ops.sparse_segment_sum(data, ids, ids, num_segments=1 << 18)  # 1 GiB
        allocated = torch.cuda.memory_allocated()
        with pytest.raises(ResourceExhaustedError):
            ops.sparse_segment_sum(data, ids, ids, num_segments=1 << 18)
        assert torch.cuda.memory_allocated() == allocated  # nothing leaks
        assert ops.sparse_segment_sum(data, ids, ids).eq(1).all()
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert ops.sparse_segment_sum(data, ids, ids, num_segments=1 << 18).shape == (1 << 18, 1024)
