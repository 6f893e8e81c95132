"""Every function with arrays on a GPU, against the same call with NumPy arrays."""

from __future__ import annotations

import pickle
import re
from typing import Any

import numpy as np
import pytest
import raggrad
from conftest import same_bits
from device_calls import CALLS, GRAD, IN_PLACE, INDICES, ROUNDED, SEGMENTS, TABLE, flat, is_array
from device_errors import BAD_IDS
from raggrad import IndexedSlices, Ragged, SegmentPlan, _arrays, ops, optimizers, raw_ops
from raggrad.errors import InvalidArgumentError

from .conftest import OnGpu

# Calls in which the framework divides. XLA's divisions on a GPU may differ in the last bit.
DIVIDED = [name for name in CALLS if "lookup" in name and ("weights" in name or "default" in name)]


def check_same(gpu: OnGpu, name: str, got: Any, want: Any) -> None:
    got, want = flat(got), flat(want)
    assert list(got) == list(want)
    for place, expected in want.items():
        found = gpu.fetch(got[place])
        if not is_array(expected):
            assert found == expected, f"{name}: {place}"
        elif name in ROUNDED or (gpu.name == "jax" and name in DIVIDED):
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6, err_msg=place)
        else:
            index = place.endswith("indices") and found.dtype.kind == "i"  # int32 or int64
            assert same_bits(found.astype(expected.dtype) if index else found, expected), f"{name}: {place}"


@pytest.mark.parametrize("name", CALLS)
def test_bits(gpu: OnGpu, name: str) -> None:
    with raggrad.accumulation("sequential"):
        check_same(gpu, name, CALLS[name](gpu.put), CALLS[name](np.array))


@pytest.mark.parametrize("name", CALLS)
def test_results_are_where_the_operands_are(gpu: OnGpu, name: str) -> None:
    for place, item in flat(CALLS[name](gpu.put)).items():
        if is_array(item) and "splits" not in place and "output_shape" not in place:
            assert isinstance(item, gpu.kind), place
            assert _arrays.device_of(item) == "cuda:0", place


@pytest.mark.parametrize("name", IN_PLACE)
def test_in_place(gpu: OnGpu, name: str) -> None:
    if gpu.name == "jax":
        with pytest.raises(InvalidArgumentError, match="changed in place"):
            IN_PLACE[name](gpu.put)
        return
    with raggrad.accumulation("sequential"):
        check_same(gpu, name, IN_PLACE[name](gpu.put), IN_PLACE[name](np.array))


@pytest.mark.parametrize("order", [None, "fast"])
def test_sums_by_a_tree_are_close_and_repeat(gpu: OnGpu, order: str | None) -> None:
    values = np.random.default_rng(0).normal(size=(5000, 8)).astype(np.float32)
    ids = np.random.default_rng(1).integers(0, 3, 5000).astype(np.int32)
    want = IndexedSlices(values, ids, (3, 8)).coalesce().values

    def call() -> np.ndarray:
        slices = IndexedSlices(gpu.put(values), gpu.put(ids), (3, 8))
        if order is None:
            return gpu.fetch(slices.coalesce().values)
        with raggrad.accumulation(order):
            return gpu.fetch(slices.coalesce().values)

    np.testing.assert_allclose(call(), want, rtol=1e-4, atol=1e-4)
    assert same_bits(call(), call())


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int16", "uint32", "int64", "uint64"])
def test_types_of_ids(gpu: OnGpu, dtype: str) -> None:
    ids, segments = (gpu.put(array.astype(dtype)) for array in (INDICES, SEGMENTS))
    got = gpu.fetch(ops.sparse_segment_mean(gpu.put(TABLE), ids, segments))
    assert same_bits(got, ops.sparse_segment_mean(TABLE, INDICES, SEGMENTS))
    got = gpu.fetch(ops.segment_sum(gpu.put(TABLE[:8]), segments))
    assert same_bits(got, ops.segment_sum(TABLE[:8], SEGMENTS))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_types_of_values(gpu: OnGpu, dtype: str) -> None:
    import ml_dtypes

    if gpu.name == "cupy" and dtype == "bfloat16":
        pytest.skip("CuPy has no bfloat16 in all versions")
    table = TABLE.astype(getattr(ml_dtypes, dtype, dtype))
    got = gpu.fetch(ops.sparse_segment_sqrtn(gpu.put(table), gpu.put(INDICES), gpu.put(SEGMENTS)))
    assert same_bits(got, ops.sparse_segment_sqrtn(table, INDICES, SEGMENTS))


def test_strided_operands(gpu: OnGpu) -> None:
    if gpu.name == "jax":
        pytest.skip("all arrays of JAX are contiguous")
    wide, ids = np.repeat(TABLE, 2, axis=1), np.repeat(INDICES, 2)
    got = ops.sparse_segment_sum(gpu.put(wide)[:, ::2], gpu.put(ids)[::2], gpu.put(SEGMENTS))
    assert same_bits(gpu.fetch(got), ops.sparse_segment_sum(TABLE, INDICES, SEGMENTS))
    table = gpu.put(wide)[:, ::2]
    with pytest.raises(InvalidArgumentError, match=r"changed in place.*strided"):
        IndexedSlices(gpu.put(GRAD), gpu.put(INDICES[:5]), (11, 3)).apply_(table, optimizers.SGD(0.1))


