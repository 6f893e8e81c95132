"""unbatch_grad: rows that several threads bring, joined for one of them, with gradients across threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from raggrad import batching, errors

from .door import FLOATS, random_table, rt, torch

NO_INDEX = torch.zeros(0, 3, dtype=torch.int64)


def index_of(*keys: int) -> Any:
    return torch.tensor([[key, row, row + 1] for row, key in enumerate(keys)])


def bring(key: int, grad: Any, **more: Any) -> Any:
    return rt.unbatch_grad(grad[:0].detach(), NO_INDEX, grad, key, **more)


def own(key: int, grad: Any, *keys: int, **more: Any) -> Any:
    return rt.unbatch_grad(grad.new_zeros(len(keys), 1), index_of(*keys), grad, torch.tensor(key), **more)


@pytest.fixture(autouse=True)
def nothing_stays_behind() -> Any:
    yield
    assert not rt.batching._pieces


@pytest.mark.parametrize("dtype", [*FLOATS, torch.int32, torch.bool], ids=str)
def test_pieces_in_the_order_of_the_index(dtype: Any) -> None:
    one, two = random_table(rows=2, width=3).to(dtype), random_table(rows=1, width=3, seed=2).to(dtype)
    nothing = bring(8, two)
    assert (nothing.shape, nothing.dtype) == ((0, 3), dtype)
    joined = own(7, one, 8, 7)
    assert joined.dtype == dtype
    assert torch.equal(joined, torch.cat([two, one]))


def test_views_that_are_not_contiguous() -> None:
    grad = random_table(rows=3, width=4).t()
    assert torch.equal(own(1, grad, 1), grad)


@pytest.mark.parametrize("first", ["owner", "others"])
def test_gradients_of_other_threads(first: str) -> None:
    """An owner that comes first waits; the graph reaches the gradients of all calls either way."""
    pieces = [random_table(rows=rows, width=2, seed=rows).requires_grad_() for rows in (1, 2, 3)]
    calls: list[Callable[[], Any]] = [
        lambda: own(0, pieces[0] * 2, 0, 1, 2, shared_name=first),
        lambda: bring(1, pieces[1] * 3, shared_name=first),
        lambda: bring(2, pieces[2], shared_name=first),
    ]
    started = threading.Event()

    def owner() -> Any:
        started.set()
        return calls[0]()

    with ThreadPoolExecutor() as pool:
        if first == "owner":
            joined = pool.submit(owner)
            started.wait()
        for call in calls[1:]:
            assert pool.submit(call).result().shape == (0, 2)
        result = joined.result() if first == "owner" else owner()
    upstream = random_table(rows=6, width=2, seed=9)
    grads = torch.autograd.grad(result, pieces, upstream)
    for grad, part, factor in zip(grads, upstream.split([1, 2, 3]), (2, 3, 1), strict=True):
        assert torch.equal(grad, part * factor)


def test_gradcheck() -> None:
    def joined(one: Any, two: Any) -> Any:
        bring(2, two)
        return own(1, one, 2, 1)

    pieces = [random_table(rows=rows, width=2, seed=rows).requires_grad_() for rows in (1, 2)]
    assert torch.autograd.gradcheck(joined, pieces)
    assert torch.autograd.gradgradcheck(joined, pieces)


def test_compiled_code_calls_it_between_its_graphs() -> None:
    def function(grad: Any) -> Any:
        return own(1, grad * 2, 1) + 1

    grad = random_table(rows=1, width=2)
    assert torch.equal(torch.compile(function, backend="eager")(grad), grad * 2 + 1)
    torch._dynamo.reset()
    with pytest.raises(RuntimeError, match="waits for other threads"):
        torch.compile(function, backend="eager", fullgraph=True)(grad)


def test_errors_name_the_function() -> None:
    grad = torch.ones(1, 2, requires_grad=True)
    with pytest.raises(errors.DeadlineExceededError, match=r"^raggrad.torch.unbatch_grad: "):
        own(1, grad, 1, 2, timeout_micros=100)
    token = batching.Cancellation()
    token.cancel()
    with pytest.raises(errors.CancelledError, match=r"^raggrad.torch.unbatch_grad: "):
        own(1, grad, 1, 2, cancellation=token)
    with pytest.raises(ValueError, match=r"^raggrad.torch.unbatch_grad: .*grad"):
        rt.unbatch_grad(grad[:0].detach(), NO_INDEX, torch.tensor(1.0), 1)
    with pytest.raises(ValueError, match=r"^raggrad.torch.unbatch_grad: .*batch_index"):
        rt.unbatch_grad(torch.ones(1, 1), torch.ones(1, 2, dtype=torch.int64), grad, 1)


def test_a_second_piece_is_refused_and_the_first_one_kept() -> None:
    first, second = (torch.full((1, 2), value, requires_grad=True) for value in (1.0, 2.0))
    bring(1, first)
    with pytest.raises(ValueError, match="Two runs"):
        bring(1, second)
    own(2, torch.ones(1, 2), 1, 2).sum().backward()
    assert first.grad is not None and second.grad is None
