#!/usr/bin/env python3
"""Trains a small recommender in JAX with raggrad.jax, twice, and compares the weights bit for bit.

    make demo-jax

Users have bags of items they liked; a score is the product of the mean of a user's bag and an item's
vector. Items that users of a group like are near each other, so that there is something to learn. The table is updated
in place, and only the rows that a batch names.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import raggrad.jax as rj

ITEMS, GROUPS, WIDTH, BATCH, LIKED = 20_000, 50, 32, 512, 12


class Batch(NamedTuple):
    ids: Any  # items of all bags
    segment_ids: Any  # the bag of each; padding has the segment BATCH
    wanted: Any  # an item that the user likes, too
    other: Any  # one from anywhere


def make_batch(random: np.random.Generator) -> Batch:
    group = random.integers(0, GROUPS, BATCH)
    size = ITEMS // GROUPS
    liked = group[:, None] * size + (random.zipf(1.3, (BATCH, LIKED)) - 1) % size
    bags = np.broadcast_to(np.arange(BATCH)[:, None], liked.shape)
    known = random.random(liked.shape) < 0.8  # bags have different lengths
    return Batch(
        jnp.asarray(liked.ravel(), jnp.int32),
        jnp.asarray(np.where(known, bags, BATCH).ravel(), jnp.int32),
        jnp.asarray(group * size + random.integers(0, size, BATCH), jnp.int32),
        jnp.asarray(random.integers(0, ITEMS, BATCH), jnp.int32),
    )


def loss_of(users: Any, wanted: Any, other: Any) -> Any:
    """The wanted item should score higher than the other one."""
    return jnp.mean(jax.nn.softplus(jnp.sum(users * (other - wanted), axis=1)))


@functools.partial(jax.jit, static_argnums=3, donate_argnums=(0, 1))
def step(table: Any, state: Any, batch: Batch, optimizer: Any) -> tuple[Any, Any, Any]:
    users = rj.embedding_bag(table, batch.ids, batch.segment_ids, BATCH)
    loss, (d_users, *d_items) = jax.value_and_grad(loss_of, argnums=(0, 1, 2))(
        users, table[batch.wanted], table[batch.other]
    )
    # One gradient for both uses of the table: a bag of the users, and bags of one item each.
    scores = jnp.concatenate([batch.wanted, batch.other])
    counts = jnp.maximum(rj.segment_sum(jnp.ones_like(batch.ids), batch.segment_ids, BATCH), 1)
    rows = rj.sparse_segment_grad(
        "sum",
        jnp.concatenate([d_users / counts[:, None], *d_items]),
        jnp.concatenate([batch.ids, scores]),
        jnp.concatenate(
            [
                jnp.where(batch.segment_ids < BATCH, batch.segment_ids, -1),
                BATCH + jnp.arange(2 * BATCH, dtype=jnp.int32),
            ]
        ),
        ITEMS,
    )
    table, state = rj.apply_rows(table, rows, optimizer, state)
    return table, state, loss


def train(steps: int) -> tuple[str, float, float]:
    """A digest of the weights, and the loss of the first and the last steps."""
    random = np.random.default_rng(0)
    table = jnp.asarray(random.standard_normal((ITEMS, WIDTH)) * 0.1, jnp.float32)
    optimizer = rj.Adam(learning_rate=0.01)
    state = optimizer.init(table)
    losses = []
    for _ in range(steps):
        table, state, loss = step(table, state, make_batch(random), optimizer)
        losses.append(loss)
    tenth = max(steps // 10, 1)
    first, last = (float(np.mean(jax.device_get(part))) for part in (losses[:tenth], losses[-tenth:]))
    return hashlib.sha256(np.asarray(table).tobytes()).hexdigest()[:16], first, last


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=500)
    options = parser.parse_args()
    digests = []
    for number in (1, 2):
        begin = time.perf_counter()
        digest, first, last = train(options.steps)
        print(f"run {number}: loss {first:.4f} -> {last:.4f}, weights {digest}, {time.perf_counter() - begin:.1f} s")
        digests.append(digest)
    if digests[0] != digests[1] or not last < first:
        raise SystemExit("the runs differ, or nothing was learnt")
    print("the same weights, bit for bit")


if __name__ == "__main__":
    main()