def test_in_place_updates_are_versions(torch: Any) -> None:
    table, ids = torch.zeros(11, 3, device="cuda"), torch.tensor([1, 4], device="cuda")
    adagrad = optimizers.Adagrad.for_table(table, 0.1)
    slices = IndexedSlices(torch.ones(2, 3, device="cuda"), ids, (11, 3))
    versions = table._version, adagrad.accumulator._version
    address = table.data_ptr()
    slices.apply_(table, adagrad)
    assert table._version > versions[0]
    assert adagrad.accumulator._version > versions[1]
    assert table.data_ptr() == address
    assert table[[1, 4]].ne(0).all()
    assert table[[0, 2, 3]].eq(0).all()


@pytest.mark.parametrize("name", BAD_IDS)
def test_errors_have_the_words_of_host_memory(gpu: OnGpu, name: str) -> None:
    with pytest.raises(InvalidArgumentError) as expected:
        BAD_IDS[name](np.array)
    with pytest.raises(InvalidArgumentError, match=f"^{re.escape(str(expected.value))}$"):
        BAD_IDS[name](gpu.put)


def test_bad_ids_of_operators(gpu: OnGpu) -> None:
    def call(put: Any, indices: np.ndarray) -> Any:
        return raw_ops.SparseSegmentMeanGradV2(
            grad=put(GRAD), indices=put(indices), segment_ids=put(SEGMENTS), dense_output_dim0=11
        )

    bad = INDICES.copy()
    bad[3] = 11
    with pytest.raises(InvalidArgumentError) as expected:
        call(np.array, bad)
    with pytest.raises(InvalidArgumentError, match=re.escape(str(expected.value))):
        call(gpu.put, bad)
    assert same_bits(gpu.fetch(call(gpu.put, INDICES).sorted_unique_indices), call(np.array, INDICES)[1])


def test_host_arrays_among_device_arrays(gpu: OnGpu) -> None:
    text = re.escape("operands are on different devices [indices: expected that of data (cuda:0), got host memory]")
    with pytest.raises(InvalidArgumentError, match=text):
        raw_ops.SparseSegmentSum(data=gpu.put(TABLE), indices=INDICES, segment_ids=gpu.put(SEGMENTS))
    with pytest.raises(InvalidArgumentError, match=text):
        ops.sparse_segment_sum(gpu.put(TABLE), INDICES.tolist(), gpu.put(SEGMENTS))
    with pytest.raises(InvalidArgumentError, match=r"different devices .*indices: expected that of values"):
        IndexedSlices(gpu.put(GRAD), INDICES[:5], (11, 3)).coalesce()
    if gpu.name != "jax":
        with pytest.raises(InvalidArgumentError, match=r"different devices .*table: expected that of"):
            slices = IndexedSlices(gpu.put(GRAD), gpu.put(INDICES[:5]), (11, 3))
            slices.apply_(TABLE.copy(), optimizers.SGD(0.1))


def test_plans(gpu: OnGpu) -> None:
    plan = SegmentPlan(gpu.put(INDICES), gpu.put(SEGMENTS), 11, 5)
    assert (plan.num_ids, plan.num_unique, plan.ascending) == (8, 5, True)
    plan.check_made_from(gpu.put(INDICES), gpu.put(SEGMENTS))
    with pytest.raises(InvalidArgumentError, match=r"a plan in device memory cannot be pickled .*got cuda:0"):
        pickle.dumps(plan)
    with pytest.raises(InvalidArgumentError, match="different devices"):
        ops.sparse_segment_sum(TABLE, plan=plan)


def test_to_torch(gpu: OnGpu) -> None:
    torch = pytest.importorskip("torch")
    coo = IndexedSlices(gpu.put(GRAD), gpu.put(INDICES[:5].astype(np.uint8)), (11, 3)).to_torch()
    assert coo.device == torch.device("cuda:0")
    want = IndexedSlices(GRAD, INDICES[:5], (11, 3)).to_dense()
    np.testing.assert_allclose(coo.to_dense().cpu().numpy(), want, rtol=1e-6)
    nested = Ragged([np.array([0, 2, 5])], gpu.put(GRAD)).to_torch()
    assert [row.shape[0] for row in nested.unbind()] == [2, 3]
    assert Ragged.from_torch(nested).values.device == torch.device("cuda:0")
    pooled = ops.embedding_lookup_sparse(
        torch.from_numpy(TABLE).cuda(),
        torch.nested.nested_tensor_from_jagged(torch.from_numpy(INDICES).cuda(), torch.tensor([0, 2, 8]).cuda()),
    )
    assert same_bits(pooled.cpu().numpy(), ops.embedding_lookup_sparse(TABLE, Ragged([np.array([0, 2, 8])], INDICES)))


def test_second_gpu(torch: Any) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("there is only one GPU")
    operands = [torch.from_numpy(array).to("cuda:1") for array in (TABLE, INDICES, SEGMENTS)]
    pooled = ops.sparse_segment_sum(*operands)
    assert pooled.device == torch.device("cuda:1")
    assert torch.cuda.current_device() == 0
    with pytest.raises(InvalidArgumentError, match=r"expected that of data \(cuda:1\), got cuda:0"):
        ops.sparse_segment_sum(operands[0], operands[1].to("cuda:0"), operands[2])
