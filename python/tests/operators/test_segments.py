"""ops.segment_sum, segment_mean and segment_sqrtn, and their gradients: segment ids in any order."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import raggrad
from conftest import FLOATS, INTEGERS, numpy_dtype, same_bits, values_of
from raggrad import ops
from raggrad.errors import InvalidArgumentError, ResourceExhaustedError
from raggrad.ops import segments

COMBINERS = ["sum", "mean", "sqrtn"]
IDS = np.array([3, 0, 3, 3, 1, 3])  # four times and once: numbers whose square roots are exact


def forward(combiner: str) -> Callable[..., Any]:
    return getattr(ops, f"segment_{combiner}")


def backward(combiner: str) -> Callable[..., Any]:
    return getattr(ops, f"segment_{combiner}_grad")


def scales(combiner: str, ids: np.ndarray, count: int) -> np.ndarray:
    counts = np.maximum(np.bincount(ids, minlength=count), 1).astype(np.float64)
    return counts ** {"sum": 0.0, "mean": -1.0, "sqrtn": -0.5}[combiner]


def plain(combiner: str, data: np.ndarray, ids: np.ndarray, count: int) -> np.ndarray:
    """The segments in float64: exact for the small numbers of the tests."""
    out = np.zeros((count, *data.shape[1:]))
    np.add.at(out, ids, data.astype(np.float64))
    return out * scales(combiner, ids, count).reshape(-1, *[1] * (data.ndim - 1))


def random_ids(rows: int, count: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, count, rows)


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
@pytest.mark.parametrize("combiner", COMBINERS)
def test_dtypes(combiner: str, dtype: str) -> None:
    data = values_of(dtype, 24).reshape(6, 2, 2)
    if dtype in INTEGERS and combiner != "sum":
        with pytest.raises(InvalidArgumentError, match=rf"^segment_{combiner}: .*data.*half, bfloat16, float32, floa"):
            forward(combiner)(data, IDS)
        return
    for ids in (IDS, IDS.astype(np.int32), IDS.astype(np.uint8), IDS.tolist()):
        for count, rows in ((None, 4), (4, 4), (np.int64(6), 6)):
            want = plain(combiner, data, IDS, rows).astype(data.dtype)
            assert same_bits(forward(combiner)(data, ids, count), want)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("combiner", COMBINERS)
def test_dtypes_of_gradients(combiner: str, dtype: str) -> None:
    grad = values_of(dtype, 20).reshape(5, 2, 2)
    want = (grad.astype(np.float64) * scales(combiner, IDS, 5).reshape(-1, 1, 1))[IDS].astype(grad.dtype)
    for ids in (IDS, IDS.astype(np.int32), IDS.astype(np.uint8), IDS.tolist()):
        assert same_bits(backward(combiner)(grad, ids), want)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("combiner", COMBINERS)
def test_unsorted_ids_have_the_bits_of_rows_sorted_before(combiner: str, dtype: str) -> None:
    ids = random_ids(5000, 97)
    data = np.random.default_rng(1).normal(size=(5000, 3)).astype(numpy_dtype(dtype))
    order = np.argsort(ids, kind="stable")
    want = getattr(ops, f"sparse_segment_{combiner}")(data, order, ids[order])
    assert same_bits(forward(combiner)(data, ids), want)
    assert same_bits(forward(combiner)(data[order], ids[order]), want)


@pytest.mark.parametrize("combiner", COMBINERS)
@pytest.mark.parametrize("count", [1, 2, 1000, 2**20])
def test_against_numpy(combiner: str, count: int) -> None:
    ids = random_ids(20_000, count)
    data = np.random.default_rng(2).normal(size=(20_000, 2)).astype(np.float32)
    got = forward(combiner)(data, ids, count)
    np.testing.assert_allclose(got, plain(combiner, data, ids, count), rtol=1e-4, atol=1e-4)
    want = (got * scales(combiner, ids, count)[:, None])[ids]
    np.testing.assert_allclose(backward(combiner)(got, ids), want, rtol=1e-6)


@pytest.mark.parametrize("combiner", COMBINERS)
def test_against_torch(combiner: str) -> None:
    torch = pytest.importorskip("torch")
    ids = random_ids(300, 20)
    data = torch.from_numpy(np.random.default_rng(3).normal(size=(300, 4)))
    scale = torch.from_numpy(scales(combiner, ids, 20))[:, None]
    data.requires_grad_()
    want = torch.zeros(20, 4, dtype=torch.float64).index_add(0, torch.from_numpy(ids), data) * scale
    got = forward(combiner)(data.detach(), torch.from_numpy(ids), 20)
    assert isinstance(got, torch.Tensor)
    torch.testing.assert_close(got, want.detach())
    upstream = torch.from_numpy(np.random.default_rng(4).normal(size=(20, 4)))
    want.backward(upstream)
    torch.testing.assert_close(backward(combiner)(upstream, torch.from_numpy(ids)), data.grad)


@pytest.mark.parametrize("combiner", COMBINERS)
def test_against_jax(combiner: str) -> None:
    jax = pytest.importorskip("jax")
    ids = jax.numpy.asarray(random_ids(300, 20))
    data = jax.numpy.asarray(np.random.default_rng(3).normal(size=(300, 4)).astype(np.float32))
    scale = scales(combiner, np.asarray(ids), 20)[:, None].astype(np.float32)

    def peer(rows: Any) -> Any:
        return jax.ops.segment_sum(rows, ids, 20) * scale

    got = forward(combiner)(data, ids, 20)
    assert isinstance(got, jax.Array)
    want, pull = jax.vjp(peer, data)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(backward(combiner)(got, ids), pull(got)[0], rtol=1e-6)


@pytest.mark.parametrize("combiner", COMBINERS)
def test_same_bits_for_every_number_of_threads(combiner: str, restore_threads: None) -> None:
    ids = random_ids(50_000, 300)
    data = np.random.default_rng(6).normal(size=(50_000, 5)).astype(np.float32)
    results = []
    for threads in (1, 2, 7):
        raggrad.set_num_threads(threads)
        with raggrad.accumulation("fast"):
            pooled = forward(combiner)(data, ids)
            results.append((pooled, backward(combiner)(pooled, ids)))
    assert all(same_bits(a, b) for other in results[1:] for a, b in zip(results[0], other, strict=True))


@pytest.mark.parametrize("combiner", COMBINERS)
def test_half_is_rounded_once(combiner: str) -> None:
    """A sum in half would stop at 2048, and one in bfloat16 at 256."""
    for dtype in (np.float16, ml_dtypes.bfloat16):
        ids = np.tile([1, 0], 5000)
        want = (5000 * scales(combiner, ids, 2)).astype(dtype)
        assert same_bits(forward(combiner)(np.ones(10_000, dtype), ids), want)


@pytest.mark.parametrize("combiner", COMBINERS)
def test_empty(combiner: str) -> None:
    none = np.zeros(0, np.int32)
    assert forward(combiner)(np.zeros((0, 3), np.float32), none).shape == (0, 3)
    assert forward(combiner)(np.zeros((0, 3), np.float32), none, 2).tolist() == [[0, 0, 0]] * 2
    assert forward(combiner)(np.zeros((2, 0), np.float32), [1, 0]).shape == (2, 0)
    assert forward(combiner)([], []).tolist() == []
    assert backward(combiner)(np.zeros((0, 3), np.float32), none).shape == (0, 3)
    assert backward(combiner)(np.ones((2, 3), np.float32), none).shape == (0, 3)
    assert backward(combiner)(np.ones((2, 0), np.float32), [1, 0, 0]).shape == (3, 0)


def test_kinds_and_layouts() -> None:
    data = np.arange(24, dtype=np.float32).reshape(6, 4)
    want = ops.segment_sum(data, IDS)
    for same in (np.asfortranarray(data), np.repeat(data, 2, axis=1)[:, ::2], data.astype(">f4"), data.tolist()):
        assert same_bits(ops.segment_sum(same, IDS), want)
    assert same_bits(ops.segment_sum(data, np.repeat(IDS, 2)[::2]), want)
    assert isinstance(ops.segment_sum(raggrad.Tensor(data), IDS), raggrad.Tensor)
    assert ops.segment_sum([1, 2, 3], [1, 0, 1]).dtype == np.int32
    assert ops.segment_mean([1, 2, 3], [1, 0, 1]).dtype == np.float32


def test_inputs_are_not_changed() -> None:
    data, ids = np.ones((6, 2), np.float32), IDS.copy()
    ops.segment_mean(data, ids)
    ops.segment_mean_grad(data, ids)
    assert (data == 1).all()
    assert same_bits(ids, IDS)


class Huge:
    shape = (2**32, 1)


ROWS = np.ones((3, 2), np.float32)


@pytest.mark.parametrize("combiner", COMBINERS)
@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((ROWS, [0, 2, 1], 2), "a segment id is out of range [segment_ids[1]: expected 0 to 1, got 2]"),
        ((ROWS, [0, 2, -1]), "a segment id is out of range [segment_ids[2]: expected 0 to 2147483646, got -1]"),
        ((ROWS, [-(2**63), 2, -1], 5), f"[segment_ids[0]: expected 0 to 4, got {-(2**63)}]"),
        ((ROWS, [0, 2**63 - 1, 0]), f"[segment_ids[1]: expected 0 to 2147483646, got {2**63 - 1}]"),
        ((ROWS, [0, 0, 0], 0), "[segment_ids[0]: expected none, as num_segments is 0, got 0]"),
        ((ROWS, [0, 0]), "every row needs a segment id [segment_ids: expected 3 for 3 rows of data, got 2]"),
        ((Huge(), [0]), "[segment_ids: expected 4294967296 for 4294967296 rows of data, got 1]"),
        ((ROWS, [[0, 0, 0]]), "[segment_ids: expected int32 or int64 of rank 1, or other integers that fit, got int"),
        ((ROWS, np.zeros(3)), "[segment_ids: expected int32 or int64 of rank 1, or other integers that fit, got float"),
        ((ROWS, [0, 1, 2], 2.0), "num_segments is not a whole number [num_segments: expected an int, got float]"),
        ((ROWS, [0, 1, 2], [0, 1, 2]), "[num_segments: expected an int, got list]"),
        ((ROWS, [0, 1, 2], -1), "num_segments is out of range [num_segments: expected 0 to 2147483647, got -1]"),
        ((ROWS, [0, 1, 2], 2**31), "[num_segments: expected 0 to 2147483647, got 2147483648]"),
        ((np.float32(1), [0]), "data must have rows [data: expected at least rank 1, got a scalar]"),
        (([[1.0], [2.0, 3.0]], [0, 1]), "data: the list is not a rectangular array"),
        ((None, [0]), "data: "),
        ((ROWS, None), "segment_ids: "),
    ],
)
def test_bad_arguments(combiner: str, arguments: tuple[Any, ...], text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=rf"^segment_{combiner}: .*{re.escape(text)}"):
        forward(combiner)(*arguments)


@pytest.mark.parametrize("combiner", COMBINERS)
@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((ROWS, [0, 3]), "a segment id is out of range [segment_ids[1]: expected 0 to 2, got 3]"),
        ((ROWS, [-1, 3]), "[segment_ids[0]: expected 0 to 2, got -1]"),
        ((ROWS[:0], [0]), "[segment_ids[0]: expected none, as grad has no rows, got 0]"),
        ((ROWS, np.zeros((1, 1), np.int32)), "[segment_ids: expected int32 or int64 of rank 1"),
        ((np.float32(1), [0]), "grad must have rows [grad: expected at least rank 1, got a scalar]"),
        ((np.ones((2, 2), np.int64), [0]), "half, bfloat16, float32, float64"),
    ],
)
def test_bad_arguments_of_gradients(combiner: str, arguments: tuple[Any, ...], text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=rf"^segment_{combiner}_grad: .*{re.escape(text)}"):
        backward(combiner)(*arguments)


def test_too_many_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "_MAX_ROWS", 2)
    for call in (ops.segment_sum, ops.segment_sum_grad):
        with pytest.raises(InvalidArgumentError, match=r"\[segment_ids: expected at most 2, got 3\]"):
            call(ROWS, [0, 1, 2])


@pytest.mark.parametrize("combiner", COMBINERS)
def test_more_segments_than_memory(combiner: str) -> None:
    with pytest.raises(ResourceExhaustedError, match=rf"^segment_{combiner}: "):
        forward(combiner)(np.ones((1, 2**12), np.float64), [2**31 - 2])
