"""The code of the pages on raggrad.tf runs, before and after the changes that they show, and so do its doctests."""

from __future__ import annotations

import doctest
import importlib

import pytest
from pages import programs, run

from .door import door, tf

keras = tf.keras
PROGRAMS = programs("tf")


class Pooling(keras.layers.Layer):
    def build(self, _: object) -> None:
        self.table = self.add_weight(shape=(10, 4), initializer="uniform", name="table")

    def call(self, ids: tf.Tensor) -> tf.Tensor:
        bags = tf.sparse.from_dense(tf.cast(ids, tf.int64))
        return tf.nn.embedding_lookup_sparse(self.table.value, bags, None, combiner="mean")


@pytest.mark.parametrize("page", PROGRAMS)
def test_the_code_of_a_page_runs(page: str) -> None:
    reader_has = {
        "keras": keras,
        "tf": tf,
        "layers": [Pooling()],
        "examples": tf.constant([[7, 2], [7, 1]]),
        "ids": tf.constant([7, 2]),
        "targets": tf.zeros((2, 4)),
        "table": tf.Variable(tf.ones((10, 4))),
        "segment_ids": tf.constant([0, 1]),
    }
    run(page, PROGRAMS[page], reader_has if page == "docs/tensorflow.md" else {})


@pytest.mark.parametrize("module", ["raggrad.tf", "raggrad.tf.installation", "raggrad.tf.on_demand"])
def test_doctests(module: str) -> None:
    assert doctest.testmod(importlib.import_module(module)).failed == 0


def test_everything_public_has_a_docstring() -> None:
    assert all(getattr(door, name).__doc__ for name in door.__all__)
