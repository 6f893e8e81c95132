"""JAX's transformations: vmap, scan, checkpoint, shard_map, export; several threads; fork."""

from __future__ import annotations

import os
import threading
from typing import Any

import numpy as np
import pytest

from .door import ROWS, WIDTH, assert_near, bag, jax, jnp, random_batch, random_rows, rj, run, same_bits, segment


def test_vmap() -> None:
    batch = random_batch()
    tables = jnp.stack([random_rows(seed=seed) for seed in range(3)])
    ours = jax.vmap(lambda table: rj.embedding_bag(table, *batch))(tables)
    assert same_bits(ours, jnp.stack([rj.embedding_bag(table, *batch) for table in tables]))
    gradients = jax.vmap(jax.grad(lambda table: (rj.embedding_bag(table, *batch) ** 2).sum()))(tables)
    theirs = jax.vmap(jax.grad(lambda table: (bag("mean", table, batch) ** 2).sum()))(tables)
    assert_near(gradients, theirs)


def test_vmap_over_ids() -> None:
    data = random_rows(8)
    ids = jnp.asarray(np.random.default_rng(0).integers(-1, 4, (5, 8)))
    ours = jax.vmap(lambda i: rj.segment_mean(data, i, 3))(ids)
    assert_near(ours, jax.vmap(lambda i: segment("mean", data, i, 3))(ids))
    rows = jax.vmap(lambda i: rj.sparse_segment_grad("sum", data[:3], i, i % 3, 4))(jnp.maximum(ids, 0))
    assert rows.values.shape == (5, 4, WIDTH)
    assert rows.size == 4
    assert rows.count.shape == (5,)


def test_strict_promotion_with_wide_types(x64: None) -> None:
    """Both platforms' code is traced, also that which is not compiled."""
    batch, table, adam = random_batch(), random_rows(), rj.Adam(0.1)
    indices = jnp.stack([batch.ids, batch.ids], axis=1)

    def everything(table: Any, values: Any) -> Any:
        rows = rj.sparse_segment_grad("mean", table[:12], batch.ids, batch.segment_ids, ROWS, weights=values)
        cut = rj.sparse_slice(indices, values, (50, 50), (0, 0), (9, 9))
        filled, _ = rj.fill_empty_rows(cut.indices, cut.values, cut.shape, 0.5, count=cut.count)
        pooled = rj.segment_mean(table[:40], batch.segment_ids, 12).sum() + rows.values.sum()
        return pooled + filled.values.sum(), rj.apply_rows(table, rows, adam, adam.init(table))

    with jax.numpy_rank_promotion("raise"), jax.numpy_dtype_promotion("strict"):
        gradients, _ = jax.grad(everything, (0, 1), has_aux=True)(table, jnp.ones(40, "float32"))
    assert [g.dtype for g in gradients] == [np.float32, np.float32]


def test_a_step_in_a_scan() -> None:
    batch, adagrad = random_batch(), rj.Adagrad(0.1)
    table = random_rows()

    def step(carry: Any, scale: Any) -> tuple[Any, Any]:
        table, state = carry
        loss, d_pooled = jax.value_and_grad(lambda pooled: (scale * pooled**2).sum())(
            rj.embedding_bag(table, *batch)
        )
        rows = rj.sparse_segment_grad("mean", d_pooled, batch.ids, batch.segment_ids, ROWS)
        return rj.apply_rows(table, rows, adagrad, state), loss

    scales = jnp.linspace(0.5, 1.0, 10)
    (scanned, _), losses = jax.jit(lambda table: jax.lax.scan(step, (table, adagrad.init(table)), scales))(table)
    carry: Any = (table, adagrad.init(table))
    for scale in scales:
        carry, _ = step(carry, scale)
    assert same_bits(scanned, carry[0])
    assert losses[-1] < losses[0]


def test_checkpoint_and_conditions() -> None:
    batch, table = random_batch(), random_rows()

    def loss(table: Any) -> Any:
        pooled = jax.checkpoint(lambda t: rj.embedding_bag(t, *batch))(table)
        return jax.lax.cond(pooled.sum() > 1e9, lambda p: p.sum(), lambda p: (p**2).sum(), pooled)

    assert_near(jax.jit(jax.grad(loss))(table), jax.grad(lambda t: (bag("mean", t, batch) ** 2).sum())(table))


def test_forward_mode_is_refused() -> None:
    data, ids = random_rows(3), jnp.array([0, 1, 0])
    with pytest.raises(TypeError, match="forward-mode"):
        jax.jvp(lambda d: rj.segment_sum(d, ids, 2), (data,), (data,))


