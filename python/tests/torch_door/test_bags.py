"""embedding_bag and embedding against torch's functions of these names: values and gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import raggrad

from .door import FLOATS, ROWS, Bags, random_bags, random_table, rt, tolerance, torch

functional = torch.nn.functional


def torch_bags(mode: str, bags: Bags, weight: Any, **options: Any) -> Any:
    """Torch's answer. It has no "sqrtn", which is the sum over the root of the number of ids that are no padding."""
    if mode != "sqrtn":
        return functional.embedding_bag(bags.ids, weight, bags.offsets, mode=mode, **options)
    ends = torch.cat([bags.offsets[1:], torch.tensor([len(bags.ids)], dtype=bags.offsets.dtype)])
    kept = bags.ids != options.get("padding_idx", -1)
    sizes = torch.stack([kept[b:e].sum() for b, e in zip(bags.offsets, ends, strict=True)])
    total = functional.embedding_bag(bags.ids, weight, bags.offsets, mode="sum", **options)
    return total / sizes.clamp(min=1).double().sqrt().to(weight.dtype)[:, None]


def check_same(ours: Any, theirs: Any, weight: Any, dtype: Any, seed: int = 5) -> None:
    torch.testing.assert_close(ours, theirs, **tolerance(dtype))
    upstream = random_table(dtype, *ours.shape, seed=seed)
    (grad,) = torch.autograd.grad(ours, weight, upstream)
    (wanted,) = torch.autograd.grad(theirs, weight, upstream)
    torch.testing.assert_close(grad.to_dense(), wanted.to_dense(), **tolerance(dtype))


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("padding_idx", [None, 7, -3])
@pytest.mark.parametrize("mode", ["sum", "mean", "sqrtn"])
@pytest.mark.parametrize("ids", [torch.int32, torch.int64])
@pytest.mark.parametrize("dtype", FLOATS)
def test_bags(dtype: Any, ids: Any, mode: str, padding_idx: int | None, sparse: bool) -> None:
    bags = random_bags(ids, bags=40)
    weight = random_table(dtype).requires_grad_()
    options = {} if padding_idx is None else {"padding_idx": padding_idx % ROWS}
    ours = rt.embedding_bag(
        bags.ids, weight, bags.offsets, mode=mode, sparse=sparse, padding_idx=padding_idx
    )
    check_same(ours, torch_bags(mode, bags, weight, **options), weight, dtype)


def weighted(mode: str, bags: Bags, weight: Any, weights: Any, padding_idx: int | None) -> Any:
    """In float64, as torch's: only its sums take weights."""
    kept = torch.ones(len(bags.ids)) if padding_idx is None else bags.ids != padding_idx
    products = weight.double()[bags.ids.long()] * (weights.double() * kept)[:, None]
    total = torch.zeros(bags.count, weight.shape[1], dtype=torch.float64).index_add(0, bags.segment_ids, products)
    sizes = torch.zeros(bags.count, dtype=torch.float64).index_add(0, bags.segment_ids, kept.double())
    return total / sizes.clamp(min=1).pow({"sum": 0.0, "mean": 1.0, "sqrtn": 0.5}[mode])[:, None]


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("padding_idx", [None, 7])
@pytest.mark.parametrize("mode", ["sum", "mean", "sqrtn"])
@pytest.mark.parametrize("ids", [torch.int32, torch.int64])
@pytest.mark.parametrize("dtype", FLOATS)
def test_weights(dtype: Any, ids: Any, mode: str, padding_idx: int | None, sparse: bool) -> None:
    bags = random_bags(ids, bags=40)
    weight = random_table(dtype).requires_grad_()
    weights = random_table(dtype, len(bags.ids), 1, seed=3)[:, 0].requires_grad_()
    ours = rt.embedding_bag(
        bags.ids, weight, bags.offsets, mode=mode, sparse=sparse, per_sample_weights=weights, padding_idx=padding_idx
    )
    theirs = weighted(mode, bags, weight, weights, padding_idx)
    torch.testing.assert_close(ours, theirs.to(dtype), **tolerance(dtype))
    upstream = random_table(dtype, *ours.shape, seed=5)
    grads = torch.autograd.grad(ours, (weight, weights), upstream)
    for grad, wanted in zip(grads, torch.autograd.grad(theirs, (weight, weights), upstream.double()), strict=True):
        torch.testing.assert_close(grad.to_dense(), wanted.to(dtype), **tolerance(dtype))


