"""raggrad.ops, IndexedSlices, SegmentPlan and the optimizers, compared with raw_ops, NumPy and torch."""

from __future__ import annotations

import threading
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from conftest import FLOATS, numpy_dtype, same_bits
from raggrad import IndexedSlices, SegmentPlan, Tensor, errors, ops, optimizers, raw_ops

COMBINERS = {"sum": "Sum", "mean": "Mean", "sqrtn": "SqrtN"}
INDICES = np.array([5, 0, 5, 2, 0], np.int64)
SEGMENTS = np.array([0, 0, 1, 3, 3], np.int32)


def random_table(dtype: str, rows: int = 7, width: int = 3) -> np.ndarray:
    return np.random.default_rng(1).normal(size=(rows, width)).astype(numpy_dtype(dtype))


def make_optimizer(name: str, table: Any) -> optimizers.Optimizer:
    if name == "sgd":
        return optimizers.SGD(0.1)
    kinds = {"adagrad": optimizers.Adagrad, "adam": optimizers.Adam, "rowwise_adagrad": optimizers.RowwiseAdagrad}
    return kinds[name].for_table(table, 0.1)


def states(optimizer: optimizers.Optimizer) -> list[np.ndarray]:
    return [v for v in vars(optimizer).values() if isinstance(v, np.ndarray)]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("combiner", COMBINERS)
def test_segment_functions_are_the_raw_operators(combiner: str, dtype: str) -> None:
    table, grad = random_table(dtype), random_table(dtype, rows=4)
    plan = SegmentPlan(INDICES, SEGMENTS, num_rows=7, num_segments=4)
    pool = getattr(ops, f"sparse_segment_{combiner}")
    want = getattr(raw_ops, f"SparseSegment{COMBINERS[combiner]}")(data=table, indices=INDICES, segment_ids=SEGMENTS)
    assert same_bits(pool(table, INDICES, SEGMENTS), want)
    assert same_bits(pool(table, INDICES, SEGMENTS, 4, plan=plan), want)
    assert same_bits(pool(table, plan=plan), want)
    assert pool(table, INDICES, SEGMENTS, 6).shape == (6, 3)

    pool_grad = getattr(ops, f"sparse_segment_{combiner}_grad")
    raw = getattr(raw_ops, f"SparseSegment{COMBINERS[combiner]}GradV2")(
        grad=grad, indices=INDICES, segment_ids=SEGMENTS, dense_output_dim0=7
    )
    both = pool_grad(grad, INDICES, SEGMENTS, 7, plan=plan)
    for got in (pool_grad(grad, INDICES, SEGMENTS, 7), pool_grad(grad, plan=plan), both):
        assert same_bits(got.values, raw.output)
        assert same_bits(got.indices, raw.sorted_unique_indices)
        assert got.dense_shape == (7, 3)


@pytest.mark.parametrize("name", ["sgd", "adagrad", "adam", "rowwise_adagrad"])
@pytest.mark.parametrize("combiner", COMBINERS)
@pytest.mark.parametrize("grad_dtype", ["float32", "bfloat16", "half", "float64"])
@pytest.mark.parametrize("table_dtype", ["float32", "bfloat16", "half", "float64"])
def test_fused_update_has_the_bits_of_two_steps(combiner: str, name: str, grad_dtype: str, table_dtype: str) -> None:
    grad = random_table(grad_dtype, rows=4)
    plan = SegmentPlan(INDICES, SEGMENTS, 7, 4)
    results = []
    for way in ("two steps", "fused", "planned"):
        table = random_table(table_dtype)
        optimizer = make_optimizer(name, table)
        apply_ = getattr(ops, f"sparse_segment_{combiner}_grad_apply_")
        if (grad_dtype == "float64") != (table_dtype == "float64"):
            with pytest.raises(errors.InvalidArgumentError, match="dtype"):
                apply_(table, grad, plan=plan, optimizer=optimizer)
            return
        for _ in range(2):
            if way == "two steps":
                getattr(ops, f"sparse_segment_{combiner}_grad")(grad, INDICES, SEGMENTS, 7).apply_(table, optimizer)
            elif way == "fused":
                apply_(table, grad, INDICES, SEGMENTS, optimizer=optimizer)
            else:
                apply_(table, grad, plan=plan, optimizer=optimizer)
        assert not same_bits(table, random_table(table_dtype))
        results.append([table, *states(optimizer)])
    for other in results[1:]:
        assert all(same_bits(a, b) for a, b in zip(results[0], other, strict=True))


