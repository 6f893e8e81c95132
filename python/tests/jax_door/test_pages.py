"""The code of the pages on raggrad.jax runs."""

from __future__ import annotations

import functools

import pytest
from pages import programs, run

from .door import jax, jnp, rj

PROGRAMS = programs("jax")


@pytest.mark.parametrize("page", PROGRAMS)
def test_the_code_of_a_page_runs(page: str) -> None:
    table = jnp.ones((100, 4))
    optimizer = rj.SGD(learning_rate=0.1)
    reader_has = {
        "functools": functools,
        "jax": jax,
        "data": jnp.arange(12.0).reshape(6, 2),
        "ids": jnp.array([7, 99, 7, 0, 3, 7]),
        "segment_ids": jnp.array([0, 0, 1, 1, 2, 2]),
        "num_segments": 3,
        "num_rows": 100,
        "table": table,
        "d_pooled": jnp.ones((3, 4)),
        "optimizer": optimizer,
        "state": optimizer.init(table),
        "adam": rj.Adam(learning_rate=0.1),
        "loss_of": lambda pooled: (pooled**2).sum(),
        "indices": jnp.array([[0, 1], [2, 0]]),
        "values": jnp.ones(2),
        "shape": (4, 4),
        "start": (1, 0),
        "size": (3, 2),
    }
    run(page, PROGRAMS[page], reader_has if page == "docs/jax.md" else {})