def test_shard_map_runs_on_every_device() -> None:
    printed = run(
        """
import jax, jax.numpy as jnp, numpy as np
import raggrad.jax as rj
from jax.sharding import Mesh, PartitionSpec as P

mesh = Mesh(np.array(jax.devices()), ("x",))
data = jnp.arange(24.0).reshape(12, 2)
ids = jnp.array([0, 2, 0, 1, 5, -1] * 2)
table, adam = jnp.arange(12.0).reshape(6, 2), rj.Adam(0.1)

def split(function, replicated=0):  # all arguments but the first are split
    specs = lambda n: (P(),) * replicated + (P("x"),) * (n - replicated)
    return lambda *a: jax.jit(jax.shard_map(function, mesh=mesh, in_specs=specs(len(a)), out_specs=P("x")))(*a)

def halves(function, *arrays):
    return jnp.concatenate([function(*(array[6 * k : 6 * k + 6] for array in arrays)) for k in range(2)])

def pool(d, i):
    return rj.segment_sum(d, i, 3)

def bag(t, i):
    return rj.embedding_bag(t, jnp.abs(i) % 6, i, 3, weights=i.astype("float32"))

def step(t, i):
    rows = rj.sparse_segment_grad("mean", t[:3], jnp.abs(i) % 6, i, 6)
    return rj.apply_rows(t, rows, adam, adam.init(t))[0]

print(len(jax.devices()))
print((split(pool)(data, ids) == halves(pool, data, ids)).all())
print((split(bag, 1)(table, ids) == halves(lambda i: bag(table, i), ids)).all())
print((split(step, 1)(table, ids) == halves(lambda i: step(table, i), ids)).all())
grad = jax.grad(lambda d: (split(pool)(d, ids) ** 2).sum())(data)
print((grad == jax.grad(lambda d: (halves(pool, d, ids) ** 2).sum())(data)).all())
grad = jax.grad(lambda t: split(bag, 1)(t, ids).sum())(table)  # summed over the devices
print(jnp.allclose(grad, jax.grad(lambda t: halves(lambda i: bag(t, i), ids).sum())(table)))
""",
        XLA_FLAGS=f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=2",
        JAX_PLATFORMS="cpu",
    )
    assert printed.split() == ["2", "True", "True", "True", "True", "True"]


def test_export() -> None:
    batch, table = random_batch(), random_rows()
    function = jax.jit(lambda table: rj.embedding_bag(table, *batch))
    with pytest.raises(ValueError, match="raggrad_bag"):
        jax.export.export(function)(table)
    exported = jax.export.export(function, disabled_checks=rj.export_checks())(table)
    again = jax.export.deserialize(exported.serialize())
    assert same_bits(again.call(table), function(table))


def test_export_for_both_platforms() -> None:
    """Nothing is compiled, but everything for CUDA is lowered: names, shapes and types fit together."""
    batch, table, adam = random_batch(), random_rows(), rj.Adam(0.1)
    indices = jnp.stack([batch.ids, batch.ids], axis=1)

    def everything(table: Any, weights: Any) -> Any:
        pooled = rj.embedding_bag(table, *batch)
        rows = rj.sparse_segment_grad("mean", pooled, batch.ids, batch.segment_ids, ROWS)
        weighted = rj.sparse_segment_grad("mean", pooled, batch.ids, batch.segment_ids, ROWS, weights=weights)
        return (
            jax.grad(lambda t, w: rj.embedding_bag(t, *batch, weights=w).sum(), (0, 1))(table, weights),
            jax.grad(lambda t: (rj.embedding_bag(t, *batch) ** 2).sum())(table),
            jax.grad(lambda t: (rj.segment_mean(t, batch.segment_ids, 12) ** 2).sum())(table[:40]),
            rj.segment_sum(table[:40], jnp.sort(batch.segment_ids), 12, True),
            rj.apply_rows(table, rows, adam, adam.init(table)),
            rj.apply_rows(table, weighted, rj.SGD(0.1)),
            jax.grad(lambda v: rj.fill_empty_rows(indices, v, (50, 50), 0.5)[0].values.sum())(weights),
            jax.grad(lambda v: rj.sparse_slice(indices, v, (50, 50), (0, 0), (9, 9)).values.sum())(weights),
        )

    exported = jax.export.export(
        jax.jit(everything), platforms=("cpu", "cuda"), disabled_checks=rj.export_checks()
    )(table, jnp.ones(40))
    assert exported.platforms == ("cpu", "cuda")
    for a, b in zip(
        jax.tree.leaves(exported.call(table, jnp.ones(40))),
        jax.tree.leaves(everything(table, jnp.ones(40))),
        strict=True,
    ):
        assert same_bits(a, b)


