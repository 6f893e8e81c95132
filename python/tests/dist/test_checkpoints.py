"""state_dict of divided tables and their optimizers: in torch.distributed.checkpoint, with schedulers."""

from __future__ import annotations

import copy
import functools
from typing import Any

import pytest

from .worlds import rd, rt, run, torch

ROWS, WIDTH, BATCH = 11, 3, 12
ADAM = functools.partial(rt.optim.SparseAdam, lr=0.1)
OPTIMIZERS = {
    "sgd": functools.partial(rt.optim.SparseSGD, lr=0.1),
    "adam": ADAM,
    "fused": functools.partial(rt.optim.SparseAdam, lr=0.1, fused=True),
    "torch": functools.partial(torch.optim.SparseAdam, lr=0.1),
}


def make(optimizer: Any) -> Any:
    return rd.ShardedEmbeddingBag(ROWS, WIDTH, optimizer=optimizer, accumulation="reproducible")


def train(model: Any, rank: int, ranks: int, step: int) -> None:
    """With the same bags on any number of ranks."""
    ids = torch.randint(ROWS, (BATCH, 2), generator=torch.Generator().manual_seed(step))
    model(ids.chunk(ranks)[rank]).sum().backward()


class Model(torch.nn.Module):
    def __init__(self, optimizer: Any) -> None:
        super().__init__()
        self.bag = make(optimizer)
        self.dense = torch.nn.Linear(WIDTH, 1)

    def forward(self, ids: Any) -> Any:
        return self.dense(self.bag(ids))


def save_and_load(rank: int, ranks: int, folder: str, begins: bool, parallel: bool, optimizer: str) -> Any:
    """Saves after two steps, or loads that; then trains on."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict

    torch.manual_seed(0 if begins else 1)
    model = Model(OPTIMIZERS[optimizer]).requires_grad_(False)  # of the table alone: dense sums depend on the ranks
    model.bag.weight.requires_grad_()
    rd.register(model)
    trained = model
    if parallel:
        model.dense.bias.requires_grad_()  # or there is nothing for DistributedDataParallel to do
        trained = torch.nn.parallel.DistributedDataParallel(model)
    if begins:
        train(trained, rank, ranks, 0)
        train(trained, rank, ranks, 1)
        dcp.save({"model": get_model_state_dict(trained)}, checkpoint_id=folder)
    else:
        state = {"model": get_model_state_dict(trained)}
        dcp.load(state, checkpoint_id=folder)
        set_model_state_dict(trained, state["model"])
    train(trained, rank, ranks, 2)
    return model.bag.full_weight(), model.dense.weight.detach()


@pytest.mark.parametrize(("optimizer", "parallel"), [("adam", False), ("adam", True), ("sgd", False)])
def test_torch_distributed_checkpoint_knows_the_names(tmp_path: Any, optimizer: str, parallel: bool) -> None:
    table, weight = run(2, save_and_load, 2, str(tmp_path), True, parallel, optimizer)[0]
    for got, its in run(3, save_and_load, 3, str(tmp_path), False, parallel, optimizer):
        assert torch.equal(got, table)
        assert torch.equal(its, weight)


def train_twice(rank: int, ranks: int, optimizer: str) -> Any:
    bag = make(OPTIMIZERS[optimizer])
    train(bag, rank, ranks, 0)
    train(bag, rank, ranks, 1)
    return bag.shard_state()


def load_some(rank: int, optimizer: str, shards: list[Any]) -> None:
    bag = make(OPTIMIZERS[optimizer])
    before = copy.deepcopy(bag.shard_state())
    for brought, got in (((1, 0), "0 to 3, 4 to 7"), ((0, 2), "0 to 3, 8 to 10"), ((0, 1, 0), "0 to 3, 0 to 3, .*")):
        with pytest.raises(ValueError, match=f"load_shards: weight: expected rows 0 to 10, each once, got {got}$"):
            bag.load_shards(shards[number] for number in brought)
    after = bag.shard_state()
    assert after["rows"].keys() == before["rows"].keys()
    assert all(torch.equal(rows, before["rows"][name]) for name, rows in after["rows"].items())
    assert after["optimizer"] == before["optimizer"]


@pytest.mark.parametrize("optimizer", ["adam", "torch"])
def test_nothing_changes_unless_every_shard_comes_once(optimizer: str) -> None:
    run(1, load_some, optimizer, run(3, train_twice, 3, optimizer))


def schedule(rank: int, ranks: int, optimizer: str, saved: Any) -> Any:
    """A learning rate that is halved after each step."""
    bag = make(OPTIMIZERS[optimizer])
    scheduler = torch.optim.lr_scheduler.StepLR(bag.optimizer, 1, 0.5)
    begin = 0
    if saved is not None:
        state, shards, of_scheduler, by_shards = saved
        if by_shards:
            bag.load_shards(shards)
        else:
            bag.load_state_dict(state)
        scheduler.load_state_dict(of_scheduler)
        begin = 2
    states = []
    for step in range(begin, 4):
        if step == 2:
            states = [bag.state_dict(), copy.deepcopy(bag.shard_state()), scheduler.state_dict()]
        train(bag, rank, ranks, step)
        scheduler.step()
    return bag.full_weight(), bag.optimizer.param_groups[0]["lr"], states


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_learning_rates_are_resumed(optimizer: str) -> None:
    results = run(2, schedule, 2, optimizer, None)
    want, rate, (state, _, of_scheduler) = results[0]
    assert rate == 0.1 / 16
    shards = [states[1] for _, _, states in results]
    for ranks, by_shards in ((3, False), (1, True)):
        for got, its, _ in run(ranks, schedule, ranks, optimizer, (state, shards, of_scheduler, by_shards)):
            assert torch.equal(got, want)
            assert its == rate


def load_in_part(rank: int) -> None:
    bag, table = make(ADAM), torch.ones(ROWS, WIDTH)
    bag.load_state_dict({"weight": table})  # a table alone is fine
    assert torch.equal(bag.full_weight(), table)
    plain = rd.ShardedEmbeddingBag(ROWS, WIDTH)
    torch.nn.EmbeddingBag(ROWS, WIDTH).load_state_dict(plain.state_dict())
    state = bag.state_dict()
    with pytest.raises(RuntimeError, match=r'Unexpected key.*"optimizer_states\._extra_state"'):
        plain.load_state_dict(state)
    state["optimizer_states._extra_state"]["rows"]["exp_avg_sq"] = torch.ones(ROWS - 1, WIDTH)
    state["optimizer_states._extra_state"]["rows"]["exp_avg"] = torch.ones(ROWS, WIDTH)
    with pytest.raises(RuntimeError, match=r"size mismatch for optimizer\.exp_avg_sq: expected 11 rows, got 10"):
        bag.load_state_dict(state)
    assert not bag.optimizer.state[bag.weight]["exp_avg"].any()


def test_parts_of_a_checkpoint() -> None:
    run(2, load_in_part)
