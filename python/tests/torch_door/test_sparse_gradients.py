"""Sparse gradients have unique, ascending rows and are marked coalesced."""

from __future__ import annotations

import gc
from typing import Any

from .door import ROWS, random_bags, rt, torch


def rows_of(grad: Any) -> list[int]:
    assert grad.is_sparse
    assert grad.is_coalesced()
    return grad.indices()[0].tolist()


def test_backward_keeps_the_mark() -> None:
    bags, module = random_bags(torch.int32), rt.EmbeddingBag(ROWS, 4, sparse=True)
    module(bags.ids, bags.offsets).sum().backward()
    assert rows_of(module.weight.grad) == sorted(set(bags.ids.tolist()))


def test_two_backward_passes_add_up() -> None:
    first, second = random_bags(seed=1), random_bags(seed=2)
    module = rt.EmbeddingBag(ROWS, 4, sparse=True)
    for bags in (first, second, second):
        module(bags.ids, bags.offsets).sum().backward()
    assert rows_of(module.weight.grad) == sorted({*first.ids.tolist(), *second.ids.tolist()})
    dense = torch.nn.EmbeddingBag.from_pretrained(module.weight.detach(), freeze=False)
    for bags in (first, second, second):
        dense(bags.ids, bags.offsets).sum().backward()
    torch.testing.assert_close(module.weight.grad.to_dense(), dense.weight.grad)


def test_one_table_used_twice_in_a_model() -> None:
    first, second = random_bags(seed=1), random_bags(seed=2)
    module = rt.Embedding(ROWS, 4, sparse=True)
    (module(first.ids).sum() + module(second.ids).pow(2).sum()).backward()
    assert rows_of(module.weight.grad) == sorted({*first.ids.tolist(), *second.ids.tolist()})


def test_functions_keep_the_mark_of_a_leaf() -> None:
    bags = random_bags()
    weight = torch.randn(ROWS, 4, requires_grad=True)
    for _ in range(3):
        weight.grad = None
        rt.embedding_bag(bags.ids, weight, bags.offsets, sparse=True).sum().backward()
        assert rows_of(weight.grad) == sorted(set(bags.ids.tolist()))
    assert len(weight._post_accumulate_grad_hooks) == 1


def test_a_dense_gradient_is_left_alone() -> None:
    bags, module = random_bags(), rt.EmbeddingBag(ROWS, 4, sparse=True)
    module(bags.ids, bags.offsets)
    (module.weight * 2).sum().backward()
    assert not module.weight.grad.is_sparse


def test_torch_optimizers_take_them() -> None:
    bags = random_bags()
    ours, theirs = rt.EmbeddingBag(ROWS, 4, sparse=True), torch.nn.EmbeddingBag(ROWS, 4, sparse=True)
    theirs.load_state_dict(ours.state_dict())
    for module in (ours, theirs):
        optimizer = torch.optim.SparseAdam(list(module.parameters()), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            module(bags.ids, bags.offsets).pow(2).sum().backward()
            optimizer.step()
    torch.testing.assert_close(ours.weight, theirs.weight)


class Calls(torch.utils._python_dispatch.TorchDispatchMode):
    """Notes the operators that are called."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(function.name())
        return function(*args, **(kwargs or {}))


def test_only_gradients_of_others_are_read_again() -> None:
    bags, module = random_bags(torch.int64), rt.EmbeddingBag(ROWS, 4, sparse=True)
    with Calls() as first:
        module(bags.ids, bags.offsets).sum().backward()
    module.weight.grad = None
    with Calls() as second:
        torch.nn.functional.embedding_bag(bags.ids, module.weight, bags.offsets, sparse=True).sum().backward()
    assert "raggrad::ascends" not in first.names
    assert "raggrad::ascends" in second.names
    assert rows_of(module.weight.grad) == sorted(set(bags.ids.tolist()))


def test_a_fused_table_has_no_hook() -> None:
    bags, module = random_bags(), rt.EmbeddingBag(ROWS, 4, sparse=True)
    optimizer = rt.optim.SparseSGD(module.parameters(), fused=True)
    assert not module.weight._post_accumulate_grad_hooks
    del optimizer
    gc.collect()
    module(bags.ids, bags.offsets).sum().backward()
    assert rows_of(module.weight.grad) == sorted(set(bags.ids.tolist()))
