"""Wrong arguments of raggrad.ops and Ragged: an InvalidArgumentError that names the function and the argument."""

from __future__ import annotations

import builtins
import re
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from raggrad import IndexedSlices, Ragged, SegmentPlan, ops
from raggrad.errors import InvalidArgumentError
from raggrad.optimizers import SGD, Adagrad, Adam

TABLE = np.arange(12, dtype=np.float32).reshape(6, 2)
WIDE = np.zeros((0, 2**40), np.float32)  # 2^32 such rows would be too many numbers
IDS = Ragged([[0, 2]], [1, 2])
WEIGHTS = np.float32([1, 2])


def sparse(indices: Any, values: Any, dense_shape: Any) -> Any:
    return SimpleNamespace(indices=np.array(indices), values=np.array(values), dense_shape=np.array(dense_shape))


BAD_IDS = [
    (Ragged([[2, 4]], [1, 2]), "ids: nested_splits[0]: expected a vector from 0 to 2", "got 2 at its start"),
    (Ragged([[0, 2, 1]], [1, 2]), "ids: nested_splits[0]: expected", "got 1 after 2 at [2]"),
    (Ragged([[0, 1]], [1, 2]), "ids: nested_splits[0]: expected", "got 1 at its end"),
    (Ragged([[0, 3]], [1, 2]), "ids: nested_splits[0]: expected", "got 3 at its end"),
    (Ragged([[]], [1, 2]), "ids: nested_splits[0]: expected", "got shape (0,)"),
    (Ragged([[[0, 2]]], [1, 2]), "ids: nested_splits[0]: expected", "got shape (1, 2)"),
    (Ragged([np.array([0.0, 2.0])], [1, 2]), "ids: nested_splits[0]: expected", "got dtype float64"),
    (Ragged([[0, 1]], 1), "ids: values: expected rows", "got a scalar"),
    (Ragged([[0, 2]], WEIGHTS), "ids.values: expected int32 or int64 of rank 1", "got float32"),
    (Ragged([[0, 2]], [[1], [2]]), "ids.values: expected int32 or int64 of rank 1", "shape (2, 1)"),
    (Ragged([[0, 2]], [b"a", b"b"]), "ids.values: expected int32 or int64", "got object"),
    (Ragged([[0, 2]], [1, 6]), "ids[1]: expected 0 to 5", "got 6"),
    (sparse([0, 0], [1, 2], [1, 2]), "ids.indices: expected int32 or int64 of rank 2", "got int64 of shape (2,)"),
    (sparse([[0, 0]], [1, 2], [1, 2]), "ids.indices: expected shape (2, 2)", "got (1, 2)"),
    (sparse([[0, 0], [0, 1]], [1, 2], [2]), "ids.dense_shape: expected two sizes", "got [2]"),
    (sparse([[0, 0], [0, 1]], [1, 2], [-1, 2]), "ids.dense_shape: expected two sizes >= 0", "got [-1  2]"),
    (sparse([[0, 0], [3, 1]], [1, 2], [2, 2]), "ids.indices[1, 0]: expected 0 to 1", "got 3"),
]


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["plain", "weighted"])
@pytest.mark.parametrize("name", ["embedding_lookup_sparse", "safe_embedding_lookup_sparse"])
@pytest.mark.parametrize(("ids", "expected", "got"), BAD_IDS)
def test_bad_ids(ids: Any, expected: str, got: str, name: str, weights: Any) -> None:
    where = rf"^{name}: .*{re.escape(expected)}.*{re.escape(got)}"
    with pytest.raises(InvalidArgumentError, match=where):
        getattr(ops, name)(TABLE, ids, weights)
    rows = getattr(ids, "dense_shape", [len(getattr(ids, "nested_splits", [[0, 0]])[0]) - 1])[0]
    with pytest.raises(InvalidArgumentError, match=where.replace(name, f"{name}_grad")):
        getattr(ops, f"{name}_grad")(np.ones((max(rows, 0), 2), np.float32), TABLE, ids, weights)


lookup, lookup_grad, safe_lookup = (
    ops.embedding_lookup_sparse,
    ops.embedding_lookup_sparse_grad,
    ops.safe_embedding_lookup_sparse,
)
PLAN = SegmentPlan([0], [0], 6, 1)
apply_sum = partial(ops.sparse_segment_sum_grad_apply_, optimizer=SGD(0.1))
SLICES = IndexedSlices(TABLE[:1], [0], TABLE.shape)


