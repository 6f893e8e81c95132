"""per_sample_weights in EmbeddingBagCollection: the bits of separate EmbeddingBags, and gradients of the weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import raggrad

from .door import random_bags, random_table, rt, tolerance, torch
from .optimizers import assert_same_bits
from .test_collection import TABLES, features, grad_of, loss_of, make_pair

EVERY_MODE = pytest.mark.parametrize("mode", ["sum", "mean", "sqrtn"])


def weights_for(ids: Any, dtype: Any, seed: int) -> Any:
    """Of both signs, a leaf."""
    return random_table(torch.float64, rows=ids.numel(), width=1, seed=seed).reshape(ids.shape).to(dtype)


def weighted_features(dtype: Any, weighted: set[str]) -> dict[str, Any]:
    """Features of which some have weights."""
    inputs = {}
    for number, (name, bags) in enumerate(features().items()):
        weights = weights_for(bags.ids, dtype, number).requires_grad_()
        inputs[name] = (bags.ids, bags.offsets, weights) if name in weighted else (bags.ids, bags.offsets)
    return inputs


def grads_of_weights(loss: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    """Backward, and the gradients that it leaves in the features' weights."""
    loss.backward()
    weights = {name: feature[2] for name, feature in inputs.items() if len(feature) == 3}
    grads = {name: weight.grad for name, weight in weights.items()}
    for weight in weights.values():
        weight.grad = None
    return grads


def check_same(together: Any, apart: Any, inputs: dict[str, Any], **close: float) -> None:
    """Results and gradients have the same bits, or are as close as is said."""
    close = close or {"rtol": 0.0, "atol": 0.0}
    pooled, wanted = together(inputs), {name: apart[name](*feature) for name, feature in inputs.items()}
    assert list(pooled) == list(inputs)
    torch.testing.assert_close(pooled, wanted, **close)
    ours, theirs = grads_of_weights(loss_of(pooled), inputs), grads_of_weights(loss_of(wanted), inputs)
    torch.testing.assert_close(ours, theirs, **close)
    for name in inputs:
        torch.testing.assert_close(grad_of(together, name), apart[name].weight.grad.to_dense(), **close)


