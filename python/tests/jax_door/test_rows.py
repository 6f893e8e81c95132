"""sparse_segment_grad, which returns Rows, and apply_rows, which uses them."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import raggrad
from raggrad import ops, optimizers

from .door import FLOATS, MODES, ROWS, WIDTH, XlaError, assert_near, jax, jnp, random_batch, random_rows, rj, same_bits

KINDS = {
    "SGD": (rj.SGD(0.1), lambda table: optimizers.SGD(0.1)),
    "Adagrad": (rj.Adagrad(0.1), lambda table: optimizers.Adagrad.for_table(table, 0.1)),
    "Adam": (rj.Adam(0.1), lambda table: optimizers.Adam.for_table(table, 0.1)),
}


def dense(rows: Any, like: Any) -> Any:
    return jnp.zeros_like(like).at[rows.ids].add(rows.values, mode="drop")


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("mode", MODES)
def test_rows_are_the_dense_gradient(mode: str, dtype: str) -> None:
    batch, table = random_batch(), random_rows(dtype=dtype)
    grad = random_rows(batch.num_segments, dtype=dtype, seed=3)
    rows = rj.sparse_segment_grad(mode, grad, batch.ids, batch.segment_ids, ROWS)
    _, pull = jax.vjp(lambda t: rj.embedding_bag(t, *batch, mode=mode), table)
    assert same_bits(dense(rows, table), pull(grad)[0])
    known = np.asarray(batch.ids)[(np.asarray(batch.segment_ids) >= 0) & (np.asarray(batch.segment_ids) < 12)]
    count = int(rows.count)
    assert np.asarray(rows.ids)[:count].tolist() == sorted(set(known.tolist()))
    assert rows.size == len(batch.ids)
    assert set(np.asarray(rows.ids)[count:].tolist()) == {ROWS}
    assert not np.asarray(rows.values)[count:].any()


def test_weights_and_accumulation() -> None:
    batch, table = random_batch(), random_rows()
    grad, weights = random_rows(batch.num_segments, seed=3), random_rows(len(batch.ids), 1)[:, 0]
    rows = rj.sparse_segment_grad("mean", grad, batch.ids, batch.segment_ids, ROWS, weights=weights)
    _, pull = jax.vjp(lambda t: rj.embedding_bag(t, *batch, weights=weights), table)
    assert same_bits(dense(rows, table), pull(grad)[0])
    for mode in ("sequential", "fast", "reproducible"):
        kept = (np.asarray(batch.segment_ids) >= 0) & (np.asarray(batch.segment_ids) < 12)
        ids, segments = np.asarray(batch.ids)[kept], np.asarray(batch.segment_ids)[kept]
        expected = ops.sparse_segment_mean_grad(np.asarray(grad), ids, segments, ROWS, accumulation=mode)
        rows = rj.sparse_segment_grad("mean", grad, batch.ids, batch.segment_ids, ROWS, accumulation=mode)
        assert same_bits(rows.values[: int(rows.count)], expected.values)


def test_float64_and_wide_ids(x64: None) -> None:
    batch, grad = random_batch(dtype=np.int64), random_rows(12, dtype="float64")
    rows = rj.sparse_segment_grad("sqrtn", grad, batch.ids, batch.segment_ids, ROWS)
    assert (rows.values.dtype, rows.ids.dtype, rows.count.dtype) == (np.float64, np.int64, np.int32)
    _, pull = jax.vjp(lambda t: rj.embedding_bag(t, *batch, mode="sqrtn"), random_rows(dtype="float64"))
    assert same_bits(dense(rows, random_rows(dtype="float64")), pull(grad)[0])


def test_size() -> None:
    grad, ids, segments = jnp.ones((2, 3)), jnp.array([7, 3, 7, 5]), jnp.array([0, 0, 1, 1])
    for size in (3, 4, 100):
        rows = jax.jit(lambda g, s=size: rj.sparse_segment_grad("sum", g, ids, segments, 9, size=s))(grad)
        assert (rows.size, int(rows.count)) == (size, 3)
        assert rows.ids.tolist() == ([3, 5, 7] + [9] * size)[:size]
    assert rj.sparse_segment_grad("sum", grad, ids, segments, 2**31 - 1).size == 4
    assert rj.sparse_segment_grad("sum", grad, ids * 0, segments, 1).size == 1
    with pytest.raises(XlaError, match=r"raggrad.jax.sparse_segment_grad: .*size: expected 3 or more, got 2"):
        rj.sparse_segment_grad("sum", grad, ids, segments, 9, size=2).values.block_until_ready()
    empty = rj.sparse_segment_grad("sum", grad, ids[:0], segments[:0], 9)
    assert (empty.size, int(empty.count)) == (0, 0)


@pytest.mark.parametrize("mode", MODES)
def test_derivatives_of_rows(mode: str) -> None:
    batch, grad = random_batch(), random_rows(12, seed=3)
    weights, like = random_rows(len(batch.ids), 1)[:, 0], random_rows(seed=5)

    def through_rows(grad: Any, weights: Any) -> Any:
        rows = rj.sparse_segment_grad(mode, grad, batch.ids, batch.segment_ids, ROWS, weights=weights)
        return ((dense(rows, like) - like) ** 2).sum()

    def through_the_table(grad: Any, weights: Any) -> Any:
        _, pull = jax.vjp(lambda t: rj.embedding_bag(t, *batch, mode=mode, weights=weights), like)
        return ((pull(grad)[0] - like) ** 2).sum()

    ours, theirs = (jax.jit(jax.grad(f, (0, 1)))(grad, weights) for f in (through_rows, through_the_table))
    for a, b in zip(ours, theirs, strict=True):
        assert_near(a, b)


def test_a_step_beside_a_loss_does_not_disturb_its_gradient() -> None:
    batch, table = random_batch(), random_rows()

    def loss(table: Any) -> Any:
        pooled = rj.embedding_bag(table, *batch)
        rows = rj.sparse_segment_grad("mean", pooled, batch.ids, batch.segment_ids, ROWS)
        return pooled.sum(), rj.apply_rows(table, rows, rj.SGD(0.1))[0]

    gradient, stepped = jax.grad(loss, has_aux=True)(table)
    assert same_bits(gradient, jax.grad(lambda t: loss(t)[0])(table))
    assert same_bits(stepped, loss(table)[1])


def test_an_optimizer_may_be_derived() -> None:
    class Named(rj.Adagrad):
        """A class of the user's."""

    table = random_rows()
    rows = rj.sparse_segment_grad("sum", jnp.ones((1, WIDTH)), jnp.array([3]), jnp.array([0]), ROWS)
    both = [rj.apply_rows(table, rows, kind(0.1), kind(0.1).init(table)) for kind in (Named, rj.Adagrad)]
    assert same_bits(both[0][0], both[1][0])


