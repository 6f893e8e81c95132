"""Errors: their types, and texts that name the function and the argument that the user wrote."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from .door import XlaError, jax, jnp, rj, run

TABLE = jnp.ones((10, 3))
IDS = jnp.array([1, 2, 3])
SEGMENTS = jnp.array([0, 0, 1])
KEYS = jax.random.split(jax.random.key(0), 3)
ROWS = rj.sparse_segment_grad("sum", jnp.ones((2, 3)), IDS, SEGMENTS, 10)


def bag(**changed: Any) -> Callable[[], Any]:
    arguments = {"table": TABLE, "ids": IDS, "segment_ids": SEGMENTS, "num_segments": 2, **changed}
    return lambda: rj.embedding_bag(**arguments)


def grad(**changed: Any) -> Callable[[], Any]:
    arguments = {"mode": "sum", "grad": TABLE[:2], "ids": IDS, "segment_ids": SEGMENTS, "num_rows": 10, **changed}
    return lambda: rj.sparse_segment_grad(**arguments)


def changed_rows(**changed: Any) -> Callable[[], Any]:
    return apply(rows=rj.Rows(**{"values": ROWS.values, "ids": ROWS.ids, "count": ROWS.count, **changed}))


def apply(table: Any = TABLE, rows: Any = ROWS, optimizer: Any = None, state: Any = ()) -> Callable[[], Any]:
    return lambda: rj.apply_rows(table, rows, optimizer or rj.SGD(0.1), state)


def filled(default: Any, values: Any = IDS) -> Callable[[], Any]:
    return lambda: rj.fill_empty_rows(IDS[:, None], values, (9,), default)


# Known when the function is traced.
CASES: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "mode": (bag(mode="max"), ValueError, "embedding_bag: mode: expected 'sum', 'mean' or 'sqrtn', got 'max'"),
    "table": (bag(table=IDS), TypeError, "embedding_bag: table: expected float32, bfloat16, float16, float64, got int"),
    "scalar": (bag(table=jnp.float32(1)), ValueError, "embedding_bag: table: expected at least 1 dimension, got a"),
    "ids": (bag(ids=TABLE[0]), TypeError, "embedding_bag: ids: expected integers, got float32"),
    "ids' shape": (bag(ids=IDS[None]), ValueError, "embedding_bag: ids: expected 1 dimension, got shape (1, 3)"),
    "segments": (bag(segment_ids=IDS[:2]), ValueError, "embedding_bag: segment_ids: expected 3 ids, one for every row"),
    "num_segments": (bag(num_segments=-1), ValueError, "embedding_bag: num_segments: expected 0 to 2147483647, got -1"),
    "float": (bag(num_segments=2.0), TypeError, "embedding_bag: num_segments: expected an int, known when the functio"),
    "weights": (bag(weights=TABLE[0, :2]), ValueError, "embedding_bag: weights: expected shape (3,), one for every id"),
    "complex": (bag(weights=1j * IDS), TypeError, "embedding_bag: weights: expected real numbers, got complex64"),
    "keys": (bag(weights=KEYS), TypeError, "embedding_bag: weights: expected real numbers, got key<fry>"),
    "no array": (bag(ids=None), TypeError, "embedding_bag: ids: expected an array, got NoneType: "),
    "accumulation": (bag(accumulation="best"), ValueError, "embedding_bag: no such accumulation [accumulation: expect"),
    "data": (lambda: rj.segment_mean(IDS, IDS, 3), TypeError, "segment_mean: data: expected float32, bfloat16, float1"),
    "no data": (lambda: rj.segment_sum(None, IDS, 3), TypeError, "segment_sum: data: expected an array, got NoneType"),
    "bools": (lambda: rj.segment_sum(IDS > 0, IDS, 3), TypeError, "segment_sum: data: expected float32, bfloat16, flo"),
    "keys' sum": (lambda: rj.segment_sum(KEYS, IDS, 3), TypeError, "segment_sum: data: expected float32, bfloat16, fl"),
    "complex data": (lambda: rj.segment_sum(1j * IDS, IDS[:2], 3), ValueError, "segment_sum: segment_ids: expected 3"),
    "unknown": (lambda: jax.jit(lambda i: rj.segment_sum(IDS, i))(IDS), TypeError, "segment_sum: num_segments: expect"),
    "too many segments": (
        lambda: rj.segment_sum(IDS, np.array([0, 1, 2**32 - 1], np.uint32)),
        ValueError,
        "segment_sum: num_segments: expected 0 to 2147483647, got 4294967296",
    ),
    "rows": (lambda: rj.segment_sum(TABLE, IDS, 3), ValueError, "segment_sum: segment_ids: expected 10 ids, one for"),
    "grad's mode": (grad(mode="prod"), ValueError, "sparse_segment_grad: mode: expected 'sum', 'mean' or 'sqrtn'"),
    "num_rows": (grad(num_rows=2**31), ValueError, "sparse_segment_grad: num_rows: expected 0 to 2147483647, got 2"),
    "size": (grad(size=-1), ValueError, "sparse_segment_grad: size: expected 0 to 2147483647, got -1"),
    "rows' kind": (apply(rows=(1, 2)), TypeError, "apply_rows: rows: expected raggrad.jax.Rows, got tuple"),
    "rows' ids": (changed_rows(ids=IDS[:2]), ValueError, "apply_rows: rows.ids: expected 3 ids, one for every row"),
    "ids' type": (changed_rows(ids=TABLE[0]), TypeError, "apply_rows: rows.ids: expected integers, got float32"),
    "rows' type": (changed_rows(values=TABLE[:3] > 0), TypeError, "apply_rows: rows.values: expected float32, bfloat"),
    "rows' count": (changed_rows(count=IDS), ValueError, "apply_rows: rows.count: expected a number, got shape (3,)"),
    "count's type": (changed_rows(count=1.5), TypeError, "apply_rows: rows.count: expected int8, int16, int32, int64"),
    "widths": (apply(table=TABLE[:, :2]), ValueError, "apply_rows: rows.values: expected shape"),
    "optimizer": (apply(optimizer="sgd"), TypeError, "apply_rows: optimizer: expected raggrad.jax.SGD, Adagrad or"),
    "no state": (apply(optimizer=rj.Adam(0.1)), TypeError, "apply_rows: state: expected what Adam.init(table) returns"),
    "state": (apply(optimizer=rj.Adagrad(0.1), state=IDS), ValueError, "apply_rows: state: expected float32[10, 3], g"),
    "rate": (apply(optimizer=rj.SGD(TABLE)), ValueError, "apply_rows: optimizer.learning_rate: expected a number, got"),
    "complex rate": (apply(optimizer=rj.SGD(1j)), TypeError, "apply_rows: optimizer.learning_rate: expected real nu"),
    "no rate": (apply(optimizer=rj.SGD(None)), TypeError, "apply_rows: optimizer.learning_rate: expected an array, g"),
    "traced epsilon": (
        lambda: jax.jit(lambda e: apply(optimizer=rj.Adagrad(0.1, epsilon=e), state=TABLE)())(1e-7),
        TypeError,
        "apply_rows: optimizer.epsilon: expected a number, known when the function is traced, got ",
    ),
    "derivative": (
        lambda: jax.grad(lambda t: apply(table=t)()[0].sum())(TABLE),
        TypeError,
        "apply_rows: a step has no derivative",
    ),
    "float8": (
        lambda: rj.sparse_slice(IDS[:, None], IDS.astype(jnp.float8_e4m3fn), (9,), (0,), (9,)),
        TypeError,
        "sparse_slice: values: expected float32, bfloat16,",
    ),
    "shape": (lambda: rj.fill_empty_rows(IDS[:, None], IDS, 9, 0), TypeError, "fill_empty_rows: shape: expected a num"),
    "indices": (lambda: rj.sparse_slice(IDS, IDS, (9,), (0,), (9,)), ValueError, "sparse_slice: indices: expected sha"),
    "index type": (
        lambda: rj.fill_empty_rows(TABLE[:3, :1], IDS, (9,), 0),
        TypeError,
        "fill_empty_rows: indices: expected int32 or int64, got float32",
    ),
    "start": (lambda: rj.sparse_slice(IDS[:, None], IDS, (9,), (0, 0), (9,)), ValueError, "sparse_slice: start: expec"),
    "a number for a shape": (
        lambda: rj.sparse_slice(IDS[:, None], IDS, np.array(9), (0,), (9,)),
        TypeError,
        "sparse_slice: shape: expected a number for every dimension, got array(9)",
    ),
    "no default": (filled(None), TypeError, "fill_empty_rows: default_value: expected an array, got NoneType"),
    "half a default": (filled(1.5), TypeError, "fill_empty_rows: default_value: expected int32, got float32"),
    "complex default": (filled(1j, TABLE[0]), TypeError, "fill_empty_rows: default_value: expected float32, got com"),
    "large default": (
        filled(300, IDS.astype("uint8")),
        ValueError,
        "fill_empty_rows: default_value: expected uint8, got 300: ",
    ),
    "modes": (bag(mode=np.array(["sum", "mean"])), ValueError, "embedding_bag: mode: expected 'sum', 'mean' or"),
    "traced flag": (
        lambda: jax.jit(lambda known: rj.segment_sum(IDS, IDS, 4, known))(True),
        TypeError,
        "segment_sum: indices_are_sorted: expected True or False, known when the function is traced, got ",
    ),
    "segments of complex data": (
        lambda: rj.segment_sum(1j * IDS, IDS, -1),
        ValueError,
        "segment_sum: num_segments: expected 0 to 2147483647, got -1",
    ),
    "complex data's accumulation": (
        lambda: rj.segment_sum(1j * IDS, IDS, 4, accumulation="best"),
        ValueError,
        "segment_sum: no such accumulation",
    ),
    "long id": (
        lambda: rj.segment_sum(IDS, [0, 1, 2**32], 4),
        TypeError,
        "segment_sum: segment_ids: expected an array, got list: ",
    ),
    "default": (lambda: rj.fill_empty_rows(IDS[:, None], IDS, (9,), IDS), ValueError, "fill_empty_rows: default_value"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_errors_of_arguments(case: str) -> None:
    call, kind, text = CASES[case]
    with pytest.raises(kind, match=re.escape("raggrad.jax." + text)):
        call()


# Known when the function runs.
RUNNING = {
    "id too large": (bag(ids=jnp.array([1, 99, 3])), "embedding_bag: an id is out of range [ids[1]: expected 0 to 9, "),
    "id negative": (bag(ids=jnp.array([1, 2, -3])), "embedding_bag: an id is out of range [ids[2]: expected 0 to 9, g"),
    "among moved ones": (
        bag(ids=jnp.array([-9, 1, 2, 77]), segment_ids=jnp.array([-1, 1, 0, 0])),
        "embedding_bag: an id is out of range [ids[3]: expected 0 to 9, got 77]",
    ),
    "no rows": (bag(table=TABLE[:0]), "embedding_bag: [ids[0]: expected none, because there are no rows]"),
    "grad": (grad(ids=jnp.array([1, 2, 10])), "sparse_segment_grad: an id is out of range [ids[2]: expected 0 to 9, g"),
    "grad without rows": (grad(num_rows=0), "sparse_segment_grad: [ids[0]: expected none, because there are no rows]"),
    "room": (grad(size=2), "sparse_segment_grad: there are more rows than there is room for [size: expected 3 or more"),
    "rows' ids": (
        apply(rows=rj.Rows(ROWS.values, ROWS.ids + 8, ROWS.count)),
        "apply_rows: Index 10 out of range [0, 10). [rows.ids[1]]",
    ),
    "rows' count": (
        apply(rows=rj.Rows(ROWS.values, ROWS.ids, ROWS.count + 1)),
        "apply_rows: [rows.count: expected 0 to 3, the rows there is room for, got 4]",
    ),
}  # fmt: skip


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("case", RUNNING)
def test_errors_of_values(case: str, jit: bool) -> None:
    call, text = RUNNING[case]
    with pytest.raises(XlaError, match=re.escape("raggrad.jax." + text)):
        jax.block_until_ready((jax.jit(call) if jit else call)())


def test_an_error_leaves_a_donated_table_usable_for_nobody_else() -> None:
    """The call after one that failed works."""
    with pytest.raises(XlaError):
        jax.block_until_ready(bag(ids=jnp.array([1, 99, 3]))())
    assert bag()().tolist() == [[1.0] * 3] * 2


def test_gradients_name_the_function_too() -> None:
    with pytest.raises(XlaError, match=re.escape("raggrad.jax.embedding_bag: an id is out of range [ids[1]")):
        gradient = jax.grad(lambda t: rj.embedding_bag(t, jnp.array([1, 99, 3]), SEGMENTS, 2).sum())(TABLE)
        gradient.block_until_ready()


@pytest.mark.parametrize(
    ("stub", "text"),
    [
        ("sys.modules['jax'] = None", "raggrad.jax needs jaxlib 0.7 or newer, and no JAX can be imported"),
        ("import jaxlib; jaxlib.__version__ = '0.6.2'", "raggrad.jax needs jaxlib 0.7 or newer, and this is jaxlib 0."),
        ("import jax; jax.__version__ = '0.6.2'", "raggrad.jax needs jaxlib 0.7 or newer, and this is jax 0.6.2"),
        (
            "import pathlib; pathlib.Path.exists = lambda self: False",
            "this raggrad was built without raggrad.jax, because jaxlib's headers were not there; docs/packaging.md",
        ),
    ],
    ids=["missing", "jaxlib too old", "jax too old", "left out"],
)
def test_a_jax_that_cannot_be_used(stub: str, text: str) -> None:
    code = f"import sys; {stub}\ntry:\n import raggrad.jax\nexcept ImportError as error: print(error)"
    printed = run(code)
    assert text in printed
    assert len(printed.splitlines()) == 1


def test_lists_are_taken() -> None:
    assert rj.embedding_bag(np.ones((2, 1), np.float32), [0, 1], [0, 0], 1, mode="sum").tolist() == [[2.0]]


@pytest.mark.parametrize("kind", [np.int64, np.uint64])
def test_integers_that_jax_cannot_hold_stay_out_of_range(kind: Any) -> None:
    """JAX drops their upper halves: 2**32 + 1 would be 1."""
    far = np.array([2**32 + 1, 2, 3], kind)
    with pytest.raises(XlaError, match=re.escape("raggrad.jax.embedding_bag: an id is out of range [ids[0]")):
        bag(ids=far)().block_until_ready()
    with pytest.raises(XlaError, match=re.escape("raggrad.jax.sparse_segment_grad: an id is out of range [ids[0]")):
        grad(ids=far)().values.block_until_ready()
    assert rj.segment_sum(TABLE[:3], far, 3).tolist() == [[0.0] * 3, [0.0] * 3, [1.0] * 3]
    with pytest.raises(ValueError, match=r"raggrad.jax.segment_sum: num_segments: expected 0 to 2147483647, got"):
        rj.segment_sum(TABLE[:3], far)
    assert rj.segment_sum(TABLE[:3], far % 4).tolist() == [[0.0] * 3, [1.0] * 3, [1.0] * 3, [1.0] * 3]


def test_indices_that_jax_cannot_hold_stay_out_of_range() -> None:
    far = np.array([[2**32], [1]])
    assert rj.sparse_slice(far, IDS[:2], (9,), (0,), (9,)).values.tolist() == [2, 0]
    with pytest.raises(XlaError, match=r"raggrad.jax.fill_empty_rows: indices\(0, 0\) is invalid"):
        rj.fill_empty_rows(far, IDS[:2], (9,), 0)[1].block_until_ready()
    with pytest.raises(XlaError, match=r"raggrad.jax.fill_empty_rows: .*count: expected 0 to 1"):
        rj.fill_empty_rows(far[1:], IDS[:1], (9,), 0, count=np.int64(2**32 + 1))[1].block_until_ready()


def test_a_wide_count_is_not_cut(x64: None) -> None:
    for count in (np.int64(2**32 + 1), np.int64(-(2**40)), np.uint64(2**63)):
        with pytest.raises(XlaError, match=r"raggrad.jax.fill_empty_rows: .*count: expected 0 to 1"):
            rj.fill_empty_rows([[1]], IDS[:1], (9,), 0, count=count)[1].block_until_ready()
