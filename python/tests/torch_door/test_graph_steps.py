"""Steps in CUDA graphs whose rates depend on their number. Here a CPU does what a replay does: the same calls again,
whose numbers come from tensors. python/tests/gpu captures them.
"""

from __future__ import annotations

import contextlib
import copy
import math
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from .door import FLOATS, ROWS, WIDTH, random_bags, random_table, rt, torch
from .optimizers import assert_same_bits, random_grad, states_of

graph_steps = pytest.importorskip("raggrad.torch._optimizers.graph_steps")
row_optimizer = pytest.importorskip("raggrad.torch._optimizers.row_optimizer")

CPU = torch.device("cpu")
OPTIMIZERS = {
    "SGD": (rt.optim.SparseSGD, {}),
    "Adagrad": (rt.optim.SparseAdagrad, {}),
    "Adagrad, lr_decay": (rt.optim.SparseAdagrad, {"lr_decay": 0.3}),
    "RowwiseAdagrad": (rt.optim.RowwiseAdagrad, {}),
    "SparseAdam": (rt.optim.SparseAdam, {}),
    "SparseAdam, betas": (rt.optim.SparseAdam, {"betas": (0.5, 0.6)}),  # whose rates soon stay the same
}
every_optimizer = pytest.mark.parametrize(("make", "options"), OPTIMIZERS.values(), ids=OPTIMIZERS)
that_counts = pytest.mark.parametrize("name", ["Adagrad", "Adagrad, lr_decay", "SparseAdam"])


class Graphs:
    """Whether steps are in a graph."""

    def __init__(self) -> None:
        self.replaying = False

    @contextlib.contextmanager
    def replay(self) -> Iterator[None]:
        self.replaying = True
        with rt.without_waiting():
            yield
        self.replaying = False


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> Graphs:
    graphs = Graphs()
    monkeypatch.setattr(row_optimizer, "can_be_captured", lambda _: True)
    monkeypatch.setattr(row_optimizer, "being_captured", lambda _: graphs.replaying)
    return graphs


class Trained:
    """Two tables in two groups, one of which is updated in every second step."""

    def __init__(self, make: Callable[..., Any], options: dict[str, Any], dtype: Any = torch.float32) -> None:
        self.bags = [rt.EmbeddingBag(ROWS, WIDTH, _weight=random_table(dtype, seed=seed)) for seed in range(2)]
        groups = [{"params": [self.bags[0].weight]}, {"params": [self.bags[1].weight], "lr": 0.03}]
        self.optimizer = make(groups, **{"lr": 0.1, **options}, fused=True)

    def step(self, number: int) -> None:
        ids, offsets = random_bags(seed=number)[:2]
        sum(bag(ids, offsets).tanh().sum() for bag in self.bags[: 1 + number % 2]).backward()
        self.bags[0](ids[:4].reshape(2, 2)).sum().backward()
        self.optimizer.step()

    def result(self) -> Any:
        return [bag.weight.detach() for bag in self.bags], states_of(self.optimizer)


@pytest.mark.parametrize("betas", [(0.9, 0.999), (0.0, 0.0), (0.5, 0.9), (0.99, 0.9), (0.999, 0.9999), (1e-30, 0.1)])
def test_the_table_has_the_rates_of_every_step(betas: tuple[float, float]) -> None:
    rates = graph_steps.adam_rates(*betas, CPU)
    numbers = rates.tolist()
    assert numbers[-1] == 1.0
    for step in range(1, 50_001):
        expected = math.sqrt(1 - betas[1] ** step) / (1 - betas[0] ** step)
        assert numbers[min(step, len(numbers)) - 1] == expected, step
    assert graph_steps.adam_rates(*betas, CPU) is rates


def test_tables_have_a_limit() -> None:
    largest = graph_steps.LARGEST_BETA
    assert len(graph_steps.adam_rates(0.9, largest, CPU)) <= graph_steps.MAX_RATES
    assert graph_steps.adam_rates(0.9, largest + 1e-5, CPU) is None
    assert graph_steps.adam_rates(math.nextafter(1.0, 0.0), 0.9, CPU) is None


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("rule", ["sgd", "adagrad", "rowwise_adagrad", "adam"])
def test_a_rate_in_a_tensor_has_the_bits_of_a_number(rule: str, dtype: Any) -> None:
    state_type = torch.float64 if dtype == torch.float64 else torch.float32
    grad = random_grad(random_table(dtype), seed=1)
    step, lr = 7, 0.123456789

    def updated(number: float, **rate: Any) -> Any:
        table, first, second = random_table(dtype), *(torch.ones(ROWS, WIDTH, dtype=state_type) for _ in range(2))
        first = first[:, 0].contiguous() if rule == "rowwise_adagrad" else first
        constants = 1e-8, 0.9, 0.999, step
        rows = grad._values(), grad._indices()[0]
        torch.ops.raggrad.apply_rows_(table, first, second, *rows, rule, number, *constants, None, **rate)
        return table, first, second

    rate = torch.tensor([lr], dtype=torch.float64)
    if rule == "adam":
        rate *= graph_steps.adam_rates(0.9, 0.999, CPU)[step - 1]
    assert_same_bits(updated(0.0, rate=rate), updated(lr))
    assert_same_bits(updated(lr, rate=None), updated(lr))