def test_weights_of_sums_are_torchs() -> None:
    bags, weight = random_bags(bags=40), random_table()
    weights = random_table(rows=len(bags.ids), width=1)[:, 0]
    options = {"mode": "sum", "per_sample_weights": weights}
    torch.testing.assert_close(
        rt.embedding_bag(bags.ids, weight, bags.offsets, **options),
        functional.embedding_bag(bags.ids, weight, bags.offsets, **options),
    )
    ids, pairs = bags.ids[:20].reshape(10, 2), weights[:20].reshape(10, 2)
    torch.testing.assert_close(
        rt.embedding_bag(ids, weight, mode="sum", per_sample_weights=pairs),
        functional.embedding_bag(ids, weight, mode="sum", per_sample_weights=pairs),
    )
    float_weights = rt.embedding_bag(ids, weight, per_sample_weights=pairs.float())
    torch.testing.assert_close(float_weights, rt.embedding_bag(ids, weight, per_sample_weights=pairs.float().double()))


def test_ids_behind_the_last_offset_have_no_weight() -> None:
    weight, weights = random_table(), torch.ones(5, dtype=torch.float64, requires_grad=True)
    ids, offsets = torch.tensor([1, 2, 1, 4, 5]), torch.tensor([0, 2, 4])
    out = rt.embedding_bag(ids, weight, offsets, per_sample_weights=weights, include_last_offset=True, padding_idx=2)
    (grad,) = torch.autograd.grad(out.sum(), weights)
    sums = weight.sum(1)
    wanted = [sums[1], 0.0, sums[1] / 2, sums[4] / 2, 0.0]
    torch.testing.assert_close(grad, torch.tensor(wanted, dtype=torch.float64))


def test_offsets_and_ids_may_differ_in_type() -> None:
    bags, weight = random_bags(torch.int32), random_table()
    out = rt.embedding_bag(bags.ids, weight, bags.offsets.long())
    torch.testing.assert_close(out, functional.embedding_bag(bags.ids, weight, bags.offsets))


@pytest.mark.parametrize("unused", [0, 3], ids=["all", "some"])
def test_the_last_offset_may_be_an_end(unused: int) -> None:
    bags, weight = random_bags(), random_table().requires_grad_()
    offsets = torch.cat([bags.offsets, torch.tensor([len(bags.ids) - unused])]).clamp(max=len(bags.ids) - unused)
    arguments = {"include_last_offset": True, "mode": "sum"}
    ours = rt.embedding_bag(bags.ids, weight, offsets, **arguments)
    assert len(ours) == bags.count
    used = bags.ids[: offsets[-1]]  # torch's answers to float64 and to float32 differ in whether they use the others
    check_same(ours, functional.embedding_bag(used, weight, offsets, **arguments), weight, torch.float64)


@pytest.mark.parametrize("size", [1, 3])
def test_rows_of_a_matrix_are_bags(size: int) -> None:
    ids = random_bags(bags=30).ids[:24].reshape(-1, size)
    weight = random_table().requires_grad_()
    ours = rt.embedding_bag(ids, weight, padding_idx=5)
    check_same(ours, functional.embedding_bag(ids, weight, padding_idx=5), weight, torch.float64)


