"""Programs that do not know of raggrad have the same bits with it, however they call the operators."""

from __future__ import annotations

import inspect
import threading

import numpy as np
import pytest

from .door import library, run, tf

# Prints a digest for every step. "installed" is a variable of its environment.
PROGRAM = """
import hashlib, os
import numpy as np
import tensorflow as tf
tf.keras.utils.set_random_seed(1)
if os.environ["installed"] == "yes":
    import raggrad.tf
    raggrad.tf.install()

def show(name, *tensors):
    parts = [part for tensor in tensors for part in tf.nest.flatten(tensor, expand_composites=True)]
    print(name, *(hashlib.sha1(part.numpy().tobytes()).hexdigest()[:12] for part in parts))

rng = np.random.default_rng(0)
n, rows, segments = 3000, 500, 400
ids = tf.constant(rng.zipf(1.3, n) % rows)
segment_ids = tf.constant(np.sort(rng.integers(0, segments, n)))
sparse = tf.sparse.SparseTensor(
    tf.stack([segment_ids, tf.range(n, dtype=tf.int64)], 1), ids, [segments, n])
weights = tf.sparse.SparseTensor(sparse.indices, tf.constant(rng.random(n), tf.float32), sparse.dense_shape)
for dtype in (tf.float32, tf.float64, tf.bfloat16, tf.float16):
    table = tf.Variable(tf.cast(rng.standard_normal((rows, 17)), dtype))
    for pool in (tf.sparse.segment_sum, tf.sparse.segment_mean, tf.sparse.segment_sqrt_n):
        for sparse_gradient in (False, True):
            def step(pool=pool, sparse_gradient=sparse_gradient, table=table):
                with tf.GradientTape() as tape:
                    pooled = pool(tf.convert_to_tensor(table), ids, segment_ids, sparse_gradient=sparse_gradient)
                    loss = tf.reduce_sum(tf.cast(pooled, tf.float32) ** 2)
                return pooled, tape.gradient(loss, table)
            show(f"{dtype.name} {pool.__name__} {sparse_gradient}", step(), tf.function(step)())
    for combiner in ("sum", "mean", "sqrtn"):
        def lookup(combiner=combiner, table=table):
            with tf.GradientTape() as tape:
                out = tf.nn.embedding_lookup_sparse(table, sparse, None, combiner=combiner)
                loss = tf.reduce_sum(tf.cast(out, tf.float32) ** 2)
            return out, tape.gradient(loss, table)
        show(f"lookup {dtype.name} {combiner}", lookup(), tf.function(lookup)())
table = tf.Variable(rng.standard_normal((rows, 17)), dtype=tf.float32)
def safe():
    with tf.GradientTape() as tape:
        values = tf.Variable(weights.values)
        holes = tf.sparse.SparseTensor(sparse.indices * [[2, 1]], values, [2 * segments, n])
        filled, empty = tf.sparse.fill_empty_rows(holes, 0.5)
        part = tf.sparse.slice(filled, [3, 0], [segments, n])
        loss = tf.reduce_sum(part.values * part.values)
    return filled, empty, part, tape.gradient(loss, values)
show("fill and slice", safe())
words = tf.sparse.SparseTensor([[1, 0], [3, 2]], ["word", "a long word that does not fit"], [5, 3])
show("strings", tf.strings.to_hash_bucket(tf.sparse.fill_empty_rows(words, "?")[0].values, 1000),
     tf.strings.to_hash_bucket(tf.sparse.slice(words, [2, 0], [2, 3]).values, 1000))
data = tf.data.Dataset.range(40).map(
    lambda i: tf.sparse.segment_mean(tf.cast(tf.range(i + 3)[:, None], tf.float32), tf.range(i + 3) // 2,
                                     tf.range(i + 3) // 3), num_parallel_calls=4)
show("tf.data", list(data))
"""


def test_same_bits_as_tensorflow() -> None:
    stock, installed = (run(PROGRAM, installed=installed).splitlines() for installed in ("no", "yes"))
    assert len(stock) == 4 * 9 + 3
    assert installed == stock


def _operands(seed: int) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    rng = np.random.default_rng(seed)
    return (
        tf.constant(rng.standard_normal((1000, 33)), tf.float32),
        tf.constant(rng.integers(0, 1000, 20_000)),
        tf.constant(np.sort(rng.integers(0, 900, 20_000))),
    )


def _pool_and_grad(seed: int) -> bytes:
    data, ids, segment_ids = _operands(seed)
    pooled = tf.sparse.segment_mean(data, ids, segment_ids)
    grad = tf.raw_ops.SparseSegmentMeanGradV2(
        grad=pooled, indices=ids, segment_ids=segment_ids, dense_output_dim0=1000
    )
    return pooled.numpy().tobytes() + b"".join(part.numpy().tobytes() for part in grad)


def test_calls_from_many_threads() -> None:
    want = [_pool_and_grad(seed) for seed in range(8)]
    got: list[bytes] = [b""] * 8

    def call(seed: int) -> None:
        for _ in range(5):
            got[seed] = _pool_and_grad(seed)

    threads = [threading.Thread(target=call, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == want


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_number_of_threads(threads: int) -> None:
    """The bits do not depend on it."""
    want = _pool_and_grad(3)
    library.raggrad_tf_set_threads(threads)
    try:
        assert _pool_and_grad(3) == want
    finally:
        library.raggrad_tf_set_threads(0)


def test_a_child_of_fork_can_call() -> None:
    """The engine's threads stay in the parent; the child works on its own."""
    program = [
        "from __future__ import annotations",
        "import os, numpy as np, tensorflow as tf, raggrad.tf",
        "raggrad.tf.install()",
        inspect.getsource(_operands),
        inspect.getsource(_pool_and_grad),
        "want = _pool_and_grad(5)",
        "child = os.fork()",
        "if child == 0:",
        "    os._exit(0 if _pool_and_grad(5) == want else 1)",
        "print(os.waitpid(child, 0)[1])",
    ]
    assert run("\n".join(program)).split() == ["0"]
