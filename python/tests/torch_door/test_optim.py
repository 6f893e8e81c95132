"""rt.optim: torch's optimizers on sparse gradients, row by row."""

from __future__ import annotations

from typing import Any

import pytest

from .door import FLOATS, ROWS, WIDTH, random_bags, random_table, rt, torch
from .optimizers import PAIRS, assert_same_bits, coo, every_optimizer, parameter, random_grad, states_of, train

OPTIONS = [
    ("SGD", {"lr": 0.3}),
    ("SGD", {"lr": 0.3, "maximize": True}),
    ("Adagrad", {}),
    ("Adagrad", {"lr": 0.1, "lr_decay": 0.2, "initial_accumulator_value": 0.5, "eps": 1e-3}),
    ("Adagrad", {"lr": 0.1, "maximize": True}),
    ("SparseAdam", {}),
    ("SparseAdam", {"lr": 0.05, "betas": (0.5, 0.8), "eps": 1e-4}),
    ("SparseAdam", {"lr": 0.05, "maximize": True}),
]


@pytest.mark.parametrize(("name", "options"), OPTIONS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_fifty_steps_against_torch(name: str, options: dict[str, Any], dtype: Any) -> None:
    """Weights and states differ in the last bits: torch multiplies by the rate after it divides, and may fuse."""
    mine, stock = parameter(dtype), parameter(dtype)
    ours, theirs = PAIRS[name].ours([mine], **options), PAIRS[name].theirs([stock], **options)
    train(ours, mine)
    train(theirs, stock)
    eps = torch.finfo(dtype).eps
    close = {"rtol": 64 * eps, "atol": 64 * eps}  # 50 steps of about one rounding each
    torch.testing.assert_close(mine, stock, **close)
    assert not torch.equal(mine, random_table(dtype))
    for my_state, state in zip(states_of(ours), states_of(theirs), strict=name != "SGD"):
        assert set(my_state) == set(state)
        for key, value in state.items():
            torch.testing.assert_close(my_state[key], value, **close)


@every_optimizer
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_short_floats_have_states_of_float32(name: str, dtype: Any) -> None:
    """The table is rounded once a step, so it stays within some roundings of a table of float64."""
    mine, exact = parameter(dtype), torch.nn.Parameter(random_table(dtype).double())
    ours, theirs = PAIRS[name].ours([mine], lr=0.01), PAIRS[name].theirs([exact], lr=0.01)
    for step in range(50):
        mine.grad = random_grad(mine, step)
        exact.grad = random_grad(mine, step).coalesce().double() if name != "SGD" else random_grad(mine, step).double()
        ours.step()
        theirs.step()
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(mine.double(), exact.detach(), rtol=25 * eps, atol=25 * eps)
    for state in states_of(ours):
        assert all(value.dtype == torch.float32 for value in state.values() if isinstance(value, torch.Tensor))


@every_optimizer
@pytest.mark.parametrize("dtype", FLOATS)
def test_the_same_bits_on_every_run_and_with_any_threads(name: str, dtype: Any, threads: None) -> None:
    def run(count: int) -> Any:
        torch.set_num_threads(count)
        table = torch.nn.Parameter(random_table(dtype, rows=3000, width=33))
        optimizer = PAIRS[name].ours([table], lr=0.1)
        for step in range(3):
            table.grad = random_grad(table, step, count=20_000)
            optimizer.step()
        return table.detach(), states_of(optimizer)

    first = run(1)
    for count in (1, 2, 7):
        assert_same_bits(run(count), first)


@every_optimizer
@pytest.mark.parametrize("dtype", FLOATS)
def test_coalesced_and_uncoalesced_gradients(name: str, dtype: Any) -> None:
    """The optimizer adds up repeated rows in the order of the input, rounded once, like raggrad.torch's gradients."""
    one, other = parameter(dtype), parameter(dtype)
    ours, again = PAIRS[name].ours([one], lr=0.1), PAIRS[name].ours([other], lr=0.1)
    grad = random_grad(one, 0)
    values, rows = torch.ops.raggrad.coalesce_rows(grad._values(), grad._indices()[0], ROWS, None)
    one.grad = grad
    other.grad = torch.sparse_coo_tensor(rows[None], values, one.shape, is_coalesced=True)
    ours.step()
    again.step()
    assert_same_bits(one.detach(), other.detach())


@every_optimizer
@pytest.mark.parametrize("module", [rt.EmbeddingBag, torch.nn.EmbeddingBag], ids=["raggrad", "torch"])
@pytest.mark.parametrize("ids", [torch.int32, torch.int64])
def test_a_model_with_either_module(name: str, module: Any, ids: Any) -> None:
    def run(bag: Any, optimizer: Any) -> Any:
        for step in range(10):
            bags = random_bags(ids, seed=step)
            optimizer.zero_grad()
            bag(bags.ids, bags.offsets).tanh().sum().backward()
            optimizer.step()
        return bag.weight.detach()

    def new(kind: Any) -> Any:
        return kind(ROWS, WIDTH, sparse=True, _weight=random_table())

    ours, theirs = new(module), new(torch.nn.EmbeddingBag)
    mine = run(ours, PAIRS[name].ours(ours.parameters(), lr=0.1))
    torch.testing.assert_close(mine, run(theirs, PAIRS[name].theirs(theirs.parameters(), lr=0.1)))


@every_optimizer
def test_only_rows_of_the_gradient_change(name: str) -> None:
    table = parameter()
    before = table.detach().clone()
    table.grad = coo([7, 3, 7], torch.ones(3, WIDTH), table)
    PAIRS[name].ours([table], lr=0.1).step()
    changed = (table.detach() != before).any(1).nonzero().flatten()
    assert changed.tolist() == [3, 7]


@every_optimizer
def test_an_empty_gradient_counts_as_a_step(name: str) -> None:
    mine, stock = parameter(), parameter()
    ours, theirs = PAIRS[name].ours([mine], lr=0.1), PAIRS[name].theirs([stock], lr=0.1)
    for table, optimizer in ((mine, ours), (stock, theirs)):
        table.grad = coo(torch.zeros(0, dtype=torch.int64), torch.zeros(0, WIDTH), table)
        optimizer.step()
        assert torch.equal(table, random_table(torch.float32))
        train(optimizer, table, range(2))
    torch.testing.assert_close(mine, stock)


@every_optimizer
def test_parameters_without_a_gradient_are_left_alone(name: str) -> None:
    table = parameter()
    optimizer = PAIRS[name].ours([table], lr=0.1)
    optimizer.step()
    assert torch.equal(table, random_table(torch.float32))
    assert states_of(optimizer) == []


@every_optimizer
@pytest.mark.parametrize("operator", ["optimizer", "torch.ops"])
def test_versions_are_bumped(name: str, operator: str) -> None:
    """A graph that has saved the old weights refuses to go back through the new ones."""
    table = parameter()
    loss = (table * table).sum()
    if operator == "optimizer":
        table.grad = random_grad(table, 0)
        optimizer = PAIRS[name].ours([table], lr=0.1)
        optimizer.step()
        before = [value._version for value in optimizer.state[table].values() if isinstance(value, torch.Tensor)]
        optimizer.step()
        after = [value._version for value in optimizer.state[table].values() if isinstance(value, torch.Tensor)]
        assert all(old < new for old, new in zip(before, after, strict=True))
    else:
        with torch.no_grad():
            rows = torch.ones(1, WIDTH), torch.tensor([0])
            torch.ops.raggrad.apply_rows_(table, None, None, *rows, "sgd", 0.1, 0, 0, 0, 1, None)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_rows_with_the_shape_of_indices() -> None:
    rows = torch.tensor([[3, 1, 3]])
    one, other, values = random_table(), random_table(), random_table()[:3]
    for table, indices in ((one, rows), (other, rows[0])):
        torch.ops.raggrad.apply_rows_(table, None, None, values, indices, "sgd", 0.1, 0.0, 0.0, 0.0, 1, None)
    assert_same_bits(one, other)
    with pytest.raises(RuntimeError, match=r"expected rank 1, got shape \[3,1\]"):
        torch.ops.raggrad.apply_rows_(one, None, None, values, rows.T, "sgd", 0.1, 0.0, 0.0, 0.0, 1, None)


@every_optimizer
def test_groups_and_schedulers(name: str) -> None:
    def run(make: Any) -> list[Any]:
        tables = [parameter(seed=1), parameter(seed=2)]
        optimizer = make([{"params": tables[:1]}, {"params": tables[1:], "lr": 0.02}], lr=0.1)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)
        for step in range(9):
            for table in tables:
                table.grad = random_grad(table, step)
            optimizer.step()
            schedule.step()
        assert [group["lr"] for group in optimizer.param_groups] == pytest.approx([0.1 / 16, 0.02 / 16])
        return [table.detach() for table in tables]

    torch.testing.assert_close(run(PAIRS[name].ours), run(PAIRS[name].theirs))