@pytest.mark.parametrize("rate", [torch.ones(1), torch.ones(2, dtype=torch.float64), torch.ones(0).double()])
def test_bad_rates(rate: Any) -> None:
    table, values, rows = torch.ones(2, 3), torch.ones(1, 3), torch.tensor([1])
    with pytest.raises(RuntimeError, match=r"apply_rows_: .*rate"):
        torch.ops.raggrad.apply_rows_(table, None, None, values, rows, "sgd", 0.1, 0, 0, 0, 1, None, rate=rate)
    assert_same_bits(table, torch.ones(2, 3))


@every_optimizer
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("maximize", [False, True])
def test_replays_have_the_bits_of_other_steps(
    graphs: Graphs, make: Any, options: dict[str, Any], dtype: Any, maximize: bool
) -> None:
    replayed, expected = (Trained(make, {**options, "maximize": maximize}, dtype) for _ in range(2))
    for number in (1, 0, 1):
        replayed.step(number)
    with graphs.replay():
        for number in range(20):
            replayed.step(number)
    replayed.step(5)
    with graphs.replay():
        replayed.step(6)
    for number in (1, 0, 1, *range(20), 5, 6):
        expected.step(number)
    assert_same_bits(replayed.result(), expected.result())


@every_optimizer
def test_a_learning_rate_in_a_tensor_of_the_device_can_change(
    graphs: Graphs, make: Any, options: dict[str, Any]
) -> None:
    replayed, expected = (Trained(make, {**options, "lr": torch.tensor(0.1)}) for _ in range(2))
    for trained in (replayed, expected):
        trained.step(1)
        with graphs.replay() if trained is replayed else contextlib.nullcontext():
            for number in range(6):
                trained.step(number)
                trained.optimizer.param_groups[0]["lr"].mul_(0.7)
    assert_same_bits(replayed.result(), expected.result())


@that_counts
def test_steps_are_counted_where_step_is_not_in_the_graph(graphs: Graphs, name: str) -> None:
    make, options = OPTIMIZERS[name]
    replayed, expected = Trained(make, options), Trained(make, options)
    for trained in (replayed, expected):
        trained.step(1)
        trained.bags[0](*random_bags()[:2]).sum().backward()  # not counted before the capture
        for number in range(4):
            with graphs.replay() if trained is replayed else contextlib.nullcontext():
                trained.bags[0](*random_bags(seed=number)[:2]).sum().backward()
            trained.optimizer.step()
            trained.optimizer.step()  # nothing happened before it
    assert_same_bits(replayed.result(), expected.result())


@that_counts
def test_checkpoints_are_loaded_into_graphs(graphs: Graphs, name: str) -> None:
    make, options = OPTIMIZERS[name]
    replayed, expected = Trained(make, options), Trained(make, options)
    for number in range(3):
        expected.step(1 + number)
        replayed.step(1)
    checkpoint = copy.deepcopy(expected.optimizer.state_dict())
    with graphs.replay():
        for number in range(5):
            replayed.step(number)
    weight = replayed.bags[0].weight
    memory = [value.data_ptr() for key, value in replayed.optimizer.state[weight].items() if key != "step"]
    replayed.optimizer.load_state_dict(checkpoint)
    assert memory == [value.data_ptr() for key, value in replayed.optimizer.state[weight].items() if key != "step"]
    for bag, other in zip(replayed.bags, expected.bags, strict=True):
        bag.load_state_dict(other.state_dict())
    with graphs.replay():
        replayed.step(3)
    expected.step(3)
    assert_same_bits(replayed.result(), expected.result())
    start = Trained(make, options)
    replayed.optimizer.load_state_dict(start.optimizer.state_dict())  # which has no states yet
    with graphs.replay():
        replayed.step(1)
    assert replayed.optimizer.state_dict()["state"][0]["step"] == 1
    assert memory == [value.data_ptr() for key, value in replayed.optimizer.state[weight].items() if key != "step"]


@that_counts
@pytest.mark.parametrize("how", [copy.deepcopy, lambda optimizer: pickle.loads(pickle.dumps(optimizer))])
def test_copies_know_the_steps(graphs: Graphs, name: str, how: Any) -> None:
    trained = Trained(*OPTIMIZERS[name])
    trained.step(1)
    with graphs.replay():
        for _ in range(5):
            trained.step(0)
    states = how(trained.optimizer).state_dict()["state"]
    assert [int(states[table]["step"]) for table in range(2)] == [6, 1]


def test_refused_in_graphs(graphs: Graphs) -> None:
    for make, options in OPTIMIZERS.values():
        if make is not rt.optim.SparseSGD:
            with graphs.replay(), pytest.raises(RuntimeError, match=r"optim\.\w+: expected fused=True and one step"):
                Trained(make, options).step(1)
    trained = Trained(rt.optim.SparseAdam, {"betas": (0.9, 0.99999)})
    trained.step(1)
    with graphs.replay(), pytest.raises(RuntimeError, match=r"betas: expected at most 0\.99996 in a CUDA graph"):
        trained.step(1)
    trained.step(1)  # outside of graphs it goes on
    trained = Trained(rt.optim.SparseAdam, {})
    trained.step(1)
    trained.optimizer.param_groups[0]["betas"] = 0.9, 0.9
    with graphs.replay(), pytest.raises(RuntimeError, match=r"betas: expected those of the step before the first cap"):
        trained.step(0)
