"""Calls of everything that takes arrays, made from NumPy arrays by a function that puts them into a framework.

test_arrays.py makes them with frameworks' arrays in host memory, gpu/test_calls.py with arrays on a GPU. Both compare
the results with those of the same call with NumPy arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from raggrad import IndexedSlices, Ragged, SegmentPlan, VariantArray, ops, optimizers, raw_ops

Put = Callable[[np.ndarray], Any]

RANDOM = np.random.default_rng(7)
TABLE = RANDOM.normal(size=(11, 3)).astype(np.float32)
INDICES = np.array([4, 0, 4, 10, 2, 4, 7, 0], np.int32)
SEGMENTS = np.array([0, 0, 1, 1, 1, 3, 3, 4], np.int32)
UNSORTED = np.array([3, 0, 4, 4, 1, 3, 0, 3, 3, 1, 0], np.int32)
GRAD = RANDOM.normal(size=(5, 3)).astype(np.float32)
SPLITS = np.array([0, 2, 5, 5, 7, 8])
WEIGHTS = np.float32([1, 2, 0.5, 3, -1, 4, 0.25, 2])
VALUES = np.float32([1, 2, 3, 4, 5, 6, 7, 8])
COMBINERS = ("sum", "mean", "sqrtn")


class Sparse(NamedTuple):
    indices: Any
    values: Any
    dense_shape: Any


def sparse_ids(put: Put) -> Sparse:
    places = np.stack([SEGMENTS, np.arange(len(SEGMENTS))], axis=1)
    return Sparse(put(places.astype(np.int32)), put(INDICES), np.array([5, 9]))


def ragged_ids(put: Put) -> Ragged:
    return Ragged([SPLITS], put(INDICES))


def ragged(put: Put) -> Ragged:
    return Ragged([SPLITS], put(VALUES))


def slices(put: Put) -> IndexedSlices:
    return IndexedSlices(put(TABLE[: len(INDICES)]), put(INDICES), TABLE.shape)


def shards(put: Put, strategy: str) -> list[Any]:
    cut = np.array_split(TABLE, 3) if strategy == "div" else [TABLE[i::3] for i in range(3)]
    return [put(np.ascontiguousarray(shard)) for shard in cut]


def make_optimizer(kind: str, table: Any) -> Any:
    if kind == "SGD":
        return optimizers.SGD(learning_rate=0.1)
    return getattr(optimizers, kind).for_table(table, learning_rate=0.1)


def states(optimizer: Any) -> list[Any]:
    return [getattr(optimizer, name) for name in ("accumulator", "m", "v") if hasattr(optimizer, name)]


def apply_slices(put: Put, kind: str) -> list[Any]:
    table = put(TABLE)
    optimizer = make_optimizer(kind, table)
    for _ in range(2):
        slices(put).apply_(table, optimizer)
    return [table, *states(optimizer)]


def apply_fused(put: Put, combiner: str, kind: str, planned: bool) -> list[Any]:
    table = put(TABLE)
    optimizer = make_optimizer(kind, table)
    function = getattr(ops, f"sparse_segment_{combiner}_grad_apply_")
    if planned:
        plan = SegmentPlan(put(INDICES), put(SEGMENTS), 11, 5)
        function(table, put(GRAD), plan=plan, optimizer=optimizer)
    else:
        function(table, put(GRAD), put(INDICES), put(SEGMENTS), optimizer=optimizer)
    return [table, *states(optimizer)]


def segment_calls() -> dict[str, Callable[[Put], Any]]:
    calls: dict[str, Callable[[Put], Any]] = {}
    for c in COMBINERS:
        segment, segment_grad = getattr(ops, f"segment_{c}"), getattr(ops, f"segment_{c}_grad")
        sparse, sparse_grad = getattr(ops, f"sparse_segment_{c}"), getattr(ops, f"sparse_segment_{c}_grad")
        calls |= {
            f"segment_{c}": lambda put, f=segment: f(put(TABLE), put(UNSORTED)),
            f"segment_{c} with a number": lambda put, f=segment: f(put(TABLE), put(UNSORTED), 7),
            f"segment_{c} of ascending ids": lambda put, f=segment: f(put(TABLE), put(np.sort(UNSORTED))),
            f"segment_{c} of int64": lambda put, f=segment: f(put(TABLE), put(UNSORTED.astype(np.int64))),
            f"segment_{c} of uint8": lambda put, f=segment: f(put(TABLE), put(UNSORTED.astype(np.uint8))),
            f"segment_{c} of nothing": lambda put, f=segment: f(put(TABLE[:0]), put(UNSORTED[:0])),
            f"segment_{c}_grad": lambda put, f=segment_grad: f(put(GRAD), put(UNSORTED)),
            f"segment_{c}_grad of nothing": lambda put, f=segment_grad: f(put(GRAD), put(UNSORTED[:0])),
            f"sparse_segment_{c}": lambda put, f=sparse: f(put(TABLE), put(INDICES), put(SEGMENTS)),
            f"sparse_segment_{c} of int8": lambda put, f=sparse: f(
                put(TABLE), put(INDICES.astype(np.int8)), put(SEGMENTS.astype(np.uint16)), 6
            ),
            f"sparse_segment_{c} with a plan": lambda put, f=sparse: f(
                put(TABLE), plan=SegmentPlan(put(INDICES), put(SEGMENTS), 11, 5)
            ),
            f"sparse_segment_{c}_grad": lambda put, f=sparse_grad: f(put(GRAD), put(INDICES), put(SEGMENTS), 11),
            f"sparse_segment_{c}_grad with a plan": lambda put, f=sparse_grad: f(
                put(GRAD), plan=SegmentPlan(put(INDICES), put(SEGMENTS), 11, 5)
            ),
        }
    return calls


def lookup_calls() -> dict[str, Callable[[Put], Any]]:
    look, grad = ops.embedding_lookup_sparse, ops.embedding_lookup_sparse_grad
    safe, safe_grad = ops.safe_embedding_lookup_sparse, ops.safe_embedding_lookup_sparse_grad
    some_bad = np.array([4, -1, 4, 10, 2, -3, 7, 0], np.int32)
    calls: dict[str, Callable[[Put], Any]] = {}
    for c in COMBINERS:
        calls |= {
            f"lookup {c}": lambda put, c=c: look(put(TABLE), ragged_ids(put), combiner=c),
            f"lookup {c} of nothing": lambda put, c=c: look(
                put(TABLE), Ragged([np.array([0, 0, 0])], put(INDICES[:0])), combiner=c
            ),
            f"lookup {c} of sparse ids": lambda put, c=c: look(put(TABLE), sparse_ids(put), combiner=c),
            f"lookup {c} with weights": lambda put, c=c: look(put(TABLE), ragged_ids(put), put(WEIGHTS), c),
            f"lookup {c} with ragged weights": lambda put, c=c: look(
                put(TABLE), ragged_ids(put), Ragged([SPLITS], put(WEIGHTS)), c
            ),
            f"lookup {c} in half": lambda put, c=c: look(
                put(TABLE.astype(np.float16)), ragged_ids(put), put(WEIGHTS.astype(np.float16)), c
            ),
            f"lookup {c} grad": lambda put, c=c: grad(put(GRAD), put(TABLE), ragged_ids(put), combiner=c),
            f"lookup {c} grad with weights": lambda put, c=c: grad(
                put(GRAD), put(TABLE), ragged_ids(put), put(WEIGHTS), c
            ),
            f"safe lookup {c}": lambda put, c=c: safe(put(TABLE), Ragged([SPLITS], put(some_bad)), combiner=c),
            f"safe lookup {c} with a default": lambda put, c=c: safe(
                put(TABLE), Ragged([SPLITS], put(some_bad)), put(WEIGHTS), c, default_id=3
            ),
            f"safe lookup {c} grad": lambda put, c=c: safe_grad(
                put(GRAD), put(TABLE), Ragged([SPLITS], put(some_bad)), combiner=c, default_id=3
            ),
        }
    for strategy in ("div", "mod"):
        where = {"partition_strategy": strategy}
        calls |= {
            f"lookup in shards, {strategy}": lambda put, w=where, s=strategy: look(
                shards(put, s), ragged_ids(put), **w
            ),
            f"lookup grad in shards, {strategy}": lambda put, w=where, s=strategy: grad(
                put(GRAD), shards(put, s), ragged_ids(put), put(WEIGHTS), **w
            ),
        }
    return calls


def slices_calls() -> dict[str, Callable[[Put], Any]]:
    calls: dict[str, Callable[[Put], Any]] = {
        "coalesce": lambda put: slices(put).coalesce(),
        "to_dense": lambda put: slices(put).to_dense(),
        "slices + slices": lambda put: slices(put) + slices(put),
        "slices * 0.3": lambda put: slices(put) * 0.3,
        "half slices * 0.3": lambda put: IndexedSlices(put(np.float16([[1.1], [3]])), put(INDICES[:2]), (5, 1)) * 0.3,
        "slices of uint8": lambda put: IndexedSlices(put(GRAD[:2]), put(np.uint8([3, 3])), (5, 3)).coalesce(),
        "slices of nothing": lambda put: IndexedSlices(put(GRAD[:0]), put(INDICES[:0]), (5, 3)).coalesce(),
        "repr of slices": lambda put: repr(slices(put)),
    }
    return calls


def in_place_calls() -> dict[str, Callable[[Put], Any]]:
    calls: dict[str, Callable[[Put], Any]] = {}
    for kind in ("SGD", "Adagrad", "Adam", "RowwiseAdagrad"):
        calls[f"apply_ {kind}"] = lambda put, kind=kind: apply_slices(put, kind)
        for c in COMBINERS:
            calls[f"grad_apply_ {c} {kind}"] = lambda put, c=c, k=kind: apply_fused(put, c, k, planned=False)
        calls[f"grad_apply_ with a plan {kind}"] = lambda put, k=kind: apply_fused(put, "mean", k, planned=True)
    return calls


def ragged_calls() -> dict[str, Callable[[Put], Any]]:
    def selected(put: Put) -> Any:
        values = put(VALUES)
        return Ragged([SPLITS], values)[Ragged([SPLITS], values > 3)]

    nested = [np.array([0, 2, 5]), SPLITS]
    return {
        "a row": lambda put: ragged(put)[1],
        "a last row": lambda put: ragged(put)[-1],
        "rows": lambda put: list(ragged(put)),
        "a slice": lambda put: ragged(put)[1:4],
        "a slice of step -1": lambda put: ragged(put)[::-1],
        "rows by number": lambda put: ragged(put)[[4, 0, 0]],
        "rows by mask": lambda put: ragged(put)[[True, False, True, True, False]],
        "elements by mask": selected,
        "nested rows": lambda put: Ragged(nested, put(VALUES))[1],
        "rows of matrices": lambda put: Ragged([SPLITS], put(TABLE[:8]))[[3, 1]],
        "equal": lambda put: [ragged(put) == ragged(put), ragged(put) == Ragged([SPLITS], put(-VALUES))],
        "shape and dtype": lambda put: [*ragged(put).shape, ragged(put).dtype, len(ragged(put))],
        "unstack": lambda put: list(ops.unstack(ragged(put))),
        "stack": lambda put: ops.stack([Ragged([], put(VALUES[:2])), Ragged([], put(VALUES[2:]))]),
        "unstack_grad": lambda put: ops.unstack_grad(
            [Ragged([], put(VALUES[begin:end])) for begin, end in pairwise(SPLITS)],
            ragged(put),
        ),
    }


def sparse_calls() -> dict[str, Callable[[Put], Any]]:
    places = np.array([[0, 5], [2, 7], [2, 8]])
    return {
        "fill_empty_rows": lambda put: ops.fill_empty_rows(
            put(places), put(VALUES[:3]), np.array([4, 9]), put(np.float32(-1))
        ),
        "ragged_fill_empty_rows": lambda put: ops.ragged_fill_empty_rows(
            put(places[:, 0].copy()), put(VALUES[:3]), np.int64(4), put(np.float32(-1))
        ),
        "fill_empty_rows_grad": lambda put: ops.fill_empty_rows_grad(put(np.array([0, 2, 4])), put(VALUES)),
        "slice": lambda put: ops.slice(
            put(places), put(VALUES[:3]), np.array([4, 9]), np.array([2, 0]), np.array([2, 8])
        ),
        "slice_grad": lambda put: ops.slice_grad(
            put(VALUES[:1]), put(places), np.array([2, 0]), put(np.array([[0, 7]]))
        ),
        "SparseSegmentMeanGrad": lambda put: raw_ops.SparseSegmentMeanGrad(
            grad=put(GRAD), indices=put(INDICES), segment_ids=put(SEGMENTS), output_dim0=11
        ),
        "SparseSegmentSqrtNGradV2": lambda put: raw_ops.SparseSegmentSqrtNGradV2(
            grad=put(GRAD), indices=put(INDICES), segment_ids=put(SEGMENTS), dense_output_dim0=11
        ),
    }


CALLS = {**segment_calls(), **lookup_calls(), **slices_calls(), **ragged_calls(), **sparse_calls()}
IN_PLACE = in_place_calls()

# Gradients of weights are summed over columns by the framework, in its own order.
ROUNDED = {name for name in CALLS if "grad with weights" in name or "grad in shards" in name}


def flat(result: Any, name: str = "result") -> dict[str, Any]:
    """The arrays and numbers of a result, by their place in it."""
    if isinstance(result, IndexedSlices):
        result = {"values": result.values, "indices": result.indices, "shape": list(result.dense_shape)}
    elif isinstance(result, Ragged):
        result = {"splits": result.nested_splits, "values": result.values}
    elif isinstance(result, VariantArray):
        result = list(result)
    elif hasattr(result, "_fields"):
        result = result._asdict()
    if isinstance(result, (list, tuple)):
        result = dict(enumerate(result))
    if isinstance(result, dict):
        return {place: item for key, value in result.items() for place, item in flat(value, f"{name}.{key}").items()}
    return {name: result}


def is_array(item: Any) -> bool:
    return hasattr(item, "shape") and not isinstance(item, np.generic)
