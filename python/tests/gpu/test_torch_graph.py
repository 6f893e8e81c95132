"""raggrad.torch in CUDA graphs: a whole step, captured once and replayed with other ids."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
rt = pytest.importorskip("raggrad.torch", reason="raggrad was built without raggrad.torch", exc_type=ImportError)

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no GPU")

ROWS, WIDTH, BAGS, IDS = 500, 16, 64, 400
OPTIMIZERS = [rt.optim.SparseSGD, rt.optim.SparseAdagrad, rt.optim.RowwiseAdagrad]


def batch(seed: int) -> tuple[Any, Any]:
    """Ids and offsets, always of the same sizes."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, ROWS, (IDS,), generator=generator)
    ids[torch.rand(IDS, generator=generator) < 0.3] = 7
    offsets = torch.randint(0, IDS, (BAGS,), generator=generator).sort().values
    offsets[0] = 0
    return ids, offsets


def table() -> Any:
    return torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(1))


class Captured:
    """A step whose graph reads its ids and offsets from `ids` and `offsets`."""

    def __init__(self, step: Any) -> None:
        self.ids, self.offsets = (tensor.cuda() for tensor in batch(0))
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            step(self.ids, self.offsets)
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            step(self.ids, self.offsets)

    def replay(self, ids: Any, offsets: Any) -> None:
        self.ids.copy_(ids)
        self.offsets.copy_(offsets)
        self.graph.replay()


def trained(make: Any, captured: bool, steps: int = 6) -> Any:
    bag = rt.EmbeddingBag(ROWS, WIDTH, mode="mean", _weight=table()).cuda()
    optimizer = make(bag.parameters(), lr=0.1, fused=True)

    def step(ids: Any, offsets: Any) -> None:
        bag(ids, offsets).tanh().sum().backward()
        optimizer.step()

    if captured:
        run = Captured(step).replay  # its warm-up is the step with batch 0
        first = 1
    else:
        run, first = lambda ids, offsets: step(ids.cuda(), offsets.cuda()), 0
    for seed in range(first, steps):
        run(*batch(seed))
    rt.check()
    return bag.weight.detach().cpu()


@pytest.mark.parametrize("make", OPTIMIZERS)
def test_replays_have_the_bits_of_eager_steps(make: Any) -> None:
    eager = trained(make, captured=False)
    assert not torch.equal(eager, table())
    torch.testing.assert_close(trained(make, captured=True), eager, rtol=0, atol=0)


def test_without_waiting_has_the_bits_of_eager_steps() -> None:
    for make in (*OPTIMIZERS, rt.optim.SparseAdam):
        eager = trained(make, captured=False)
        with rt.without_waiting():
            torch.testing.assert_close(trained(make, captured=False), eager, rtol=0, atol=0)


def test_a_dense_gradient() -> None:
    weight = table().cuda().requires_grad_()
    weight.grad = torch.zeros_like(weight)

    def step(ids: Any, offsets: Any) -> None:
        weight.grad.zero_()
        rt.embedding_bag(ids, weight, offsets, mode="sum").tanh().sum().backward()

    captured = Captured(step)
    for seed in range(1, 4):
        ids, offsets = batch(seed)
        captured.replay(ids, offsets)
        replayed = weight.grad.clone()
        step(ids.cuda(), offsets.cuda())
        torch.testing.assert_close(replayed, weight.grad, rtol=0, atol=0)
    rt.check()


def test_collections() -> None:
    tables = {"a": (ROWS, 8), "b": (ROWS, 16), "c": (ROWS, 8)}

    def run(captured: bool) -> list[Any]:
        torch.manual_seed(0)
        collection = rt.EmbeddingBagCollection(tables).cuda()
        optimizer = rt.optim.RowwiseAdagrad(collection.parameters(), lr=0.1, fused=True)

        def step(ids: Any, offsets: Any) -> None:
            pooled = collection(dict.fromkeys(tables, (ids, offsets)))
            sum(rows.tanh().sum() for rows in pooled.values()).backward()
            optimizer.step()

        replay = Captured(step).replay if captured else lambda ids, offsets: step(ids.cuda(), offsets.cuda())
        for seed in range(1 if captured else 0, 4):
            replay(*batch(seed))
        rt.check()
        return [weight.detach().cpu() for weight in collection.parameters()]

    torch.testing.assert_close(run(True), run(False), rtol=0, atol=0)


@pytest.mark.parametrize("bad", [-1, ROWS, 2**40])
@pytest.mark.parametrize("make", OPTIMIZERS)
def test_check_tells_of_bad_ids_and_the_table_is_as_before(make: Any, bad: int) -> None:
    bag = rt.EmbeddingBag(ROWS, WIDTH, mode="mean", _weight=table()).cuda()
    optimizer = make(bag.parameters(), lr=0.1, fused=True)

    def step(ids: Any, offsets: Any) -> None:
        bag(ids, offsets).sum().backward()
        optimizer.step()

    captured = Captured(step)
    before = bag.weight.detach().clone()
    ids, offsets = batch(1)
    ids[5] = bad
    captured.replay(ids, offsets)
    torch.testing.assert_close(bag.weight.detach(), before, rtol=0, atol=0)
    ids, offsets = batch(2)
    captured.replay(ids, offsets)  # a good step does not hide the bad one
    assert not torch.equal(bag.weight, before)
    with pytest.raises(ValueError, match=rf"check: .*{bad} out of range.*input\[5\]"):
        rt.check()
    rt.check()
    offsets[3] = IDS + 1
    captured.replay(ids, offsets)
    with pytest.raises(ValueError, match=r"check: "):
        rt.check()
    captured.replay(*batch(3))
    rt.check()


def test_adam_and_sparse_gradients_are_refused_in_a_capture() -> None:
    bag = rt.EmbeddingBag(ROWS, WIDTH, sparse=True, _weight=table()).cuda()
    with pytest.raises(ValueError, match="use sparse=False or an optimizer with fused=True"):
        Captured(lambda ids, offsets: bag(ids, offsets).sum().backward())
    torch.cuda.synchronize()
    optimizer = rt.optim.SparseAdam(bag.parameters(), fused=True)
    with pytest.raises(RuntimeError, match="SparseAdam: a CUDA graph would repeat the rate"):
        Captured(lambda ids, offsets: bag(ids, offsets).sum().backward())
    torch.cuda.synchronize()
    assert optimizer is not None


def test_memory_of_plans_goes_back() -> None:
    weight = table().cuda().requires_grad_()
    ids, offsets = (tensor.cuda() for tensor in batch(0))
    with rt.without_waiting():
        for _ in range(3):
            (grad,) = torch.autograd.grad(rt.embedding_bag(ids, weight, offsets).sum(), weight)
        del grad
        before = torch.cuda.memory_allocated()
        for _ in range(100):
            (grad,) = torch.autograd.grad(rt.embedding_bag(ids, weight, offsets).sum(), weight)
        del grad
    assert torch.cuda.memory_allocated() == before