@every_optimizer
def test_a_group_that_comes_later_and_a_rate_in_a_tensor(name: str) -> None:
    first, second = parameter(seed=1), parameter(seed=2)
    optimizer = PAIRS[name].ours([first], lr=torch.tensor(0.1))
    optimizer.add_param_group({"params": [second], "maximize": True})
    for table in (first, second):
        table.grad = coo([0], torch.ones(1, WIDTH), table)
    optimizer.step()
    assert (first[0] < random_table(torch.float32, seed=1)[0]).all()
    assert (second[0] > random_table(torch.float32, seed=2)[0]).all()


@every_optimizer
def test_closures(name: str) -> None:
    bag = rt.EmbeddingBag(ROWS, WIDTH, sparse=True)
    optimizer = PAIRS[name].ours(bag.parameters(), lr=0.1)
    bags = random_bags()

    def closure() -> Any:
        optimizer.zero_grad()
        loss = bag(bags.ids, bags.offsets).pow(2).sum()
        loss.backward()
        return loss

    losses = [optimizer.step(closure).item() for _ in range(3)]
    assert losses[0] > losses[1] > losses[2]


@pytest.mark.parametrize("shape", [(ROWS,), (ROWS, 2, 3), (ROWS, 0)])
@every_optimizer
def test_tables_of_other_ranks(name: str, shape: tuple[int, ...]) -> None:
    mine, stock = (torch.nn.Parameter(torch.zeros(shape)) for _ in range(2))
    train(PAIRS[name].ours([mine], lr=0.1), mine, range(3))
    if 0 not in shape:
        train(PAIRS[name].theirs([stock], lr=0.1), stock, range(3))
    torch.testing.assert_close(mine, stock)
