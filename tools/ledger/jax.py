"""JAX: segment_sum, its gradient, sparse arrays, and the bfloat16 of ml_dtypes."""

from __future__ import annotations

import numpy as np

from .calls import bf16, f32, i32, pool, pool_grad
from .entry import Entry, Project, Refusal, issue, pull

REPOSITORY = "jax-ml/jax"

PROJECT = Project("JAX", (
    Entry(
        *pull(REPOSITORY, 4034),
        "segment_sum without num_segments took ids modulo the number of rows: [0, 3, 3] came to a single segment.",
        (pool("Sum", f32([1, 2, 4]), i32([0, 1, 2]), i32([0, 3, 3]), f32([1, 0, 0, 6])),),
        "Four segments, two of them 0",
    ),
    Entry(
        *pull(REPOSITORY, 5342),
        "segment_sum silently wrapped around segment ids that are out of range.",
        (
            pool("Sum", f32([1, 2]), i32([0, 1]), i32([0, 5]), Refusal("segment ids must be < num_segments"), i32(2)),
        ),
    ),
    Entry(
        *issue(REPOSITORY, 8634),
        "segment_sum leaves out segment ids that are out of range, but its gradient was 1 there instead of 0.",
        (
            pool("Sum", f32([0, 0]), i32([0, 1]), i32([2, 3]), Refusal("segment ids must be < num_segments"), i32(2)),
            pool_grad("Sum", f32([1, 1]), i32([0, 1]), i32([2, 3]), 2, Refusal("Invalid number of segments")),
        ),
        "Such ids are refused, forwards and backwards",
    ),
    Entry(
        *issue(REPOSITORY, 14179),
        "A value with the segment id -1, which is left out, still made the gradient NaN.",
        (
            pool("Sum", f32([1, 2, np.nan]), i32([2, 0, 1]), i32([-1, 0, 1]),
                 Refusal("Segment id -1 out of range [0, 2)"), i32(2)),
            pool_grad("Sum", f32([1, 0]), i32([0, 1, 2]), i32([0, -1, 1]), 3,
                      Refusal("Segment id -1 out of range [0, 2).")),
        ),
    ),
    Entry(
        *issue(REPOSITORY, 18124),
        "A sparse array with all its entries out of range became a dense array of zeros.",
        (
            pool_grad("Sum", f32([10, 20, 20]), i32([7, 9, 11]), i32([0, 1, 2]), 6,
                      Refusal("Index 7 out of range [0, 6).")),
        ),
    ),
    Entry(
        *issue(REPOSITORY, 27796),
        "A report on segment_sum whose text was not at hand for this ledger. The replay has bad segment ids.",
        (
            pool("Sum", f32([1, 2]), i32([0, 1]), i32([0, 2]), Refusal("segment ids must be < num_segments"), i32(2)),
            pool("Sum", f32([1, 2]), i32([0, 1]), i32([1, 0]), Refusal("segment ids are not increasing"), i32(2)),
        ),
    ),
    Entry(
        *pull(REPOSITORY, 38232),
        "A negative segment id is dropped, where the same number as an index counts from the end.",
        (
            pool_grad("Sum", f32(np.ones(10)), i32([0, 1, 2, 3, 4, -1, -1, -1, -1, -1]), i32(np.arange(10)), 10,
                      Refusal("Index -1 out of range [0, 10).")),
        ),
        "It is neither dropped nor wrapped around",
    ),
    Entry(
        "ml_dtypes issue 63", issue("jax-ml/ml_dtypes", 63)[1],
        "A sum of bfloat16 numbers in bfloat16 stops growing at 256.",
        (
            pool("Sum", bf16(np.ones(512)), i32(np.arange(512)), i32(np.zeros(512)), bf16([512])),
            pool_grad("Sum", bf16(np.ones(512)), i32(np.zeros(512)), i32(np.arange(512)), 1, bf16([512])),
        ),
        "512 for 512 ones: sums are float32 and rounded once",
    ),
))