def test_a_step_moves_nothing_to_the_device() -> None:
    table, rate = random_rows(), jnp.float32(0.5)
    rows = rj.sparse_segment_grad("sum", jnp.ones((1, WIDTH)), jnp.array([3]), jnp.array([0]), ROWS)
    with jax.transfer_guard("disallow"):
        assert rj.apply_rows(table, rows, rj.SGD(0.5))[0].shape == table.shape
        assert rj.apply_rows(table, rows, rj.SGD(rate))[0].shape == table.shape


def test_rows_are_a_pytree() -> None:
    rows = rj.sparse_segment_grad("sum", jnp.ones((1, 2)), jnp.array([1]), jnp.array([0]), 3)
    doubled = jax.jit(lambda r: jax.tree.map(lambda leaf: leaf * 2, r))(rows)
    assert isinstance(doubled, rj.Rows)
    assert doubled.values.tolist() == [[2.0, 2.0]]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_steps_have_the_bits_of_raggrad_optimizers(kind: str, dtype: str) -> None:
    ours, make = KINDS[kind]
    table, batch = random_rows(dtype=dtype), random_batch()
    state = ours.init(table)
    expected = np.array(table)
    theirs = make(expected)
    step = jax.jit(lambda table, rows, state: rj.apply_rows(table, rows, ours, state), donate_argnums=(0, 2))
    for seed in range(3):
        grad = random_rows(batch.num_segments, dtype=dtype, seed=seed)
        rows = rj.sparse_segment_grad("mean", grad, batch.ids, batch.segment_ids, ROWS)
        count = int(rows.count)
        slices = raggrad.IndexedSlices(np.asarray(rows.values)[:count], np.asarray(rows.ids)[:count], (ROWS, WIDTH))
        slices.apply_(expected, theirs)
        table, state = step(table, rows, state)
        assert same_bits(table, expected)


