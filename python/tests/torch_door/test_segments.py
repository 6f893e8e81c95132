"""segment_* and sparse_segment_* against sums made by torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import raggrad

from .door import FLOATS, random_bags, random_table, rt, tolerance, torch

POWERS = {"sum": 0.0, "mean": 1.0, "sqrtn": 0.5}


def pooled(combiner: str, rows: Any, segment_ids: Any, segments: int) -> Any:
    counts = torch.bincount(segment_ids, minlength=segments).clamp(min=1).to(torch.float64)
    total = torch.zeros(segments, *rows.shape[1:], dtype=torch.float64).index_add(0, segment_ids, rows.double())
    return total / counts.pow(POWERS[combiner]).reshape(-1, *[1] * (rows.dim() - 1))


def check_gradient(ours: Any, theirs: Any, data: Any) -> None:
    upstream = torch.randn(theirs.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(7))
    (grad,) = torch.autograd.grad(ours, data, upstream.to(ours.dtype))
    (wanted,) = torch.autograd.grad(theirs, data, upstream)
    torch.testing.assert_close(grad, wanted.to(grad.dtype), **tolerance(grad.dtype))


@pytest.mark.parametrize("combiner", POWERS)
@pytest.mark.parametrize("ids", [torch.int32, torch.int64])
@pytest.mark.parametrize("dtype", FLOATS)
def test_sparse_segments(dtype: Any, ids: Any, combiner: str) -> None:
    bags, data = random_bags(ids, bags=30), random_table(dtype).requires_grad_()
    segment_ids = bags.segment_ids
    ours = getattr(rt, f"sparse_segment_{combiner}")(data, bags.ids, segment_ids.to(ids), 33)
    theirs = pooled(combiner, data[bags.ids.long()], segment_ids, 33)
    torch.testing.assert_close(ours, theirs.to(dtype), **tolerance(dtype))
    check_gradient(ours, theirs, data)


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.uint64])
def test_sums_of_unsigned_numbers(dtype: Any) -> None:
    """Beyond the largest they begin again at 0, as TensorFlow's do."""
    largest = torch.iinfo(dtype).max
    data, ids = torch.tensor([[largest], [2], [3]], dtype=dtype), torch.tensor([0, 1, 1])
    sums = {"all": rt.segment_sum(data, ids), "some": rt.sparse_segment_sum(data, torch.tensor([1, 0, 1]), ids)}
    assert {name: found.tolist() for name, found in sums.items()} == {"all": [[largest], [5]], "some": [[2], [1]]}
    assert all(found.dtype == dtype for found in sums.values())


@pytest.mark.parametrize("order", ["ascending", "any"])
@pytest.mark.parametrize("combiner", POWERS)
@pytest.mark.parametrize("ids", [torch.int32, torch.int64])
@pytest.mark.parametrize("dtype", FLOATS)
def test_segments(dtype: Any, ids: Any, combiner: str, order: str) -> None:
    segment_ids = random_bags(bags=100, rows=9).ids
    if order == "ascending":
        segment_ids = segment_ids.sort().values
    data = random_table(dtype, len(segment_ids), 5).requires_grad_()
    ours = getattr(rt, f"segment_{combiner}")(data, segment_ids.to(ids), 11)
    theirs = pooled(combiner, data, segment_ids, 11)
    torch.testing.assert_close(ours, theirs.to(dtype), **tolerance(dtype))
    check_gradient(ours, theirs, data)


@pytest.mark.parametrize("combiner", POWERS)
def test_bits_are_those_of_the_python_package(combiner: str) -> None:
    segment_ids = random_bags(bags=1000, rows=90).ids
    data = random_table(torch.float32, len(segment_ids), 5)
    ours = getattr(rt, f"segment_{combiner}")(data, segment_ids)
    theirs = getattr(raggrad.ops, f"segment_{combiner}")(data.numpy(), segment_ids.numpy())
    assert np.array_equal(ours.numpy(), theirs)


@pytest.mark.parametrize("shape", [(4,), (4, 2, 3)])
def test_rows_of_any_shape(shape: tuple[int, ...]) -> None:
    data = torch.arange(float(np.prod(shape))).reshape(shape)
    assert torch.equal(rt.segment_sum(data, torch.tensor([1, 0, 1, 3])),
                       torch.stack([data[1], data[0] + data[2], data[0] * 0, data[3]]))  # fmt: skip
    assert torch.equal(rt.sparse_segment_sum(data, torch.tensor([3, 3]), torch.tensor([0, 2])),
                       torch.stack([data[3], data[0] * 0, data[3]]))  # fmt: skip


def test_number_of_segments() -> None:
    data, ids = torch.ones(3, 2), torch.tensor([0, 0, 4])
    assert len(rt.segment_sum(data, ids)) == len(rt.sparse_segment_sum(data, ids[:0].new_zeros(3), ids)) == 5
    assert len(rt.segment_sum(data, ids, 9)) == len(rt.sparse_segment_sum(data, ids * 0, ids, 9)) == 9
    none = torch.empty(0, dtype=torch.int64)
    assert rt.segment_sum(data[:0], none).shape == rt.sparse_segment_sum(data, none, none).shape == (0, 2)
    assert rt.segment_mean(data[:0], none, 2).tolist() == [[0.0, 0.0]] * 2


def test_integers_are_summed() -> None:
    assert rt.segment_sum(torch.tensor([1, 2, 4]), torch.tensor([1, 0, 1])).tolist() == [2, 5]


@pytest.mark.parametrize("order", ["sequential", "fast"])
def test_the_order_of_sums_can_be_chosen(order: str) -> None:
    ids, grad = torch.zeros(4096, dtype=torch.int64), torch.randn(4096, 3)
    weight = torch.zeros(2, 3, requires_grad=True)

    def gradient(**options: Any) -> Any:
        out = rt.sparse_segment_sum(weight, ids, torch.arange(4096), **options)
        return torch.autograd.grad(out, weight, grad)[0]

    wanted = gradient(accumulation=order)
    with raggrad.accumulation(order):
        assert torch.equal(gradient(), wanted)
    other = "fast" if order == "sequential" else "sequential"
    assert not torch.equal(gradient(accumulation=other), wanted)
    torch.testing.assert_close(gradient(accumulation=other), wanted, rtol=1e-3, atol=1e-3)


def test_reproducible_sums_do_not_depend_on_the_order_of_ids() -> None:
    weight = torch.zeros(2, 3, requires_grad=True)
    grad = torch.randn(4096, 3, generator=torch.Generator().manual_seed(2)) * 1e3

    def gradient(order: Any) -> Any:
        out = rt.embedding(torch.zeros(4096, dtype=torch.int64), weight, accumulation="reproducible")
        return torch.autograd.grad(out, weight, grad[order])[0]

    assert torch.equal(gradient(torch.arange(4096)), gradient(torch.arange(4095, -1, -1)))


def test_deterministic_algorithms_accept_everything() -> None:
    torch.use_deterministic_algorithms(True)
    try:
        weight = random_table().requires_grad_()
        bags = random_bags()
        for sparse in (False, True):
            rt.embedding_bag(bags.ids, weight, bags.offsets, sparse=sparse).sum().backward()
            weight.grad = None
        rt.index_add(weight, 0, bags.ids, weight[bags.ids]).sum().backward()
        rt.segment_mean(weight, torch.arange(len(weight)) % 3).sum().backward()
    finally:
        torch.use_deterministic_algorithms(False)
