"""Two small Keras models on bags of ids. Nothing in this file knows of raggrad."""

from __future__ import annotations

from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

ROWS, WIDTH, BAGS, IDS_PER_BAG = 200_000, 64, 4096, 50


class Batch(NamedTuple):
    ids: tf.Tensor  # [n], into the table
    bags: tf.Tensor  # [n], ascending
    labels: tf.Tensor  # [BAGS, 1]


def batches(count: int) -> list[Batch]:
    rng = np.random.default_rng(0)
    bags = tf.constant(np.repeat(np.arange(BAGS), IDS_PER_BAG))
    return [
        Batch(
            tf.constant(rng.zipf(1.2, BAGS * IDS_PER_BAG) % ROWS),
            bags,
            tf.constant(rng.integers(0, 2, (BAGS, 1)), tf.float32),
        )
        for _ in range(count)
    ]


class Pooling(keras.layers.Layer):
    """The mean of a bag's rows."""

    def build(self, _: Any) -> None:
        self.table = self.add_weight(shape=(ROWS, WIDTH), initializer="uniform", name="table")


class Lookup(Pooling):
    def call(self, batch: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        ids, bags = batch
        places = tf.stack([bags, tf.range(tf.size(ids, tf.int64)) % IDS_PER_BAG], axis=1)
        sparse = tf.sparse.SparseTensor(places, ids, [BAGS, IDS_PER_BAG])
        return tf.nn.embedding_lookup_sparse(self.table.value, sparse, None, combiner="mean")


class Segments(Pooling):
    def call(self, batch: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        ids, bags = batch
        return tf.sparse.segment_mean(tf.convert_to_tensor(self.table.value), ids, bags, sparse_gradient=True)


LAYERS = {"lookup": Lookup, "segments": Segments}


class Classifier(keras.Model):
    def __init__(self, pooling: Pooling) -> None:
        super().__init__()
        self.pooling = pooling
        self.layers_above = keras.Sequential([keras.layers.Dense(32, activation="relu"), keras.layers.Dense(1)])

    def call(self, batch: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
        return self.layers_above(self.pooling(batch))