@pytest.mark.parametrize("kind", KINDS)
def test_formulas_for_gpus_agree(kind: str) -> None:
    from raggrad.jax.optimizers import _apply_on_cuda, _numbers_of

    optimizer = KINDS[kind][0]
    table, batch = random_rows(), random_batch()
    rows = rj.sparse_segment_grad("mean", random_rows(12, seed=4), batch.ids, batch.segment_ids, ROWS)
    state = optimizer.init(table)
    expected = jax.tree.leaves(rj.apply_rows(table, rows, optimizer, state))
    numbers = dict(_numbers_of("apply_rows", optimizer, type(optimizer)))
    formulas = _apply_on_cuda(table, rows, None, tuple(jax.tree.leaves(state)), kind, numbers)
    for a, b in zip(formulas, expected, strict=False):
        assert_near(a, b)


def test_the_learning_rate_may_be_traced() -> None:
    table = random_rows()
    rows = rj.sparse_segment_grad("sum", jnp.ones((1, WIDTH)), jnp.array([3]), jnp.array([0]), ROWS)
    step = jax.jit(lambda rate: rj.apply_rows(table, rows, rj.SGD(rate))[0])
    for rate in (0.5, 0.25):
        assert same_bits(step(rate), table.at[3].add(-rate))
    assert same_bits(rj.apply_rows(table, rows, rj.SGD(jnp.float32(0.5)))[0], step(0.5))


def test_a_donated_table_changes_in_place() -> None:
    adam = rj.Adam(0.1)
    table = random_rows(1000, 64)
    state = adam.init(table)
    rows = rj.sparse_segment_grad("sum", jnp.ones((1, 64)), jnp.array([3]), jnp.array([0]), 1000)
    step = jax.jit(lambda table, state: rj.apply_rows(table, rows, adam, state), donate_argnums=(0, 1))
    before = [leaf.unsafe_buffer_pointer() for leaf in (table, state.m, state.v)]
    new_table, new_state = step(table, state)
    assert [leaf.unsafe_buffer_pointer() for leaf in (new_table, new_state.m, new_state.v)] == before
    assert table.is_deleted()
    assert int(new_state.step) == 1


def test_doubles_are_not_mixed_with_others(x64: None) -> None:
    def rows(dtype: str) -> Any:
        return rj.sparse_segment_grad("sum", random_rows(2, dtype=dtype), jnp.array([3]), jnp.array([0]), ROWS)

    for table, values, expected in (("float64", "float32", "float64"), ("bfloat16", "float64", "float32, bfloat16,")):
        with pytest.raises(TypeError, match=f"raggrad.jax.apply_rows: rows.values: expected {expected}.* got {values}"):
            rj.apply_rows(random_rows(dtype=table), rows(values), rj.SGD(0.1))
    assert rj.apply_rows(random_rows(dtype="float16"), rows("float32"), rj.SGD(0.1))[0].dtype == np.float16


@pytest.mark.parametrize("kind", [rj.Adagrad, rj.Adam])
def test_states_of_numpys_tables_are_of_jaxs_type(kind: Any) -> None:
    table = np.ones((4, WIDTH))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        states = jax.tree.leaves(kind(0.1).init(table))
    assert states[0].dtype == np.float32


def test_without_donation_the_table_stays() -> None:
    table = random_rows()
    before = np.array(table)
    rows = rj.sparse_segment_grad("sum", jnp.ones((1, WIDTH)), jnp.array([3]), jnp.array([0]), ROWS)
    new_table, state = rj.apply_rows(table, rows, rj.SGD(1.0))
    assert state == ()
    assert same_bits(table, before)
    assert not same_bits(new_table, before)
