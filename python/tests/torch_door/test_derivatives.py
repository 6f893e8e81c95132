"""Derivatives of first and second order, torch.func, and the checks torch has for operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from .door import random_bags, random_table, rt, torch

BAGS = random_bags(bags=6, rows=8, seed=4)
SEGMENTS = BAGS.segment_ids
TABLE = random_table(rows=8, width=2)
WEIGHTS = random_table(rows=len(BAGS.ids), width=1)[:, 0]

FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "embedding_bag": lambda w: rt.embedding_bag(BAGS.ids, w, BAGS.offsets, padding_idx=2),
    "embedding_bag 2-D": lambda w: rt.embedding_bag(BAGS.ids[:8].reshape(4, 2), w, mode="sqrtn"),
    "weighted": lambda w: rt.embedding_bag(BAGS.ids, w, BAGS.offsets, per_sample_weights=WEIGHTS),
    "embedding": lambda w: rt.embedding(BAGS.ids, w),
    "segment_mean": lambda w: rt.segment_mean(w, torch.tensor([2, 0, 2, 1, 0, 0, 4, 2])),
    "sparse_segment_mean": lambda w: rt.sparse_segment_mean(w, BAGS.ids, SEGMENTS, 6),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradcheck(name: str) -> None:
    weight = TABLE.clone().requires_grad_()
    assert torch.autograd.gradcheck(FUNCTIONS[name], weight, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(FUNCTIONS[name], weight)


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_transforms(name: str) -> None:
    function = FUNCTIONS[name]
    wanted = torch.autograd.functional.jacobian(function, TABLE)
    torch.testing.assert_close(torch.func.jacrev(function)(TABLE), wanted)
    torch.testing.assert_close(torch.func.jacfwd(function)(TABLE), wanted)
    torch.testing.assert_close(torch.func.jvp(function, (TABLE,), (TABLE,))[1], function(TABLE))
    stacked = torch.stack([TABLE, 2 * TABLE])
    torch.testing.assert_close(torch.func.vmap(function)(stacked), torch.stack([function(t) for t in stacked]))
    hessian = torch.func.hessian(lambda w: function(w).pow(2).sum())(TABLE)
    torch.testing.assert_close(hessian, torch.einsum("abij,abkl->ijkl", wanted, wanted) * 2)


@pytest.mark.parametrize("padding_idx", [None, 2])
def test_second_derivative_of_sparse_rows(padding_idx: int | None) -> None:
    upstream = random_table(rows=BAGS.count, width=2).requires_grad_()
    options = ("mean", False, padding_idx, None)
    bag_rows = torch.ops.raggrad.embedding_bag_grad_rows
    rows = torch.ops.raggrad.sparse_segment_grad_rows
    calls = [
        lambda g: bag_rows(g, BAGS.ids, BAGS.offsets, None, 8, *options)[0],
        lambda g: rows(g, BAGS.ids, SEGMENTS, 8, "sqrtn", None)[0],
        lambda g: torch.ops.raggrad.coalesce_rows(g, torch.tensor([3, 1, 3, 0, 1, 7]), 8, None)[0],
    ]
    for call in calls:
        assert torch.autograd.gradcheck(call, upstream)
        assert torch.autograd.gradgradcheck(call, upstream)


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("padding_idx", [None, 2])
def test_derivatives_by_weights(padding_idx: int | None) -> None:
    """By the table, the weights of ids, and both."""
    table, weights = TABLE.clone().requires_grad_(), WEIGHTS.clone().requires_grad_()

    def pooled(table: Any, weights: Any) -> Any:
        return rt.embedding_bag(BAGS.ids, table, BAGS.offsets, per_sample_weights=weights, padding_idx=padding_idx)

    def rows(grad: Any, weights: Any) -> Any:
        options = (weights, 8, "mean", False, padding_idx, None)
        return torch.ops.raggrad.embedding_bag_grad_rows(grad, BAGS.ids, BAGS.offsets, *options)[0]

    assert torch.autograd.gradcheck(pooled, (table, weights), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(pooled, (table, weights))
    upstream = random_table(rows=BAGS.count, width=2).requires_grad_()
    assert torch.autograd.gradcheck(rows, (upstream, weights))
    assert torch.autograd.gradgradcheck(rows, (upstream, weights))
    for transform in (torch.func.jacrev, torch.func.jacfwd):
        ours = transform(pooled, (0, 1))(TABLE, WEIGHTS)
        torch.testing.assert_close(ours, torch.autograd.functional.jacobian(pooled, (TABLE, WEIGHTS)))


# Forms for CUDA graphs (test_waiting.py): plans are numbers, which no compiler may see. Parts of raggrad.dist, whose
# tests call them (python/tests/dist): they run between messages.
NEVER_COMPILED = {
    "check_report",
    "embedding_bag_and_plan",
    "embedding_bag_planned",
    "embedding_bag_planned_grad",
    "embedding_bag_planned_grad_apply_",
    "embedding_bag_planned_grad_rows",
    "order_ids",
    "split_largest",
    "split_round",
    "split_sums",
}
ADAM = "adam", 0.1, 1e-8, 0.9, 0.99, 2
ADAGRAD = "adagrad", 0.1, 1e-8, 0.0, 0.0, 1


def operator_calls() -> dict[str, tuple[Any, ...]]:
    weight = random_table(torch.float32, rows=8, width=2).requires_grad_()
    grad = random_table(torch.float32, rows=BAGS.count, width=2).requires_grad_()
    order = torch.tensor([3, 1, 3, 0, 1, 5])
    places = torch.tensor([[0, 1], [2, 0], [2, 3]])
    weights = WEIGHTS.float().detach().requires_grad_()
    table, m, v = (random_table(torch.float32, rows=8, width=2, seed=seed).abs() for seed in range(3))
    values = grad.detach()
    return {
        "sparse_segment": (weight, BAGS.ids, SEGMENTS, 6, "mean", None),
        "sparse_segment_grad": (grad, BAGS.ids, SEGMENTS, 8, "mean", "fast"),
        "sparse_segment_grad_rows": (grad, BAGS.ids, SEGMENTS, 8, "sum", None),
        "segment": (grad, order, 6, "sqrtn", None),
        "segment_grad": (grad, order, "mean", None),
        "embedding_bag": (weight, BAGS.ids, BAGS.offsets, weights, "mean", False, 3, False, None),
        "embedding_bag_grad": (grad, BAGS.ids, BAGS.offsets, weights, 8, "sum", False, None, None),
        "embedding_bag_grad_rows": (grad, BAGS.ids, BAGS.offsets, None, 8, "mean", False, 3, None),
        "embedding_bag_weights_grad": (grad, weight, BAGS.ids, BAGS.offsets, "mean", False, 3),
        "embedding": (weight, BAGS.ids[:8].reshape(4, 2), 3, False, None),
        "coalesce_rows": (grad, order, 8, None),
        "index_add": (weight, grad, order, 2.0, None),
        "fill_empty_rows": (grad[:3, 0], grad[0, 1], places, [4, 5]),
        "fill_empty_rows_grad": (grad[:5, 0], torch.tensor([4, 0, 2]), None),
        "sparse_slice": (grad[:3, 0], places, [4, 5], [1, 0], [3, 2]),
        "sparse_slice_grad": (grad[:1, 0], places, torch.tensor([[1, 0]]), [4, 5], [1, 0], [3, 2]),
        "ascends": (order,),
        "apply_rows_": (table, m, v, values, order.int(), *ADAM, "fast"),
        "sparse_segment_grad_apply_": (table, m, None, values, BAGS.ids, SEGMENTS, "mean", *ADAGRAD, "sequential"),
        "embedding_bag_grad_apply_": (
            *(table, None, None, values, BAGS.ids, BAGS.offsets, None),
            *("sum", False, 3, "sgd", 0.1, 0.0, 0.0, 0.0, 1, None),
        ),
    }


def test_every_operator_is_called() -> None:
    names = torch._C._dispatch_get_all_op_names()
    ours = {name.removeprefix("raggrad::") for name in names if name.startswith("raggrad::")}
    assert ours == set(operator_calls()) | NEVER_COMPILED


@pytest.mark.parametrize("name", operator_calls())
def test_opcheck(name: str) -> None:
    torch.library.opcheck(getattr(torch.ops.raggrad, name).default, operator_calls()[name])


def test_opcheck_of_a_sparse_gradient() -> None:
    arguments = list(operator_calls()["embedding_bag"])
    arguments[7] = True
    torch.library.opcheck(torch.ops.raggrad.embedding_bag.default, tuple(arguments))