def test_optimizers_count_and_do_what_they_say() -> None:
    table = random_table("float64")
    want = table.copy()
    rng = np.random.default_rng(2)
    adam = optimizers.Adam.for_table(table, 0.1, beta1=0.5, beta2=0.75, epsilon=1e-3)
    m, v = np.zeros_like(want), np.zeros_like(want)
    for step in range(1, 4):
        slices = IndexedSlices(rng.normal(size=(2, 3)), np.array([step, 0]), (7, 3))
        slices.apply_(table, adam)
        assert adam.step == step
        for row, g in zip([step, 0], slices.values, strict=True):
            m[row] += (g - m[row]) * 0.5
            v[row] += (g * g - v[row]) * 0.25
            want[row] -= 0.1 * np.sqrt(1 - 0.75**step) / (1 - 0.5**step) * m[row] / (np.sqrt(v[row]) + 1e-3)
    np.testing.assert_allclose(table, want, rtol=1e-14)
    with pytest.raises(errors.InvalidArgumentError):
        IndexedSlices(np.ones((1, 3)), np.array([7]), (7, 3)).apply_(table, adam)
    assert adam.step == 3
    with pytest.raises(TypeError, match=r"expected raggrad\.optimizers"):
        IndexedSlices(np.ones((1, 3)), [1], (7, 3)).apply_(table, 0.1)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["sgd", "adagrad", "adam"])
def test_against_torch(name: str) -> None:
    torch = pytest.importorskip("torch")
    parameter = torch.nn.Parameter(torch.from_numpy(random_table("float32")))
    table = parameter.detach().clone()
    optimizer = make_optimizer(name, table)
    if name == "adagrad":
        optimizer.epsilon = 1e-10
    peer = {
        "sgd": lambda: torch.optim.SGD([parameter], 0.1),
        "adagrad": lambda: torch.optim.Adagrad([parameter], 0.1, initial_accumulator_value=0.1),
        "adam": lambda: torch.optim.SparseAdam([parameter], 0.1),
    }[name]()
    rng = np.random.default_rng(3)
    for _ in range(3):
        values = torch.from_numpy(rng.normal(size=(5, 3)).astype(np.float32))
        parameter.grad = torch.sparse_coo_tensor(torch.from_numpy(INDICES)[None], values, (7, 3))
        peer.step()
        IndexedSlices(values, torch.from_numpy(INDICES), (7, 3)).apply_(table, optimizer)
    np.testing.assert_allclose(table.numpy(), parameter.detach().numpy(), rtol=2e-6, atol=1e-7)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rowwise_adagrad_follows_its_formula(dtype: str) -> None:
    table = random_table(dtype)
    want, sums = table.astype(np.float64), np.full(7, 0.5)
    optimizer = optimizers.RowwiseAdagrad.for_table(table, 0.1, initial_accumulator=0.5)
    assert (optimizer.accumulator.shape, optimizer.accumulator.dtype) == ((7,), table.dtype)
    rng = np.random.default_rng(3)
    for _ in range(3):
        slices = IndexedSlices(rng.normal(size=(5, 3)).astype(table.dtype), INDICES, (7, 3))
        slices.apply_(table, optimizer)
        g = slices.to_dense().astype(np.float64)
        sums += (g * g).mean(axis=1)
        want -= 0.1 / (np.sqrt(sums) + 1e-8)[:, None] * g
    np.testing.assert_allclose(optimizer.accumulator, sums, rtol=1e-6)
    np.testing.assert_allclose(table, want, rtol=1e-5, atol=1e-7)
    with pytest.raises(errors.InvalidArgumentError, match=r"accumulator: expected \[7\], got \[7,3\]"):
        slices.apply_(table, optimizers.RowwiseAdagrad(0.1, np.zeros_like(table)))


@pytest.mark.parametrize("dtype", FLOATS)
def test_slices_are_added_in_order(dtype: str) -> None:
    values = random_table(dtype, rows=200)
    indices = np.random.default_rng(4).integers(0, 9, 200)
    slices = IndexedSlices(values, indices, (10, 3))
    want = np.zeros((10, 3), np.float64 if dtype == "float64" else np.float32)
    np.add.at(want, indices, values.astype(want.dtype))
    want = want.astype(values.dtype)
    assert same_bits(slices.to_dense(), want)
    once = slices.coalesce()
    assert once.indices.tolist() == sorted(set(indices.tolist()))
    assert same_bits(once.values, want[once.indices])
    assert same_bits(once.to_dense(), want)
    assert len(slices) == 200


def test_repr() -> None:
    assert repr(IndexedSlices(np.zeros((2, 3), ml_dtypes.bfloat16), [4, 1], (9, 3))) == (
        "IndexedSlices(2 rows of a bfloat16 [9, 3] at [4, 1])"
    )
    many = repr(IndexedSlices(np.zeros((99, 3), np.float32), np.arange(99), (100, 3)))
    assert many == "IndexedSlices(99 rows of a float32 [100, 3] at [0, 1, 2, 3, 4, 5, 6, 7, ...])"
    assert repr(SegmentPlan([1], [0], 2, 3)) == "SegmentPlan(1 ids, 1 of 2 rows, 3 segments)"