def test_no_bags_and_empty_bags() -> None:
    weight = random_table().requires_grad_()
    none = torch.empty(0, dtype=torch.int64)
    for out in (
        rt.embedding_bag(none, weight, none),
        rt.embedding_bag(none, weight, torch.zeros(1, dtype=torch.int64), include_last_offset=True),
        rt.embedding_bag(none.reshape(0, 4), weight),
    ):
        assert out.shape == (0, weight.shape[1])
    for out in (rt.embedding_bag(none, weight, torch.zeros(3, dtype=torch.int64)),
                rt.embedding_bag(none.reshape(3, 0), weight)):  # fmt: skip
        assert torch.equal(out, torch.zeros(3, weight.shape[1], dtype=torch.float64))
        (grad,) = torch.autograd.grad(out.sum(), weight)
        assert not grad.any()
    out = rt.embedding_bag(none, weight, torch.zeros(3, dtype=torch.int64), sparse=True)
    assert torch.autograd.grad(out.sum(), weight)[0]._nnz() == 0
    all_padding = rt.embedding_bag(torch.tensor([[3, 3]]), weight, padding_idx=3, sparse=True)
    assert not all_padding.any()
    assert torch.autograd.grad(all_padding.sum(), weight)[0]._nnz() == 0


def test_nested_tensors_and_ragged_ids() -> None:
    lists = [[1, 2], [], [3, 3, 4]]
    weight = random_table()
    wanted = functional.embedding_bag(torch.tensor([1, 2, 3, 3, 4]), weight, torch.tensor([0, 2, 2]))
    nested = torch.nested.nested_tensor([torch.tensor(ids, dtype=torch.int64) for ids in lists], layout=torch.jagged)
    assert torch.equal(rt.embedding_bag(nested, weight), rt.embedding_bag(raggrad.Ragged.from_lists(lists), weight))
    torch.testing.assert_close(rt.embedding_bag(nested, weight), wanted)
    ragged = raggrad.Ragged([torch.tensor([0, 2, 2, 5])], torch.tensor([1, 2, 3, 3, 4]))
    torch.testing.assert_close(rt.embedding_bag(ragged, weight), wanted)
    arrays = raggrad.Ragged([np.int64([0, 2, 2, 5])], np.int32([1, 2, 3, 3, 4]))
    torch.testing.assert_close(rt.embedding_bag(arrays, weight), wanted)
    ones = torch.ones(5, dtype=torch.float64)
    torch.testing.assert_close(rt.embedding_bag(arrays, weight, per_sample_weights=ones), wanted)
    nested_ones = torch.nested.nested_tensor([ones[:2], ones[:0], ones[:3]], layout=torch.jagged)
    torch.testing.assert_close(rt.embedding_bag(nested, weight, per_sample_weights=nested_ones), wanted)


def test_nested_tensors_with_gaps() -> None:
    """Ids and weights that lie between the bags belong to none of them."""
    weight, values = random_table(), torch.tensor([1, 2, 3, 4, 5, 6])
    offsets, lengths = torch.tensor([0, 3, 6]), torch.tensor([2, 1])
    ids = torch.nested.nested_tensor_from_jagged(values, offsets, lengths)
    wanted = functional.embedding_bag(torch.tensor([1, 2, 4]), weight, torch.tensor([0, 2]))
    torch.testing.assert_close(rt.embedding_bag(ids, weight), wanted)
    factors = torch.nested.nested_tensor_from_jagged(torch.full((6,), 2.0, dtype=torch.float64), offsets, lengths)
    torch.testing.assert_close(rt.embedding_bag(ids, weight, per_sample_weights=factors), 2 * wanted)


def test_views_that_are_not_contiguous() -> None:
    bags, weight = random_bags(bags=40), random_table(rows=2 * ROWS)[::2].requires_grad_()
    ids, offsets = (torch.stack([t, t], 1)[:, 0] for t in (bags.ids, bags.offsets))
    upstream = torch.randn(bags.count, 1, dtype=torch.float64).expand(-1, weight.shape[1])
    ours, theirs = rt.embedding_bag(ids, weight, offsets), functional.embedding_bag(bags.ids, weight, bags.offsets)
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(
        torch.autograd.grad(ours, weight, upstream), torch.autograd.grad(theirs, weight, upstream)
    )