@pytest.mark.parametrize(
    ("function", "arguments", "text"),
    [
        (lookup, (TABLE, IDS, [[1.0], [2.0, 3.0]]), r"weights.nested_splits\[0\]: expected shape \(2,\), .* \(3,\)"),
        (lookup, (TABLE, IDS, "ab"), "weights: expected float32, got text or bytes"),
        (lookup, (TABLE, IDS, np.array([1, 2])), "weights: expected half.* got int64"),
        (lookup, (TABLE.astype(int), IDS), "params: expected half.* got int64"),
        (lookup, (np.float32(1), IDS), "params: expected at least rank 1, got a scalar"),
        (lookup, (None, IDS), "params: expected an array .* got NoneType"),
        (lookup_grad, (TABLE[:1, :1], TABLE, IDS), r"grad: expected \(1, 2\), got \(1, 1\)"),
        (lookup_grad, (TABLE[:2], TABLE, IDS), r"grad: expected \(1, 2\), got \(2, 2\)"),
        (lookup_grad, (np.ones((1, 2), int), TABLE, IDS), "grad: expected half.* got int64"),
        (safe_lookup, (TABLE, IDS, None, "mean", 6), "default_id: expected 0 to 5, got 6"),
        (safe_lookup, (TABLE, IDS, None, "mean", 1.0), "default_id: expected 0 to 5, got 1.0"),
        (ops.unstack, ([[1.0]],), r"ragged: expected a raggrad\.Ragged, got list"),
        (ops.unstack_grad, ([None], [[1.0]]), r"ragged: expected a raggrad\.Ragged, got list"),
        (ops.unstack_grad, ([None], Ragged([[0, 1]], [{}])), "ragged.values: expected numbers or bytes, got dict"),
        (ops.stack, ([Ragged([], [{}])],), "values of a row: expected numbers or bytes, got dict"),
        (Ragged.from_lists, ([[1.0], None],), "list 1 is None"),
        (Ragged.from_lists, ([[[1.0], None]],), "inner list 1 is None"),
        (Ragged.from_lists, ([[1.0], [2.0, None]],), "value 2 is None"),
        (partial(Ragged.from_lists, ragged_rank=1), ([[[1, 2]], [[3, None]]],), "value 3 is None"),
        (Ragged.from_lists, (None,), "value 0 is None"),
        (Ragged.from_lists, ([[{}]],), "rows: expected numbers or bytes, got dict"),
        (partial(Ragged.from_lists, ragged_rank=1), (5,), "rows: expected a list, got int"),
        (partial(Ragged.from_lists, ragged_rank=-1), ([[1]],), "ragged_rank: expected a whole number .* got -1"),
        (partial(Ragged.from_lists, splits_dtype="half"), ([[1]],), "splits_dtype: expected 'int32' or 'int64', got"),
        (SLICES.apply_, (TABLE.copy(), SGD("0.1")), "learning_rate: expected a number, got str"),
        (SLICES.apply_, (TABLE.copy(), SGD(None)), "learning_rate: expected a number, got NoneType"),
        (SLICES.apply_, (TABLE.copy(), Adagrad(0.1, TABLE, "0")), "epsilon: expected a number, got str"),
        (SLICES.apply_, (TABLE.copy(), Adagrad(0.1, None)), "accumulator: expected an array .* got NoneType"),
        (SLICES.apply_, (TABLE.copy(), Adam(0.1, TABLE, TABLE, beta1=None)), "beta1: expected a number, got NoneType"),
        (SLICES.apply_, (TABLE.copy(), Adam(0.1, TABLE, TABLE, step=2**63)), "step: expected an int, got 9223"),
        (SLICES.apply_, (TABLE.copy(), Adam(0.1, TABLE, TABLE, step="1")), "step: expected an int, got '1'"),
        (Adagrad.for_table, (None, 0.1), "table: expected an array .* got NoneType"),
        (Adam.for_table, (None, 0.1), "table: expected an array .* got NoneType"),
        (SegmentPlan, (), "indices: expected an array .* got NoneType"),
        (SegmentPlan, ([0], [0]), "num_rows: expected an int, got None"),
        (SegmentPlan, ([0], [0], 1.5, 1), "num_rows: expected an int, got 1.5"),
        (SegmentPlan, ([0], [0], 1, "1"), "num_segments: expected an int, got '1'"),
        (SegmentPlan, ([0], [0], 10**30, 1), "num_rows: expected an int, got 1000"),
        (partial(ops.sparse_segment_sqrtn, plan=5), (TABLE,), r"plan: expected a raggrad\.SegmentPlan, got int"),
        (partial(ops.sparse_segment_sqrtn, plan=PLAN), ([[1.0], None],), "data: the list is not a rectangular array"),
        (partial(ops.sparse_segment_sqrtn_grad, plan=PLAN), ("a",), "grad: expected|grad has dtype string"),
        (partial(ops.sparse_segment_sum, plan=PLAN), (TABLE, None, None, "a"), "num_segments: expected 1, got a"),
        (SegmentPlan, ([9], [0], 6, 1), r"Index 9 out of range \[0, 6\)"),
        (SegmentPlan, ([0], [0], -1, 1), "num_rows: expected 0 to 4294967296, got -1"),
        (PLAN.check_made_from, ("a", [0]), "indices: expected int64, got text"),
        (ops.sparse_segment_sum, (TABLE, [0], [0], 1.5), "num_segments: expected an int, got 1.5"),
        (ops.sparse_segment_sum, (TABLE, [0], [0], -1), "num_segments: expected 0 to 2147483647, got -1"),
        (ops.sparse_segment_sum, (TABLE, [9], [0]), r"indices\[0\] == 9 out of range"),
        (ops.sparse_segment_sum, (TABLE, [0], [0, 1]), "segment_ids: expected 1 elements"),
        (partial(ops.sparse_segment_sum, plan=PLAN), (TABLE, [1], [0]), r"indices\[0\]: expected 0, got 1"),
        (partial(ops.sparse_segment_sum, plan=PLAN), (TABLE[:3],), "data: expected 6 rows"),
        (ops.sparse_segment_mean, (TABLE.astype(int), [0], [0]), "data.*half, bfloat16, float32, float64.*int64"),
        (ops.sparse_segment_mean_grad, (TABLE, [0], [0], "6"), "num_rows: expected an int, got '6'"),
        (ops.sparse_segment_mean_grad, (TABLE, [0], [0], -1), "num_rows: expected 0 to 4294967296, got -1"),
        (ops.sparse_segment_mean_grad, (TABLE, [7], [0], 6), r"Index 7 out of range \[0, 6\). \[indices\[0\]\]"),
        (ops.sparse_segment_mean_grad, (WIDE, [], [], 2**32), r"results in overflow .* \[num_rows\]"),
        (IndexedSlices(WIDE, [], (2**32, 2**40)).to_dense, (), r"results in overflow .* \[dense_shape\[0\]\]"),
        (ops.sparse_segment_mean_grad, (TABLE[0, 0], [0], [0], 6), "grad: expected at least rank 1"),
        (apply_sum, (TABLE.copy(), TABLE[:1], [9], [0]), "Index 9 out of range"),
        (apply_sum, (TABLE.copy(), TABLE[:1, :1], [0], [0]), r"table: expected \[6,1\], got \[6,2\]"),
        (IndexedSlices(TABLE[:1], [9], (6, 2)).to_dense, (), "Index 9 out of range"),
        (IndexedSlices(TABLE[:1], [9], (6, 2)).coalesce, (), "Index 9 out of range"),
        (IndexedSlices(TABLE[:1], [9], (6, 2)).apply_, (TABLE.copy(), SGD(0.1)), "Index 9 out of range"),
        (SLICES.apply_, (TABLE, SGD(0.1)), "table: expected memory of its own, got memory of values"),
        (ops.fill_empty_rows, ([[0]], [1.0], [[1]], 0.0), "dense_shape"),
        (ops.fill_empty_rows, ([[0]], [{}], [1], 0.0), "values: expected numbers or bytes, got dict"),
        (ops.fill_empty_rows_grad, ([5], [1.0]), "Elements in reverse index"),
        (ops.ragged_fill_empty_rows, ([5], [1.0], 1, 0.0), "value_rowids"),
        (ops.slice, ([[0]], [1.0], [1], [0, 0], [1]), "start"),
        (ops.slice_grad, ([{}], [[0]], [0], [[0]]), "grad: expected numbers or bytes, got dict"),
        (ops.unstack, (Ragged([[0, 5]], [1.0]),), "ragged.nested_splits"),
        (ops.unstack_grad, ([5], Ragged([[0, 1]], [1.0])), r"grad\[0\]"),
        (ops.stack, ([Ragged([[0, 1]], [1.0]), Ragged([], [1.0])],), r"rows\[1\]"),
        (IndexedSlices, (TABLE, [0], None), "dense_shape: expected whole numbers, got None"),
        (IndexedSlices, (TABLE, [0], (6.0, 2)), r"dense_shape: expected whole numbers, got \(6.0, 2\)"),
    ],
)
def test_bad_arguments(function: Any, arguments: tuple[Any, ...], text: str) -> None:
    name = getattr(function, "func", function).__qualname__
    with pytest.raises(InvalidArgumentError, match=f"^{name}: .*{text}"):
        function(*arguments)


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (lookup, (TABLE, IDS)),
        (lookup_grad, (TABLE[:1], TABLE, IDS)),
        (safe_lookup, (TABLE, IDS)),
        (ops.segment_mean, (TABLE, [0] * 6)),
        (ops.sparse_segment_sum, (TABLE, [0], [0])),
        (ops.sparse_segment_sum_grad, (TABLE, [0], [0], 6)),
        (ops.fill_empty_rows_grad, ([0], [1.0])),
        (SLICES.coalesce, ()),
        (SLICES.to_dense, ()),
        (SLICES.apply_, (TABLE.copy(), SGD(0.1))),
    ],
)
def test_bad_accumulation(function: Any, arguments: tuple[Any, ...]) -> None:
    text = rf"^{function.__qualname__}: no such accumulation \[accumulation: expected .* got 'quick'\]"
    with pytest.raises(InvalidArgumentError, match=text):
        function(*arguments, accumulation="quick")


