"""fill_empty_rows and sparse_slice, and their gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from raggrad import raw_ops

from .door import FLOATS, XlaError, jax, jnp, rj, same_bits

SHAPE = (9, 7)


def entries(n: int = 20, dtype: Any = "float32", index: Any = np.int32) -> tuple[Any, Any]:
    random = np.random.default_rng(0)
    places = np.stack([random.integers(0, 5, n), random.integers(0, SHAPE[1], n)], axis=1).astype(index)
    return jnp.asarray(places), jnp.asarray(random.integers(-9, 9, n), dtype)


@pytest.mark.parametrize("dtype", [*FLOATS, "int32", "uint8", "bool", "complex64"])
def test_filled_rows(dtype: str) -> None:
    indices, values = entries(dtype=dtype)
    filled, empty = jax.jit(lambda i, v: rj.fill_empty_rows(i, v, SHAPE, 1))(indices, values)
    expected = raw_ops.SparseFillEmptyRows(
        indices=np.asarray(indices, np.int64),
        values=np.asarray(values),
        dense_shape=list(SHAPE),
        default_value=np.asarray(values[:1] * 0 + 1, values.dtype)[0],
    )
    count = int(filled.count)
    assert np.asarray(filled.indices)[:count].tolist() == expected.output_indices.tolist()
    assert same_bits(filled.values[:count], expected.output_values)
    assert empty.tolist() == expected.empty_row_indicator.tolist()
    assert filled.size == 20 + SHAPE[0]
    assert np.asarray(filled.indices)[count:].tolist() == [[SHAPE[0], 0]] * (filled.size - count)
    assert filled.indices.dtype == np.int32


def test_gradients_of_filled_rows() -> None:
    indices, values = entries(6)

    def loss(v: Any, default: Any) -> Any:
        filled, _ = rj.fill_empty_rows(indices, v, SHAPE, default)
        return (filled.values ** 2).sum() + filled.values.sum()

    d_values, d_default = jax.grad(loss, (0, 1))(values, 3.0)
    assert same_bits(d_values, 2 * values + 1)
    empty = SHAPE[0] - len(set(np.asarray(indices)[:, 0].tolist()))
    assert float(d_default) == empty * 7


def test_second_derivatives_of_filled_rows() -> None:
    places = jnp.array([[3, 1], [0, 2], [3, 0]])

    def ours(v: Any, default: Any) -> Any:
        return rj.fill_empty_rows(places, v, (4, 3), default)[0].to_dense()

    def theirs(v: Any, default: Any) -> Any:
        return jnp.zeros((4, 3)).at[places[:, 0], places[:, 1]].add(v).at[jnp.array([1, 2]), 0].add(default)

    def hessian(function: Any) -> Any:
        loss = jax.grad(lambda v, default: (function(v, default) ** 3).sum(), (0, 1))
        return jax.jacrev(loss, (0, 1))(jnp.array([1.0, 2.0, 4.0]), 3.0)

    for a, b in zip(jax.tree.leaves(hessian(ours)), jax.tree.leaves(hessian(theirs)), strict=True):
        assert same_bits(a, b)


def test_wide_indices(x64: None) -> None:
    indices, values = entries(index=np.int64, dtype="float64")
    filled, _ = rj.fill_empty_rows(indices, values, SHAPE, 0.5)
    assert filled.indices.dtype == np.int64
    far = jnp.array([[2**40, 3]])
    assert rj.sparse_slice(far, jnp.array([1.0]), (5, 5), (0, 0), (5, 5)).count == 0


def test_room_for_filled_rows() -> None:
    indices, values = entries()
    enough = int(rj.fill_empty_rows(indices, values, SHAPE, 0)[0].count)
    assert rj.fill_empty_rows(indices, values, SHAPE, 0, max_entries=enough)[0].size == enough
    text = rf"fill_empty_rows: .*max_entries: expected {enough} or more, got {enough - 1}"
    with pytest.raises(XlaError, match=text):
        rj.fill_empty_rows(indices, values, SHAPE, 0, max_entries=enough - 1)[1].block_until_ready()
    with pytest.raises(XlaError, match=r"raggrad.jax.fill_empty_rows: .*indices\[0"):
        rj.fill_empty_rows(indices + 9, values, SHAPE, 0)[1].block_until_ready()


def cut_and_filled(indices: Any, values: Any, default: Any, start: tuple[int, int], **options: Any) -> Any:
    cut = rj.sparse_slice(indices, values, SHAPE, start, (6, 5))
    return rj.fill_empty_rows(cut.indices, cut.values, cut.shape, default, count=cut.count, **options)


@pytest.mark.parametrize("dtype", [*FLOATS, "int32", "bool"])
@pytest.mark.parametrize("start", [(0, 0), (2, 3), (8, 6), (9, 0)])
def test_slices_are_filled(start: tuple[int, int], dtype: str) -> None:
    """As if there were no padding. A slice may have no entries, no padding, or no rows."""
    indices, values = entries(dtype=dtype)
    cut = rj.sparse_slice(indices, values, SHAPE, start, (6, 5))
    kept = int(cut.count)
    filled, empty = jax.jit(lambda i, v: cut_and_filled(i, v, 1, start))(indices, values)
    expected, were_empty = rj.fill_empty_rows(
        cut.indices[:kept], cut.values[:kept], cut.shape, 1, max_entries=filled.size
    )
    for a, b in zip(jax.tree.leaves((filled, empty)), jax.tree.leaves((expected, were_empty)), strict=True):
        assert same_bits(a, b)
    assert filled.values.dtype == expected.values.dtype


def test_gradients_of_filled_slices() -> None:
    indices, values = entries()
    start = (1, 2)

    def ours(v: Any, default: Any) -> Any:
        return cut_and_filled(indices, v, default, start)[0].to_dense()

    def theirs(v: Any, default: Any) -> Any:
        inside = jnp.zeros(SHAPE).at[tuple(indices.T)].add(v)[1:7, 2:7]
        empty = cut_and_filled(indices, v, 0.0, start)[1]
        return inside.at[:, 0].add(jnp.where(empty, default, 0.0))

    for derive in (jax.grad, lambda f, n: jax.jacrev(jax.grad(f, n), n)):
        got, wanted = (
            derive(lambda v, d, f=f: (f(v, d) ** 3).sum(), (0, 1))(values, 3.0) for f in (ours, theirs)
        )
        for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5)


def test_a_count_that_cannot_be() -> None:
    indices, values = entries()
    with pytest.raises(XlaError, match=r"raggrad.jax.fill_empty_rows: \[count: expected 0 to 20, .*got 21\]"):
        rj.fill_empty_rows(indices, values, SHAPE, 0, count=21)[1].block_until_ready()
    with pytest.raises(TypeError, match=r"raggrad.jax.fill_empty_rows: count: expected int8, .*got float32"):
        rj.fill_empty_rows(indices, values, SHAPE, 0, count=2.0)
    with pytest.raises(XlaError, match=r"raggrad.jax.fill_empty_rows: .*max_entries: expected 6 or more, got 5"):
        cut_and_filled(indices[:1], values[:1], 0, (0, 0), max_entries=5)[1].block_until_ready()


@pytest.mark.parametrize("dtype", [*FLOATS, "int32", "bool"])
def test_slices(dtype: str) -> None:
    indices, values = entries(dtype=dtype)
    whole = np.zeros(SHAPE, "float64")
    for place, value in zip(np.asarray(indices).tolist(), np.asarray(values, "float64").tolist(), strict=True):
        whole[tuple(place)] += value
    for start, size in (((0, 0), SHAPE), ((1, 2), (3, 3)), ((4, 4), (90, 90)), ((9, 0), (2, 2)), ((0, 0), (0, 5))):
        cut = jax.jit(lambda i, v, b=start, s=size: rj.sparse_slice(i, v, SHAPE, b, s))(indices, values)
        expected = whole[start[0] : start[0] + size[0], start[1] : start[1] + size[1]]
        assert cut.shape == expected.shape
        dense = cut.to_dense()
        assert dense.dtype == values.dtype
        np.testing.assert_array_equal(np.asarray(dense, "float64"), expected > 0 if dtype == "bool" else expected)


def test_gradients_of_slices() -> None:
    indices, values = entries()
    start, size = (1, 2), (3, 3)
    with jax.numpy_rank_promotion("raise"), jax.numpy_dtype_promotion("strict"):
        gradient = jax.grad(lambda v: (rj.sparse_slice(indices, v, SHAPE, start, size).values ** 2).sum())(values)
    places = np.asarray(indices)
    inside = ((places >= start) & (places < np.add(start, size))).all(axis=1)
    assert same_bits(gradient, np.where(inside, 2 * np.asarray(values), 0).astype("float32"))


def test_padding_is_not_sliced() -> None:
    """A box that reaches behind the array, where padding lies, ends with the array."""
    indices, values = entries()
    once = rj.sparse_slice(indices, values, SHAPE, (1, 2), (3, 3))
    assert int(once.count) < once.size
    again = rj.sparse_slice(once.indices, once.values, once.shape, (0, 0), (90, 90))
    for a, b in zip(jax.tree.leaves(again), jax.tree.leaves(once), strict=True):
        assert same_bits(a, b)


def test_room_for_slices() -> None:
    indices, values = entries()
    with pytest.raises(XlaError, match=r"raggrad.jax.sparse_slice: .*max_entries: expected 20 or more, got 19"):
        rj.sparse_slice(indices, values, SHAPE, (0, 0), SHAPE, max_entries=19).values.block_until_ready()


def test_three_dimensions_and_one() -> None:
    for rank in (1, 3):
        indices = jnp.arange(2 * rank).reshape(2, rank)
        cut = rj.sparse_slice(indices, jnp.ones(2), (9,) * rank, (1,) * rank, (9,) * rank)
        assert cut.indices[:1].tolist() == [list(range(rank - 1, 2 * rank - 1))] or rank == 3
        assert int(cut.count) == 1
        filled, empty = rj.fill_empty_rows(indices, jnp.ones(2), (9,) * rank, 2.0)
        assert int(filled.count) == 9
        assert int(empty.sum()) == 7