def test_export_of_rows_entries_and_states() -> None:
    """They are arguments and results of the exported function."""
    batch, table, adam = random_batch(), random_rows(), rj.Adam(0.1)
    indices = jnp.stack([batch.ids, batch.ids], axis=1)

    def step(table: Any, state: Any) -> Any:
        rows = rj.sparse_segment_grad("mean", table[:12], batch.ids, batch.segment_ids, ROWS)
        entries = rj.sparse_slice(indices, jnp.ones(40), (50, 50), (0, 0), (9, 9))
        return rows, entries, rj.apply_rows(table, rows, adam, state)

    arguments = table, adam.init(table)
    exported = jax.export.export(jax.jit(step), disabled_checks=rj.export_checks())(*arguments)
    again, expected = jax.export.deserialize(exported.serialize()).call(*arguments), step(*arguments)
    assert jax.tree.structure(again) == jax.tree.structure(expected)
    for a, b in zip(jax.tree.leaves(again), jax.tree.leaves(expected), strict=True):
        assert same_bits(a, b)


def test_export_with_symbolic_dimensions() -> None:
    n, segments = jax.export.symbolic_shape("n, segments")
    table = random_rows()

    def function(ids: Any, scales: Any) -> Any:
        grad = jax.grad(lambda t: (rj.embedding_bag(t, ids, ids % 4, scales.shape[0]).sum(1) * scales).sum())(table)
        rows = rj.sparse_segment_grad("sum", table[:4], ids, ids % 4, ROWS)
        return grad, rj.segment_mean(table[ids], ids % 4, scales.shape[0]), rows.values

    shapes = jax.ShapeDtypeStruct((n,), "int32"), jax.ShapeDtypeStruct((segments,), "float32")
    exported = jax.export.export(jax.jit(function), disabled_checks=rj.export_checks())(*shapes)
    for length in (3, 40):
        arguments = jnp.arange(length, dtype="int32"), jnp.arange(float(length))
        for a, b in zip(exported.call(*arguments), function(*arguments), strict=True):
            assert same_bits(a, b)


def test_many_threads() -> None:
    batch = random_batch(n=100_000, num_segments=2_000, rows=ROWS)
    table = random_rows()
    function = jax.jit(jax.grad(lambda t: (rj.embedding_bag(t, *batch) ** 2).sum()))
    expected = function(table)
    results: list[bool] = []

    def work() -> None:
        results.extend(same_bits(function(table), expected) for _ in range(5))

    threads = [threading.Thread(target=work) for _ in range(7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 35


@pytest.mark.parametrize("cores", ["0", "0,1"])
def test_bits_do_not_depend_on_the_number_of_threads(cores: str) -> None:
    code = f"""
import os
os.sched_setaffinity(0, {{{cores}}} & os.sched_getaffinity(0) or os.sched_getaffinity(0))
import hashlib, numpy as np, raggrad.jax as rj
random = np.random.default_rng(0)
data = random.standard_normal((100_000, 9)).astype("float32")
ids = random.integers(-5, 700, 100_000).astype("int32")
sums = rj.segment_mean(data, ids, 600)
rows = rj.sparse_segment_grad("sum", sums, ids % 500, ids, 500)
print(hashlib.sha1(np.asarray(sums).tobytes() + np.asarray(rows.values).tobytes()).hexdigest())
"""
    assert run(code) == run(code.replace("{" + cores + "}", "{0}"))


def test_a_forked_child_is_as_jax_has_it() -> None:
    """JAX warns of fork: its threads are missing in the child. Small calls, which it runs at once, work there."""
    printed = run(
        """
import os, warnings
warnings.simplefilter("ignore")
import jax.numpy as jnp, raggrad.jax as rj
data, ids = jnp.array([1.0, 2.0, 4.0]), jnp.array([1, 0, 1])
before = rj.segment_sum(data, ids, 2).tolist()
child = os.fork()
if child == 0:
    os._exit(0 if rj.segment_sum(data, ids, 2).tolist() == before else 1)
print(os.waitpid(child, 0)[1])
"""
    )
    assert printed == "0\n"
