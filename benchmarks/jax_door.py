#!/usr/bin/env python3
"""Times raggrad.jax against JAX's own ways, on the device that JAX uses first.

    benchmarks/jax_door.py --rounds 15
    benchmarks/jax_door.py --rounds 15 --in-a-row 20       # on a GPU

Prints milliseconds, the median of all rounds, and their ratio to raggrad's. All ways take turns, round by round, so
that a busy machine slows all of them. Workloads have the sizes of segment-A and -C: a mean of rows, int32 ids.
Times of sums and bags are compared with those of raggrad in float32.

JAX returns before a GPU is done. With --in-a-row a program waits after so many calls, as a training loop does; else it
waits for each, and sees the time to start one and to notice its end, too.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import raggrad.jax as rj
from raggrad.bench import measurement
from raggrad.bench.timing import medians_in_turns
from raggrad.bench.workloads import BY_NAME

WORKLOADS = {
    "segment-A-uniform": "segment-A-uniform-f32-int32",
    "segment-A-zipf": "segment-A-zipf-f32-int32",
    "segment-C": "segment-C-f32",
}


def scaled(grad: Any, segment_ids: Any) -> Any:
    counts = jax.ops.segment_sum(jnp.ones(len(segment_ids)), segment_ids, len(grad))
    return grad[segment_ids] / counts[segment_ids][:, None]


def scatter_add(grad: Any, ids: Any, segment_ids: Any, num_rows: int) -> Any:
    return jnp.zeros((num_rows, grad.shape[1])).at[ids].add(scaled(grad, segment_ids))


def unique_and_segment_sum(grad: Any, ids: Any, segment_ids: Any, num_rows: int) -> Any:
    size = min(len(ids), num_rows)
    unique, places = jnp.unique(ids, return_inverse=True, size=size, fill_value=num_rows)
    return jax.ops.segment_sum(scaled(grad, segment_ids), places, size), unique


def sparse_segment_grad(grad: Any, ids: Any, segment_ids: Any, num_rows: int, size: int | None = None) -> Any:
    return rj.sparse_segment_grad("mean", grad, ids, segment_ids, num_rows, size=size)


def gradients(inputs: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    arrays = [jax.device_put(jnp.asarray(inputs[name])) for name in ("grad", "indices", "segment_ids")]
    num_rows = int(inputs["dense_output_dim0"])
    room = math.ceil(len(np.unique(inputs["indices"])) / 10_000) * 10_000  # known to who has seen some batches
    ways = {
        "sparse_segment_grad": sparse_segment_grad,
        f"sparse_segment_grad with size={room:,}": partial(sparse_segment_grad, size=room),
        "JAX: unique + segment_sum": unique_and_segment_sum,
        "JAX: dense scatter-add": scatter_add,
    }
    compiled = {name: jax.jit(way, static_argnums=3) for name, way in ways.items()}
    return {name: (lambda way=way: way(*arrays, num_rows)) for name, way in compiled.items()}


def sums(inputs: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    """Gradient rows, one for each id, added up by segment. The segments come in order, which JAX can be told."""
    segment_ids = jax.device_put(jnp.asarray(inputs["segment_ids"]))
    count = len(inputs["grad"])
    calls: dict[str, Callable[[], Any]] = {}
    for dtype in ("float32", "bfloat16", "float16"):
        rows = jax.block_until_ready(jnp.asarray(inputs["grad"], dtype)[segment_ids])
        for name, function in (("segment_sum", rj.segment_sum), ("JAX: segment_sum", jax.ops.segment_sum)):
            for known, hint in (("", False), (", known to be sorted", True)):
                way = jax.jit(partial(function, num_segments=count, indices_are_sorted=hint))
                calls[f"{name} {dtype}{known}"] = lambda way=way, rows=rows: way(rows, segment_ids)
    return calls


def bags(inputs: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    """The forward: means of the rows of a table that ids name. The segments come in order, as for sums."""
    ids, segment_ids = (jax.device_put(jnp.asarray(inputs[name])) for name in ("indices", "segment_ids"))
    count, width = inputs["grad"].shape

    def segment_sum_of_rows(table: Any, hint: bool) -> Any:
        pooled = jax.ops.segment_sum(table[ids], segment_ids, count, indices_are_sorted=hint)
        return pooled / jax.ops.segment_sum(jnp.ones(len(ids)), segment_ids, count)[:, None].astype(table.dtype)

    calls: dict[str, Callable[[], Any]] = {}
    for dtype in ("float32", "bfloat16"):
        shape = int(inputs["dense_output_dim0"]), width
        table = jax.block_until_ready(jax.random.normal(jax.random.key(0), shape, dtype))
        ways = {
            "embedding_bag": jax.jit(lambda table: rj.embedding_bag(table, ids, segment_ids, count)),
            "JAX: segment_sum of rows": jax.jit(partial(segment_sum_of_rows, hint=False)),
            "JAX: segment_sum of rows, known to be sorted": jax.jit(partial(segment_sum_of_rows, hint=True)),
        }
        calls |= {f"{name}, {dtype}": (lambda way=way, table=table: way(table)) for name, way in ways.items()}
    return calls


def call_in_a_row(call: Callable[[], Any], count: int) -> None:
    for _ in range(count):
        result = call()
    jax.block_until_ready(result)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--in-a-row", type=int, default=1, metavar="N", help="calls before the program waits (1)")
    parser.add_argument("--only", choices=WORKLOADS, action="append", help="may be repeated (all)")
    measurement.add_option(parser)
    options = parser.parse_args()
    device = jax.devices()[0]
    measured = measurement.Measurement(
        "Gradients, sums and bags in JAX and in raggrad.jax",
        [f"JAX {jax.__version__}", f"the median of {options.rounds} rounds of {options.in_a_row} calls"],
        measurement.describe_machine("" if device.platform == "cpu" else device.device_kind),
    )
    for title, calls, ours in (
        ("gradients", gradients, "sparse_segment_grad"),
        ("sums", sums, "segment_sum float32"),
        ("bags", bags, "embedding_bag, float32"),
    ):
        table = measured.table(title, title, "ms", "times as long")
        for name in options.only or WORKLOADS:
            ways = calls(BY_NAME[WORKLOADS[name]].inputs())
            rows_of_calls = {way: partial(call_in_a_row, call, options.in_a_row) for way, call in ways.items()}
            times = medians_in_turns(rows_of_calls, options.rounds, warm_ups=2)
            for way, milliseconds in times.items():
                table.add(f"{name}, {way}", milliseconds / options.in_a_row, f"{milliseconds / times[ours]:.2f}x")
    measured.write(options.json)


if __name__ == "__main__":
    main()