@pytest.mark.parametrize("weighted", [set(TABLES), {"user", "words"}], ids=["all", "some"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@EVERY_MODE
def test_the_bits_of_separate_modules(mode: str, sparse: bool, dtype: Any, weighted: set[str]) -> None:
    together, apart = make_pair(mode=mode, sparse=sparse, dtype=dtype)
    ones_round = mode != "sum" and len(weighted) < len(TABLES)
    close = tolerance(dtype) if ones_round else {}
    check_same(together, apart, weighted_features(dtype, weighted), **close)


@pytest.mark.parametrize("padding_idx", [0, -1])
@EVERY_MODE
def test_padding(mode: str, padding_idx: int) -> None:
    together, apart = make_pair(mode=mode, padding_idx=padding_idx, sparse=True)
    check_same(together, apart, weighted_features(torch.float32, set(TABLES)))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
def test_float32_weights_beside_weights_of_the_tables_type(dtype: Any) -> None:
    together, apart = make_pair(mode="mean", dtype=dtype)
    inputs = weighted_features(torch.float32, set(TABLES))
    ids, offsets, weights = inputs["item"]
    inputs["item"] = ids, offsets, weights.detach().to(dtype).requires_grad_()
    check_same(together, apart, inputs)


@pytest.mark.parametrize("count", [1, 2, 7])
def test_the_bits_of_long_sums_with_any_number_of_threads(count: int, threads: None) -> None:
    torch.set_num_threads(count)
    together, apart = make_pair(mode="sum", sparse=True)
    inputs = {}
    for number, (name, (rows, _)) in enumerate(TABLES.items()):
        ids = torch.arange(40_000).reshape(-1, 8) % rows
        inputs[name] = ids, None, weights_for(ids, torch.float32, number).requires_grad_()
    check_same(together, apart, inputs)


def test_26_tables_of_torch() -> None:
    """Torch has weights in sums only."""
    shapes = {f"c{i}": (3 + 7 * i, (4, 8)[i % 2]) for i in range(26)}
    torch.manual_seed(0)
    stock = torch.nn.ModuleDict(
        {name: torch.nn.EmbeddingBag(*shape, mode="sum", dtype=torch.float64) for name, shape in shapes.items()}
    )
    together = rt.EmbeddingBagCollection(shapes, mode="sum", dtype=torch.float64)
    together.load_tables({name: bag.weight for name, bag in stock.items()})
    inputs = {}
    for number, (name, (rows, _)) in enumerate(shapes.items()):
        bags = random_bags(bags=20, rows=rows, seed=number)
        inputs[name] = bags.ids, bags.offsets, weights_for(bags.ids, torch.float64, number).requires_grad_()
    pooled, wanted = together(inputs), {name: stock[name](*feature) for name, feature in inputs.items()}
    torch.testing.assert_close(pooled, wanted, **tolerance(torch.float64))
    ours, theirs = grads_of_weights(loss_of(pooled), inputs), grads_of_weights(loss_of(wanted), inputs)
    for number, (name, (ids, _, weights)) in enumerate(inputs.items()):
        # Terms of either sign are added in another order: the error is relative to their sizes, not to the sum. The
        # loss has slopes of up to 1 + number.
        slope, table = 1 + number, stock[name].weight.detach()
        check_sums(ours[name], theirs[name], slope * table[ids].abs().sum(1))
        sizes = torch.zeros(len(table), dtype=torch.float64).index_add_(0, ids, weights.detach().abs())
        check_sums(grad_of(together, name), stock[name].weight.grad, slope * sizes.reshape(-1, 1))


def check_sums(ours: Any, theirs: Any, sizes: Any) -> None:
    """Sums of the same terms in two orders; `sizes` are the sums of the terms' magnitudes."""
    assert ((ours - theirs).abs() <= 8 * torch.finfo(ours.dtype).eps * sizes).all()


@pytest.mark.parametrize("padding_idx", [None, 1])
@EVERY_MODE
def test_gradcheck(mode: str, padding_idx: int | None) -> None:
    """By tables and weights, first and second derivatives, where one feature has no weights."""
    collection = rt.EmbeddingBagCollection([(5, 2), (4, 2), (3, 2)], mode, padding_idx=padding_idx, dtype=torch.float64)
    bags = [random_bags(bags=5, rows=rows, seed=rows) for rows in (5, 4, 3)]
    weights = [weights_for(feature.ids, torch.float64, 3).requires_grad_() for feature in bags[:2]]

    def pooled(table: Any, *weights: Any) -> Any:
        inputs = [(b.ids, b.offsets, w) for b, w in zip(bags, (*weights, None), strict=True)]
        return tuple(torch.func.functional_call(collection, {"weight_2": table}, (inputs,)))

    arguments = collection.weight_2, *weights
    assert torch.autograd.gradcheck(pooled, arguments)
    assert torch.autograd.gradgradcheck(pooled, arguments)


def test_forms_of_bags() -> None:
    together, apart = make_pair()
    lists = [[1, 2], [], [6]]
    jagged = torch.nested.nested_tensor([torch.tensor(row, dtype=torch.int64) for row in lists], layout=torch.jagged)
    numbers = torch.tensor([0.5, -2.0, 3.0])
    nested_numbers = torch.nested.nested_tensor([numbers[:2], numbers[:0], numbers[2:]], layout=torch.jagged)
    matrix = torch.tensor([[1, 2], [3, 4]])
    inputs = {
        "user": (matrix, None, torch.tensor([[1.0, -1.0], [0.5, 2.0]])),
        "item": (jagged, None, nested_numbers),
        "words": (raggrad.Ragged.from_lists(lists), None, numbers),
        "shop": (matrix * 0, None, None),
    }
    pooled = together(inputs)
    for name, feature in inputs.items():
        assert_same_bits(pooled[name], apart[name](*feature))


def test_weights_behind_the_last_offset_have_no_part() -> None:
    together, apart = make_pair(include_last_offset=True)
    ids, offsets = torch.tensor([1, 2, 3, 4]), torch.tensor([0, 2, 3])
    inputs = {name: (ids, offsets, torch.ones(4, requires_grad=True)) for name in ("user", "item")}
    check_same(together, apart, inputs)
    together(inputs)["user"].sum().backward()
    assert inputs["user"][2].grad[3] == 0


def test_no_bags() -> None:
    together, apart = make_pair()
    none, weights = torch.zeros(0, dtype=torch.int64), torch.zeros(0, requires_grad=True)
    ids = torch.tensor([1, 2])
    inputs = {"user": (none, none, weights), "item": (ids, torch.tensor([0]), torch.ones(2, requires_grad=True))}
    check_same(together, apart, inputs)


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_compiled_as_one_graph(dynamic: bool) -> None:
    together, apart = make_pair(mode="sum")
    compiled = torch.compile(together, fullgraph=True, dynamic=dynamic, backend="aot_eager")
    inputs = weighted_features(torch.float32, {"user", "words", "item"})
    pooled, wanted = compiled(inputs), {name: apart[name](*feature) for name, feature in inputs.items()}
    assert_same_bits(pooled, wanted)
    assert_same_bits(grads_of_weights(loss_of(pooled), inputs), grads_of_weights(loss_of(wanted), inputs))


@pytest.mark.parametrize("make", [rt.optim.SparseAdam, rt.optim.RowwiseAdagrad])
def test_fused_optimizers(make: Any) -> None:
    fused, separate = make_pair(sparse=True)[0], make_pair(sparse=True)[0]
    one, other = make(fused.parameters(), lr=0.1, fused=True), make(separate.parameters(), lr=0.1)
    inputs = weighted_features(torch.float32, {"user", "words"})
    for module, optimizer in ((fused, one), (separate, other)):
        for _ in range(3):
            optimizer.zero_grad()
            grads_of_weights(loss_of(module(inputs)), inputs)
            optimizer.step()
    for mine, others in zip(fused.parameters(), separate.parameters(), strict=True):
        assert_same_bits(mine.detach(), others.detach())


def test_without_waiting() -> None:
    together, _ = make_pair()
    inputs = weighted_features(torch.float32, {"user", "words"})
    expected = together(inputs)
    with rt.without_waiting():
        with pytest.raises(ValueError, match="per_sample_weights cannot have a gradient where calls must not wait"):
            together(inputs)
        fixed = {name: tuple(part.detach() for part in feature) for name, feature in inputs.items()}
        assert_same_bits(together(fixed), expected)


IDS, OFFSETS = torch.tensor([1, 2]), torch.tensor([0])
BAD: dict[str, tuple[Callable[[], tuple[Any, ...]], str]] = {
    "shape": (lambda: (IDS, OFFSETS, torch.ones(3)), r"expected the shape of input, \(2,\), got \(3,\)"),
    "matrix": (lambda: (IDS[None], None, torch.ones(2)), r"expected the shape of input, \(1, 2\), got \(2,\)"),
    "ragged": (lambda: (raggrad.Ragged.from_lists([[1, 2]]), None, torch.ones(3)), "expected one for each of 2 ids"),
    "integers": (lambda: (IDS, OFFSETS, IDS), r"expected torch.float32, got torch.int64"),
    "float64": (lambda: (IDS, OFFSETS, torch.ones(2).double()), r"expected torch.float32, got torch.float64"),
}


@pytest.mark.parametrize("case", BAD)
def test_errors_name_the_feature(case: str) -> None:
    together, _ = make_pair()
    make, text = BAD[case]
    inputs = {**weighted_features(torch.float32, {"user", "shop"}), "item": make()}
    begin = "^raggrad.torch.EmbeddingBagCollection: feature 'item': per_sample_weights: "
    with pytest.raises(ValueError, match=begin + text):
        together(inputs)


def test_bad_ids_beside_weights() -> None:
    together, _ = make_pair()
    inputs = {**weighted_features(torch.float32, set(TABLES)), "item": (torch.tensor([1, 7]), OFFSETS, torch.ones(2))}
    with pytest.raises(ValueError, match=r"feature 'item': .*input\[1\] == 7 out of range \[0, 7\)"):
        together(inputs)