def test_optimizers_of_another_kind() -> None:
    with pytest.raises(TypeError, match=r"^IndexedSlices\.apply_: optimizer: expected raggrad\.optimizers\..* float"):
        SLICES.apply_(TABLE.copy(), 0.1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"^sparse_segment_sum_grad_apply_: optimizer: expected raggrad\.optimizers\.S"):
        ops.sparse_segment_sum_grad_apply_(TABLE.copy(), TABLE[:1], [0], [0], optimizer=None)  # type: ignore[arg-type]


@pytest.mark.parametrize("six", [6, np.int64(6), np.int32(6), np.uint8(6), np.uint64(6), np.array(6)], ids=repr)
def test_sizes_are_whatever_python_takes_for_an_index(six: Any) -> None:
    grad = ops.sparse_segment_sum_grad(TABLE[:1], [5], [0], num_rows=six)
    assert grad.dense_shape == (6, 2)
    assert ops.sparse_segment_mean(TABLE, [5], [0], num_segments=six).shape == (6, 2)
    plan = SegmentPlan([5], [0], six, six)
    assert (plan.num_rows, plan.num_segments) == (6, 6)
    assert ops.sparse_segment_sum_grad(TABLE, [5], [0], six, plan=plan).dense_shape == (6, 2)
    assert ops.sparse_segment_sum(TABLE, plan=plan, num_segments=six).shape == (6, 2)
    assert IndexedSlices(TABLE[:1], [5], (six, 2)).to_dense().shape == (6, 2)
    adam = Adam.for_table(TABLE, 0.1)
    adam.step = six
    SLICES.apply_(TABLE.copy(), adam)
    assert safe_lookup(TABLE, [[]], default_id=six - 1).tolist() == [TABLE[5].tolist()]