def test_plans_of_other_ids_and_sizes_are_refused() -> None:
    plan = SegmentPlan(INDICES, SEGMENTS, 7, 4)
    assert (plan.num_ids, plan.num_unique, plan.num_rows, plan.num_segments, plan.ascending) == (5, 3, 7, 4, True)
    table = random_table("float32")
    other = INDICES.copy()
    other[3] = 1
    with pytest.raises(errors.InvalidArgumentError, match=r"indices\[3\]: expected 2, got 1"):
        ops.sparse_segment_sum(table, other, SEGMENTS, plan=plan)
    with pytest.raises(errors.InvalidArgumentError, match="expected 5 elements, got 4"):
        ops.sparse_segment_sum_grad(random_table("float32", 4), INDICES[:4], SEGMENTS[:4], plan=plan)
    with pytest.raises(errors.InvalidArgumentError, match="expected 7 rows"):
        ops.sparse_segment_sum(table[:6], plan=plan)
    with pytest.raises(errors.InvalidArgumentError, match="expected 4 rows"):
        ops.sparse_segment_sum_grad(table, plan=plan)
    with pytest.raises(errors.InvalidArgumentError, match="num_rows: expected 7, got 8"):
        ops.sparse_segment_sum_grad(random_table("float32", 4), num_rows=8, plan=plan)
    with pytest.raises(errors.InvalidArgumentError, match="num_segments: expected 4, got 5"):
        ops.sparse_segment_sum(table, num_segments=5, plan=plan)
    with pytest.raises(errors.InvalidArgumentError, match=r"\[indices\[0\]\]"):
        SegmentPlan([7], [0], 7, 1)


def test_missing_arguments() -> None:
    table = random_table("float32")
    with pytest.raises(errors.InvalidArgumentError, match="or a plan; got neither"):
        ops.sparse_segment_mean(table)
    with pytest.raises(errors.InvalidArgumentError, match="belong together"):
        ops.sparse_segment_mean_grad(table, indices=INDICES, num_rows=3)
    with pytest.raises(errors.InvalidArgumentError, match="expected num_rows"):
        ops.sparse_segment_mean_grad(table, INDICES, SEGMENTS)
    with pytest.raises(errors.InvalidArgumentError, match=r"dense_shape: expected \(rows, 3\), got \(7, 2\)"):
        IndexedSlices(table, np.arange(7), (7, 2))


def test_what_cannot_be_changed_in_place_is_refused() -> None:
    slices = IndexedSlices(np.ones((1, 3), np.float32), [1], (7, 3))
    frozen = random_table("float32")
    frozen.flags.writeable = False
    shifted = np.zeros(4 * 21 + 1, np.uint8)[1:].view(np.float32).reshape(7, 3)
    for table, reason in [
        (frozen, "ndarray, which is read-only"),
        (Tensor(frozen), "Tensor, which is read-only"),
        (random_table("float32", width=6)[:, ::2], "ndarray, which is strided"),
        (np.asfortranarray(random_table("float32")), "ndarray, which is in Fortran order"),
        (random_table("float32").astype(">f4"), "ndarray, which is in the other byte order"),
        (shifted, "ndarray, which is not aligned"),
        (random_table("float32").tolist(), "list, which is not one of these"),
    ]:
        with pytest.raises(
            errors.InvalidArgumentError, match=rf"table: expected a writable, contiguous .* got {reason}"
        ):
            slices.apply_(table, optimizers.SGD(0.1))
    table = random_table("float32")
    with pytest.raises(errors.InvalidArgumentError, match="accumulator: expected memory of its own"):
        slices.apply_(table, optimizers.Adagrad(0.1, table))


@pytest.mark.parametrize("kind", ["tensor", "torch", "jax"])
def test_kinds_of_tables(kind: str) -> None:
    table = random_table("float32")
    want = table.copy()
    IndexedSlices(np.ones((1, 3), np.float32), [1], (7, 3)).apply_(want, optimizers.SGD(0.5))
    slices = IndexedSlices(np.ones((1, 3), np.float32), [1], (7, 3))
    if kind == "jax":
        jnp = pytest.importorskip("jax.numpy")
        with pytest.raises(errors.InvalidArgumentError, match="expected a writable"):
            slices.apply_(jnp.asarray(table), optimizers.SGD(0.5))
        return
    if kind == "torch":
        torch = pytest.importorskip("torch")
        given = torch.from_numpy(table)
        with pytest.raises(errors.InvalidArgumentError, match="expected a writable"):
            slices.apply_(given.t().contiguous().t(), optimizers.SGD(0.5))
        assert isinstance(IndexedSlices(given, torch.arange(7), (9, 3)).to_dense(), torch.Tensor)
    else:
        given = Tensor(table)
    slices.apply_(given, optimizers.SGD(0.5))
    assert same_bits(np.asarray(given), want)


def test_one_plan_in_many_threads() -> None:
    rng = np.random.default_rng(5)
    indices, segment_ids = rng.integers(0, 500, 20_000), np.sort(rng.integers(0, 300, 20_000))
    plan = SegmentPlan(indices, segment_ids, 500, 300)
    grad = rng.normal(size=(300, 8)).astype(np.float32)
    want = ops.sparse_segment_mean_grad(grad, plan=plan).values
    wrong = []

    def work() -> None:
        for _ in range(20):
            if not same_bits(ops.sparse_segment_mean_grad(grad, plan=plan).values, want):
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
