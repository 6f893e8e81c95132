"""raggrad.jax on a GPU: against its own results on the CPU, and again and again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

MODES = ["sum", "mean", "sqrtn"]
ROWS, SEGMENTS = 5_000, 700


def batch(seed: int = 0) -> tuple[np.ndarray, ...]:
    """A table, ids, segment ids of which a fifth is out of range, weights, and a gradient."""
    random = np.random.default_rng(seed)
    segment_ids = random.integers(0, SEGMENTS, 30_000).astype(np.int32)
    segment_ids[::10], segment_ids[5::10] = -1, SEGMENTS
    return (
        random.standard_normal((ROWS, 48)).astype(np.float32),
        random.integers(0, ROWS, len(segment_ids)).astype(np.int32),
        segment_ids,
        random.standard_normal(len(segment_ids)).astype(np.float32),
        random.standard_normal((SEGMENTS, 48)).astype(np.float32),
    )


def on_both(jax: Any, function: Any, *arrays: np.ndarray) -> tuple[Any, Any]:
    """Results of a compiled function on the GPU and on the CPU. On the GPU it is called twice, with the same bits."""
    results = []
    for device in (jax.devices("cuda")[0], jax.devices("cpu")[0]):
        compiled = jax.jit(function)
        placed = [jax.device_put(array, device) for array in arrays]
        first, second = (jax.tree.map(np.asarray, compiled(*placed)) for _ in range(2))
        for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True):
            assert a.tobytes() == b.tobytes()
        results.append(first)
    return results[0], results[1]


def assert_near(gpu: Any, cpu: Any, eps: float = 2e-5) -> None:
    for a, b in zip(gpu, cpu, strict=True):
        np.testing.assert_allclose(np.asarray(a, np.float64), np.asarray(b, np.float64), rtol=eps, atol=eps)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("mode", MODES)
def test_segments(jax: Any, rj: Any, mode: str, dtype: str) -> None:
    table, ids, segment_ids, _, grad = batch()

    def both(rows: Any, segments: Any, grad: Any) -> Any:
        pooled, pull = jax.vjp(lambda r: getattr(rj, f"segment_{mode}")(r, segments, SEGMENTS), rows.astype(dtype))
        return pooled, pull(grad.astype(dtype))[0]

    gpu, cpu = on_both(jax, both, table[ids], segment_ids, grad)
    assert gpu[0].tobytes() == cpu[0].tobytes()
    assert_near(gpu, cpu, 2e-5 if dtype == "float32" else 2e-2)

    def sums(rows: Any, segments: Any) -> Any:
        function = getattr(rj, f"segment_{mode}")
        return (function(rows.astype(dtype), segments, SEGMENTS, indices_are_sorted=True),)

    (gpu,), (cpu,) = on_both(jax, sums, table[ids], np.sort(segment_ids))
    assert gpu.tobytes() == cpu.tobytes()


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_bags_and_rows(jax: Any, rj: Any, mode: str, weighted: bool) -> None:
    table, ids, segment_ids, weights, grad = batch()

    def everything(table: Any, ids: Any, segment_ids: Any, weights: Any, grad: Any) -> Any:
        used = weights if weighted else None
        pooled, pull = jax.vjp(
            lambda t, w: rj.embedding_bag(t, ids, segment_ids, SEGMENTS, mode=mode, weights=w), table, used
        )
        rows = rj.sparse_segment_grad(mode, grad, ids, segment_ids, ROWS, weights=used)
        return jax.tree.leaves((pooled, pull(grad), rows))

    assert_near(*on_both(jax, everything, table, ids, segment_ids, weights, grad))


def test_reproducible_sums_have_the_bits_of_the_cpu(jax: Any, rj: Any) -> None:
    table, ids, segment_ids, _, grad = batch()

    def everything(table: Any, ids: Any, segment_ids: Any, grad: Any) -> Any:
        options = {"accumulation": "reproducible"}
        pooled, pull = jax.vjp(lambda t: rj.embedding_bag(t, ids, segment_ids, SEGMENTS, **options), table)
        rows = rj.sparse_segment_grad("mean", grad, ids, segment_ids, ROWS, **options)
        return jax.tree.leaves((pooled, pull(grad), rows))

    gpu, cpu = on_both(jax, everything, table, ids, segment_ids, grad)
    for a, b in zip(gpu, cpu, strict=True):
        assert a.tobytes() == b.tobytes()


@pytest.mark.parametrize("name", ["SGD", "Adagrad", "Adam"])
def test_steps(jax: Any, rj: Any, name: str) -> None:
    table, ids, segment_ids, _, grad = batch()
    optimizer = getattr(rj, name)(0.1)

    def step(table: Any, ids: Any, segment_ids: Any, grad: Any) -> Any:
        rows = rj.sparse_segment_grad("mean", grad, ids, segment_ids, ROWS)
        return jax.tree.leaves(rj.apply_rows(table, rows, optimizer, optimizer.init(table)))

    assert_near(*on_both(jax, step, table, ids, segment_ids, grad), 1e-4)


def test_sparse_entries(jax: Any, rj: Any) -> None:
    random = np.random.default_rng(0)
    indices = random.integers(0, 400, (3_000, 2)).astype(np.int32)
    values = random.standard_normal(3_000).astype(np.float32)

    def both(indices: Any, values: Any) -> Any:
        filled, pull = jax.vjp(lambda v, d: rj.fill_empty_rows(indices, v, (500, 400), d)[0].values, values, 0.5)
        cut, pull_cut = jax.vjp(lambda v: rj.sparse_slice(indices, v, (500, 400), (9, 9), (99, 99)).values, values)
        return jax.tree.leaves((filled, pull(filled), cut, pull_cut(cut)))

    assert_near(*on_both(jax, both, indices, values))


def test_slices_are_filled(jax: Any, rj: Any) -> None:
    """They end with padding."""
    random = np.random.default_rng(0)
    indices = random.integers(0, 400, (3_000, 2)).astype(np.int32)
    values = random.standard_normal(3_000).astype(np.float32)

    def cut_and_filled(indices: Any, values: Any, default: Any) -> Any:
        cut = rj.sparse_slice(indices, values, (500, 400), (9, 9), (99, 99))
        return rj.fill_empty_rows(cut.indices, cut.values, cut.shape, default, count=cut.count)

    def both(indices: Any, values: Any) -> Any:
        filled, pull = jax.vjp(lambda v, d: cut_and_filled(indices, v, d)[0].values, values, 0.5)
        return jax.tree.leaves((cut_and_filled(indices, values, 0.5), pull(filled)))

    assert_near(*on_both(jax, both, indices, values))


def test_derivatives_of_rows(jax: Any, rj: Any) -> None:
    _, ids, segment_ids, weights, grad = batch()

    def both(ids: Any, segment_ids: Any, weights: Any, grad: Any) -> Any:
        rows, pull = jax.vjp(
            lambda g, w: rj.sparse_segment_grad("mean", g, ids, segment_ids, ROWS, weights=w).values, grad, weights
        )
        return pull(rows)

    assert_near(*on_both(jax, both, ids, segment_ids, weights, grad), 1e-4)


def test_too_little_room(jax: Any, rj: Any) -> None:
    device = jax.devices("cuda")[0]
    grad, ids, segments = (
        jax.device_put(array, device)
        for array in (np.ones((2, 3), np.float32), np.array([7, 3, 5], np.int32), np.array([0, 0, 1], np.int32))
    )
    rows = jax.jit(lambda *arrays: rj.sparse_segment_grad("sum", *arrays, 9, size=2))(grad, ids, segments)
    assert np.isnan(np.asarray(rows.values)).all()
    assert int(rows.count) > rows.size
    with pytest.raises(RuntimeError, match=r"sparse_segment_grad: size: expected at least 3"):
        rj.sparse_segment_grad("sum", grad, ids, segments, 9, size=2)


@pytest.mark.parametrize("bad", [-1, 9])
def test_bad_ids_make_a_compiled_gradient_nan(jax: Any, rj: Any, bad: int) -> None:
    grad, ids, segments = np.ones((2, 3), np.float32), np.array([7, bad, 5], np.int32), np.array([0, 0, 1], np.int32)
    for room in (None, 3):
        compiled = jax.jit(lambda *arrays, room=room: rj.sparse_segment_grad("sum", *arrays, 9, size=room))
        rows = compiled(*jax.device_put((grad, ids, segments), jax.devices("cuda")[0]))
        assert np.isnan(np.asarray(rows.values)).all()


def test_dropped_ids_take_no_room(jax: Any, rj: Any) -> None:
    """Every row of the table has a gradient, and one id is dropped."""
    grad, ids, segments = np.ones((2, 3), np.float32), np.array([1, 0, 1], np.int32), np.array([0, 1, 2], np.int32)
    on_gpu = jax.device_put((grad, ids, segments), jax.devices("cuda")[0])
    rows = jax.jit(lambda *arrays: rj.sparse_segment_grad("sum", *arrays, 2))(*on_gpu)
    assert np.asarray(rows.values).tolist() == [[1.0] * 3] * 2
    assert np.asarray(rows.ids).tolist() == [0, 1]
    assert int(rows.count) == 2


def test_ids_out_of_range(jax: Any, rj: Any) -> None:
    table = jax.device_put(np.ones((4, 3), np.float32), jax.devices("cuda")[0])
    with pytest.raises((jax.errors.JaxRuntimeError, ValueError), match=r"raggrad\.jax\.embedding_bag: "):
        rj.embedding_bag(table, np.array([0, 9], np.int32), np.array([0, 0], np.int32), 1).block_until_ready()


def test_a_donated_table_changes_in_place(jax: Any, rj: Any) -> None:
    table = jax.device_put(np.ones((1000, 64), np.float32), jax.devices("cuda")[0])
    rows = rj.sparse_segment_grad("sum", table[:1], jax.numpy.array([3]), jax.numpy.array([0]), 1000)
    before = table.unsafe_buffer_pointer()
    step = jax.jit(lambda t, r: rj.apply_rows(t, r, rj.SGD(1.0))[0], donate_argnums=0)
    assert step(table, rows).unsafe_buffer_pointer() == before
