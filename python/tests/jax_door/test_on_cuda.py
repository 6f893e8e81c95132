"""XLA's part around the handlers for GPUs, with the handlers for CPUs, which take the same operands."""

from __future__ import annotations

import re
from typing import Any

import pytest

from .door import MODES, ROWS, assert_near, jax, jnp, random_batch, random_rows, rj, same_bits

on_cuda = pytest.importorskip("raggrad.jax._on_cuda")
entries = pytest.importorskip("raggrad.jax._entries")
Settings = pytest.importorskip("raggrad.jax._calls").Settings


def settings(mode: str, **others: Any) -> Any:
    return Settings("test", mode, num_segments=12, num_rows=ROWS, **others)


@pytest.mark.parametrize("mode", MODES)
def test_gradients_of_segments(mode: str) -> None:
    batch = random_batch()
    data, grad = random_rows(len(batch.ids)), random_rows(12, seed=4)
    function = {"sum": rj.segment_sum, "mean": rj.segment_mean, "sqrtn": rj.segment_sqrtn}[mode]
    _, pull = jax.vjp(lambda d: function(d, *batch[1:]), data)
    assert_near(on_cuda.spread(grad, batch.segment_ids, settings(mode)), pull(grad)[0])


@pytest.mark.parametrize("accumulation", [None, "reproducible"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_bags(mode: str, weighted: bool, accumulation: str | None) -> None:
    batch, table, grad = random_batch(), random_rows(), random_rows(12, seed=4)
    weights = random_rows(len(batch.ids), 1, seed=5)[:, 0] if weighted else None
    s = settings(mode, size=len(batch.ids), accumulation=accumulation)
    options = {"mode": mode, "accumulation": accumulation}

    _, pull = jax.vjp(lambda t, w: rj.embedding_bag(t, *batch, weights=w, **options), table, weights)
    arrays = batch.ids, batch.segment_ids
    d_table, d_weights = pull(grad)
    assert same_bits(on_cuda.bag_grad(grad, *arrays, weights, s), d_table)
    if weighted:
        assert same_bits(on_cuda.bag_weights_grad(grad, table, *arrays, s), d_weights)

    rows = rj.sparse_segment_grad(mode, grad, *arrays, ROWS, weights=weights, accumulation=accumulation)
    values, ids, count = on_cuda.bag_grad_rows(grad, *arrays, weights, s)
    assert same_bits(values, rows.values)
    assert same_bits(ids, rows.ids)
    assert int(count) == int(rows.count)


@pytest.mark.parametrize("dtype", ["float32", "bool"])
@pytest.mark.parametrize("count", [0, 3, 5])
def test_padding_among_entries_that_are_filled(count: int, dtype: str) -> None:
    indices = jnp.array([[4, 1], [0, 2], [4, 0], [2, 2], [5, 1]])
    arrays = indices, jnp.ones(5, dtype), jnp.zeros((), dtype)
    for room in (11, 7):
        box = entries.Box("test", (6, 3), (), (), room)
        expected = entries.fill(*arrays, jnp.int32(count), box)
        with jax.numpy_rank_promotion("raise"), jax.numpy_dtype_promotion("strict"):
            got = entries.fill_with_padding(*arrays, jnp.int32(count), box)
        for a, b in zip((got[0][..., 0], *got[1:]), expected, strict=True):
            assert a.dtype == b.dtype
            assert same_bits(a, b)


def test_too_little_room_among_padding_is_poison() -> None:
    arrays = jnp.array([[4, 1], [0, 2], [4, 0]]), jnp.ones(3), jnp.zeros(())
    results = entries.fill_with_padding(*arrays, jnp.int32(2), entries.Box("test", (6, 3), (), (), 5))
    assert int(results[4]) == 6
    assert bool(jnp.isnan(results[1]).all())


def test_dropped_ids_add_nothing() -> None:
    """Neither their weights nor the row that is read in their place may reach a gradient, whatever they are."""
    batch, grad = random_batch(), random_rows(12, seed=4)
    dropped = (batch.segment_ids < 0) | (batch.segment_ids >= 12)
    weights = jnp.where(dropped, jnp.nan, 1.0)
    table = random_rows().at[0].set(jnp.inf)
    arrays, s = (batch.ids, batch.segment_ids), settings("mean", size=len(batch.ids))
    assert same_bits(on_cuda.bag_grad(grad, *arrays, weights, s), on_cuda.bag_grad(grad, *arrays, None, s))
    for a, b in zip(
        on_cuda.bag_grad_rows(grad, *arrays, weights, s), on_cuda.bag_grad_rows(grad, *arrays, None, s), strict=True
    ):
        assert same_bits(a, b)
    assert not jnp.where(dropped, on_cuda.bag_weights_grad(grad, table, *arrays, s), 0).any()


def test_scratch_of_symbolic_shapes() -> None:
    """A handler in a command buffer has its scratch as a result, whose size depends on the shapes."""

    def calls(data: Any, ids: Any, grad: Any) -> Any:
        places = jnp.stack([ids, ids], axis=1)
        return (
            rj.segment_sum(data, ids, 30),
            rj.sparse_segment_grad("mean", grad, ids, ids, 50, accumulation="reproducible"),
            rj.fill_empty_rows(places, data[:, 0], (30, 30), 0.5)[0].count,
            rj.sparse_slice(places, data[:, 0], (30, 30), (1, 1), (9, 9)),
        )

    n, width, segments = jax.export.symbolic_shape("n, width, segments")
    shapes = [
        jax.ShapeDtypeStruct(shape, dtype)
        for shape, dtype in (((n, width), "float32"), ((n,), "int32"), ((segments, width), "float32"))
    ]
    exported = jax.export.export(jax.jit(calls), platforms=("cuda",), disabled_checks=rj.export_checks())(*shapes)
    handlers = re.findall(r"custom_call @raggrad_(\w+).*tensor<\?xui8>\)", exported.mlir_module())
    assert handlers == ["segment", "bag_grad_rows", "fill_empty_rows", "slice"]


def test_too_little_room_is_poison() -> None:
    """The report of a call on a GPU: five rows, no fault."""
    from raggrad.jax._calls import count_of, poisoned

    report = jnp.array([5, 0, 2**32 - 1, 2**32 - 1] + [0] * 8, "uint32")
    values = jnp.ones((4, 2))
    assert bool(jnp.isnan(poisoned(values, report, count_of(report))).all())
    assert same_bits(poisoned(jnp.ones((5, 2)), report, count_of(report)), jnp.ones((5, 2)))
    fault = report.at[2].set(3)
    assert bool(jnp.isnan(poisoned(jnp.ones((5, 2)), fault, count_of(fault))).all())