def test_importing_everything_hides_no_builtin() -> None:
    names: dict[str, Any] = {}
    exec("from raggrad.ops import *", names)
    assert not [name for name in names if name != "__builtins__" and hasattr(builtins, name)]
    assert callable(ops.slice)


def test_lists_keep_their_type() -> None:
    ints = ops.stack([Ragged([], [1, 2]), Ragged([], [3])])
    assert ints.values.dtype == np.int32
    assert ints.to_lists() == [[1, 2], [3]]
    assert ops.stack([[Ragged([], [1.5])], [Ragged([], [2.5])]]).to_lists() == [[[1.5]], [[2.5]]]
    assert ops.stack(Ragged([[0, 1]], [1.5])).to_lists() == [[1.5]]
    assert ops.stack([]).to_lists() == []
    ragged = Ragged([[0, 1, 3]], [1.5, 2.5, 3.5])
    assert ops.unstack_grad([None, Ragged([], [1.0, 2.0])], ragged).tolist() == [0, 1, 2]
    dense = Ragged([], [1.5, 2.5])
    assert ops.unstack_grad([Ragged([], 3.0), Ragged([], 4.0)], dense).tolist() == [3, 4]
    assert ops.embedding_lookup_sparse([[1, 2], [3, 4]], Ragged([[0, 2]], [0, 1]), [1, 3], "sum").tolist() == [[10, 14]]
    grad = ops.embedding_lookup_sparse_grad([[1, 2]], [[1, 2], [3, 4]], Ragged([[0, 2]], [0, 1]), combiner="sum")
    assert grad.params.to_dense().tolist() == [[1, 2], [1, 2]]
