"""segment_sum, segment_mean and segment_sqrtn against formulas of jax.ops.segment_sum."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import raggrad
from raggrad import ops

from .door import FLOATS, FUNCTIONS, MODES, assert_near, jax, jnp, random_batch, random_rows, rj, same_bits, segment

INTEGERS = ["int8", "int16", "int32", "uint8", "uint16", "uint32"]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("mode", MODES)
def test_values_and_gradients(mode: str, dtype: str) -> None:
    batch = random_batch()
    data = random_rows(len(batch.ids), dtype=dtype)
    assert_near(
        FUNCTIONS[mode](data, *batch[1:]), segment(mode, data.astype("float32"), *batch[1:]).astype(dtype)
    )

    def loss(function: Any, rows: Any) -> Any:
        return jnp.sin(function(rows).astype("float32")).sum()

    ours = jax.grad(lambda rows: loss(lambda d: FUNCTIONS[mode](d, *batch[1:]), rows))(data)
    theirs = jax.grad(lambda rows: loss(lambda d: segment(mode, d, *batch[1:]), rows))(data.astype("float32"))
    assert_near(ours, theirs.astype(dtype))


@pytest.mark.parametrize("mode", MODES)
def test_float64_and_wide_ids(mode: str, x64: None) -> None:
    batch = random_batch(dtype=np.int64)
    data = random_rows(len(batch.ids), dtype="float64")
    assert batch.segment_ids.dtype == np.int64
    assert_near(FUNCTIONS[mode](data, *batch[1:]), segment(mode, data, *batch[1:]))
    ours = jax.grad(lambda d: (FUNCTIONS[mode](d, *batch[1:]) ** 3).sum())(data)
    assert_near(ours, jax.grad(lambda d: (segment(mode, d, *batch[1:]) ** 3).sum())(data))


@pytest.mark.parametrize("mode", MODES)
def test_second_derivatives(mode: str) -> None:
    batch = random_batch(n=7, num_segments=4)
    data = random_rows(7, 2)

    def loss(function: Any) -> Any:
        return lambda rows: (function(rows, *batch[1:]) ** 3).sum()

    def hessian(function: Any) -> Any:
        return jax.jacrev(jax.grad(loss(function)))(data)

    assert_near(hessian(FUNCTIONS[mode]), hessian(lambda *a: segment(mode, *a)))


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_wrap(dtype: str) -> None:
    batch = random_batch()
    data = jnp.asarray(np.random.default_rng(3).integers(0, 200, (len(batch.ids), 3)).astype(dtype))
    ours = rj.segment_sum(data, *batch[1:])
    assert ours.dtype == dtype
    assert same_bits(ours, segment("sum", data, *batch[1:]).astype(dtype))


def test_wide_integers(x64: None) -> None:
    data = jnp.array([2**62, 2**62, 1], "int64")
    assert rj.segment_sum(data, jnp.array([0, 0, 1]), 2).tolist() == [-(2**63), 1]


def test_complex_numbers_go_to_jax() -> None:
    data = jnp.asarray([1, 2j, 1, 1], "complex64")
    ids = jnp.array([1, 0, 1, 5])
    assert same_bits(rj.segment_sum(data, ids, 3), jax.ops.segment_sum(data, ids, 3))


def test_known_ids_are_counted_while_a_function_is_traced() -> None:
    data = random_rows(3)
    for ids in (np.array([0, 4, 1]), jnp.array([0, 4, 1]), [0, 4, 1]):
        assert same_bits(jax.jit(lambda d, i=ids: rj.segment_sum(d, i))(data), rj.segment_sum(data, ids, 5))


def test_num_segments_is_the_largest_id_plus_one() -> None:
    data = random_rows(4)
    assert rj.segment_sum(data, jnp.array([0, 3, 1, 0])).shape == (4, 6)
    assert rj.segment_sum(data, jnp.array([-1, -2, -1, -1])).shape == (0, 6)
    assert rj.segment_sum(data[:0], []).shape == (0, 6)
    with pytest.raises(jax.errors.ConcretizationTypeError):
        jax.jit(rj.segment_sum)(data, jnp.array([0, 3, 1, 0]))


@pytest.mark.parametrize("shape", [(5,), (5, 1), (5, 2, 3), (5, 0), (0, 4)])
@pytest.mark.parametrize("count", [0, 1, 3])
def test_shapes(shape: tuple[int, ...], count: int) -> None:
    data = jnp.arange(int(np.prod(shape)), dtype="float32").reshape(shape)
    ids = jnp.array([2, 0, 2, 9, 1])[: shape[0]]
    ours = rj.segment_sum(data, ids, count)
    assert ours.shape == (count, *shape[1:])
    assert same_bits(ours, jax.ops.segment_sum(data, ids, count))
    assert jax.grad(lambda d: rj.segment_mean(d, ids, count).sum())(data).shape == shape


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint32"])
def test_ids_of_other_types(dtype: str) -> None:
    data = random_rows(3)
    assert same_bits(
        rj.segment_sum(data, jnp.array([1, 0, 1], dtype), 2), rj.segment_sum(data, jnp.array([1, 0, 1]), 2)
    )


def test_sorted_ids_have_the_bits_of_any_order() -> None:
    data, ids = random_rows(300), jnp.asarray(np.sort(np.random.default_rng(0).integers(-2, 9, 300)))
    assert same_bits(rj.segment_sum(data, ids, 8), rj.segment_sum(data, ids, 8, True))
    order = np.random.default_rng(1).permutation(300)
    shuffled = rj.segment_sum(data[order], ids[order], 8, accumulation="reproducible")
    assert same_bits(shuffled, rj.segment_sum(data, ids, 8, accumulation="reproducible"))


@pytest.mark.parametrize("mode", MODES)
def test_large_arrays_have_the_bits_of_raggrad_ops(mode: str) -> None:
    """Many tasks on XLA's threads, negative and cancelling values, again and again."""
    random = np.random.default_rng(5)
    data = random.standard_normal((200_000, 16)).astype("float32")
    data[1::2] = -data[::2]
    ids = random.integers(0, 5_000, len(data)).astype(np.int32)
    expected = getattr(ops, f"segment_{mode}")(data, ids, 5_000)
    function = jax.jit(FUNCTIONS[mode], static_argnums=2)
    for _ in range(3):
        assert same_bits(function(data, ids, 5_000), expected)
    grad = jax.grad(lambda rows: (function(rows, ids, 5_000) ** 2).sum())(jnp.asarray(data))
    assert same_bits(grad, getattr(ops, f"segment_{mode}_grad")(2 * expected, ids))


def test_accumulation() -> None:
    data, ids = random_rows(300, dtype="float32") * 1e3, jnp.zeros(300, "int32")
    for mode in ("sequential", "fast", "reproducible"):
        expected = ops.segment_sum(np.asarray(data), np.asarray(ids), 1, accumulation=mode)
        assert same_bits(rj.segment_sum(data, ids, 1, accumulation=mode), expected)
        with raggrad.accumulation(mode):
            assert same_bits(rj.segment_sum(data, ids, 1), expected)
