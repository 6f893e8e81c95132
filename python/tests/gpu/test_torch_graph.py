"""raggrad.torch in CUDA graphs: a whole step, captured once and replayed with other ids."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
rt = pytest.importorskip("raggrad.torch", reason="raggrad was built without raggrad.torch", exc_type=ImportError)

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no GPU")

ROWS, WIDTH, BAGS, IDS = 500, 16, 64, 400
THAT_COUNT = [rt.optim.SparseAdagrad, partial(rt.optim.SparseAdagrad, lr_decay=0.3), rt.optim.SparseAdam]
OPTIMIZERS = [rt.optim.SparseSGD, rt.optim.RowwiseAdagrad, *THAT_COUNT]


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
    for make in OPTIMIZERS:
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


@pytest.mark.parametrize("make", [rt.optim.RowwiseAdagrad, rt.optim.SparseAdam])
def test_collections(make: Any) -> None:
    tables = {f"table{i}": (ROWS, 8 << i % 3) for i in range(26)}

    def run(captured: bool) -> list[Any]:
        torch.manual_seed(0)
        collection = rt.EmbeddingBagCollection(tables).cuda()
        optimizer = make(collection.parameters(), lr=0.1, fused=True)

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


class Trained:
    """A table with a fused optimizer, and its step, which the graph of `captured()` holds."""

    def __init__(self, make: Any, dtype: Any = torch.float32, **options: Any) -> None:
        self.bag = rt.EmbeddingBag(ROWS, WIDTH, mode="mean", _weight=table().to(dtype)).cuda()
        self.optimizer = make(self.bag.parameters(), **{"lr": 0.1, **options}, fused=True)

    def step(self, ids: Any, offsets: Any) -> None:
        self.bag(ids, offsets).tanh().sum().backward()
        self.optimizer.step()

    def steps(self, *seeds: int) -> None:
        for seed in seeds:
            self.step(*(tensor.cuda() for tensor in batch(seed)))

    def captured(self) -> Captured:
        return Captured(self.step)  # its warm-up is the step with batch 0

    def result(self) -> Any:
        rt.check()
        return self.bag.weight.detach().cpu(), copy.deepcopy(self.optimizer.state_dict()["state"])


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("make", OPTIMIZERS)
def test_other_types_and_maximize(make: Any, dtype: Any) -> None:
    replayed, expected = (Trained(make, dtype, maximize=True) for _ in range(2))
    captured = replayed.captured()
    for seed in range(1, 5):
        captured.replay(*batch(seed))
    expected.steps(*range(5))
    torch.testing.assert_close(replayed.result(), expected.result(), rtol=0, atol=0)


@pytest.mark.parametrize("make", THAT_COUNT)
def test_steps_in_and_outside_of_graphs_are_counted(make: Any) -> None:
    replayed, expected = Trained(make), Trained(make)
    replayed.steps(1)
    first = replayed.captured()  # step 0
    replayed.steps(2)  # before any replay
    second = replayed.captured()  # step 0
    for seed in (3, 4):
        first.replay(*batch(seed))
        second.replay(*batch(seed))
    replayed.steps(5)
    first.replay(*batch(6))
    expected.steps(1, 0, 2, 0, 3, 3, 4, 4, 5, 6)
    torch.testing.assert_close(replayed.result(), expected.result(), rtol=0, atol=0)
    assert int(replayed.optimizer.state_dict()["state"][0]["step"]) == 10
    assert int(copy.deepcopy(replayed.optimizer).state_dict()["state"][0]["step"]) == 10


@pytest.mark.parametrize("make", THAT_COUNT)
def test_steps_are_counted_where_step_is_not_in_the_graph(make: Any) -> None:
    replayed, expected = Trained(make), Trained(make)
    replayed.steps(1)
    captured = Captured(lambda ids, offsets: replayed.bag(ids, offsets).tanh().sum().backward())
    replayed.optimizer.step()  # of the warm-up
    for seed in (2, 3, 4):
        captured.replay(*batch(seed))
        replayed.optimizer.step()
    expected.steps(1, 0, 2, 3, 4)
    torch.testing.assert_close(replayed.result(), expected.result(), rtol=0, atol=0)


@pytest.mark.parametrize("make", [*THAT_COUNT, rt.optim.RowwiseAdagrad])
def test_a_graph_goes_on_with_a_checkpoint(make: Any) -> None:
    replayed, expected = Trained(make), Trained(make)
    expected.steps(0, 1)
    captured = replayed.captured()
    for seed in range(5, 9):
        captured.replay(*batch(seed))
    replayed.optimizer.load_state_dict(copy.deepcopy(expected.optimizer.state_dict()))
    replayed.bag.load_state_dict(expected.bag.state_dict())
    for seed in (2, 3):
        captured.replay(*batch(seed))
    expected.steps(2, 3)
    torch.testing.assert_close(replayed.result(), expected.result(), rtol=0, atol=0)


@pytest.mark.parametrize("make", OPTIMIZERS)
def test_a_learning_rate_on_the_gpu_can_change(make: Any) -> None:
    replayed, expected = (Trained(make, lr=torch.tensor(0.1, device="cuda")) for _ in range(2))
    captured = replayed.captured()
    expected.steps(0)
    for seed in range(1, 5):
        for trained in (replayed, expected):
            trained.optimizer.param_groups[0]["lr"].mul_(0.7)
        captured.replay(*batch(seed))
        expected.steps(seed)
    torch.testing.assert_close(replayed.result(), expected.result(), rtol=0, atol=0)


def test_refused_in_a_capture() -> None:
    bag = rt.EmbeddingBag(ROWS, WIDTH, sparse=True, _weight=table()).cuda()
    with pytest.raises(ValueError, match="use sparse=False or an optimizer with fused=True"):
        Captured(lambda ids, offsets: bag(ids, offsets).sum().backward())
    torch.cuda.synchronize()
    with pytest.raises(RuntimeError, match=r"SparseAdam: betas: expected at most 0\.99996 in a CUDA graph"):
        Trained(rt.optim.SparseAdam, betas=(0.9, 0.99999)).captured()
    torch.cuda.synchronize()
    ids, offsets = (tensor.cuda() for tensor in batch(0))
    trained = Trained(rt.optim.SparseAdam)
    with (
        pytest.raises(RuntimeError, match="SparseAdam: expected fused=True and one step before"),
        torch.cuda.graph(torch.cuda.CUDAGraph()),
    ):
        trained.step(ids, offsets)
    torch.cuda.synchronize()


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