def test_max_norm_shortens_rows_in_place() -> None:
    bags, weight, same = random_bags(), random_table(), random_table()
    ours = rt.embedding_bag(bags.ids, weight, bags.offsets, max_norm=0.5)
    theirs = functional.embedding_bag(bags.ids, same, bags.offsets, max_norm=0.5)
    torch.testing.assert_close(ours, theirs)
    assert torch.equal(weight, same)
    torch.testing.assert_close(
        rt.embedding(bags.ids, weight, max_norm=0.25), functional.embedding(bags.ids, same, max_norm=0.25)
    )


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("padding_idx", [None, 7, -3])
@pytest.mark.parametrize("ids", [torch.int32, torch.int64])
@pytest.mark.parametrize("dtype", FLOATS)
def test_embedding(dtype: Any, ids: Any, padding_idx: int | None, sparse: bool) -> None:
    numbers = random_bags(ids, bags=40).ids[:60].reshape(4, 5, 3)
    weight = random_table(dtype).requires_grad_()
    ours = rt.embedding(numbers, weight, padding_idx, sparse=sparse)
    theirs = functional.embedding(numbers, weight, padding_idx)
    assert torch.equal(ours, theirs)
    upstream = random_table(dtype, 60, 6, seed=5).reshape(ours.shape)
    (grad,) = torch.autograd.grad(ours, weight, upstream)
    (wanted,) = torch.autograd.grad(theirs, weight, upstream)
    torch.testing.assert_close(grad.to_dense(), wanted, **tolerance(dtype))


@pytest.mark.parametrize("inner", [(), (2,)], ids=["ids", "rows of ids"])
def test_embedding_of_a_nested_tensor(inner: tuple[int, ...]) -> None:
    lists = [torch.ones(size, *inner, dtype=torch.int64) * size for size in (2, 0, 3)]
    nested = torch.nested.nested_tensor(lists, layout=torch.jagged)
    weight, same = random_table().requires_grad_(), random_table().requires_grad_()
    ours, theirs = rt.embedding(nested, weight), functional.embedding(nested, same)
    assert ours.shape == theirs.shape  # with the same ragged dimension
    assert torch.equal(ours.values(), theirs.values())
    ours.values().sin().sum().backward()
    theirs.values().sin().sum().backward()
    torch.testing.assert_close(weight.grad, same.grad)


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3)])
def test_embedding_of_odd_shapes(shape: tuple[int, ...]) -> None:
    weight = random_table().requires_grad_()
    out = rt.embedding(torch.zeros(shape, dtype=torch.int64), weight)
    assert out.shape == (*shape, weight.shape[1])
    (grad,) = torch.autograd.grad(out.sum(), weight)
    assert grad.sum() == out.numel()


def test_the_same_bits_with_any_number_of_threads(threads: None) -> None:
    bags = random_bags(bags=30_000, rows=900)
    weight = random_table(torch.float32, rows=900, width=32)
    upstream = random_table(torch.float32, rows=bags.count, width=32)
    results = []
    for count in (1, 2, 7):
        torch.set_num_threads(count)
        leaf = weight.clone().requires_grad_()
        for padding_idx in (None, 3):
            out = rt.embedding_bag(bags.ids, leaf, bags.offsets, padding_idx=padding_idx, sparse=True)
            (grad,) = torch.autograd.grad(out, leaf, upstream)
            dense = rt.embedding_bag(bags.ids, leaf, bags.offsets, padding_idx=padding_idx)
            results.append((out, grad.indices(), grad.values(), *torch.autograd.grad(dense, leaf, upstream)))
    for later in range(2, 6):
        assert all(torch.equal(a, b) for a, b in zip(results[later % 2], results[later], strict=True))
