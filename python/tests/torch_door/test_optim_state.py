"""States of rt.optim travel: checkpoints, torch's too, and copies."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import pytest

from .door import FLOATS, ROWS, WIDTH, rt, torch
from .optimizers import PAIRS, assert_same_bits, every_optimizer, parameter, train

COPIES = {"deepcopy": copy.deepcopy, "pickle": lambda optimizer: pickle.loads(pickle.dumps(optimizer))}


def resume_from(state: dict[str, Any], make: Any, weights: Any) -> Any:
    table = torch.nn.Parameter(weights.clone())
    optimizer = make([table], lr=1.0)  # the checkpoint has another
    optimizer.load_state_dict(state)
    return train(optimizer, table, range(5, 10))


@every_optimizer
@pytest.mark.parametrize("dtype", FLOATS)
def test_checkpoints(name: str, dtype: Any) -> None:
    table = parameter(dtype)
    optimizer = PAIRS[name].ours([table], lr=0.1)
    weights = train(optimizer, table, range(5)).clone()
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    file.seek(0)
    state = torch.load(file, weights_only=True)
    assert_same_bits(resume_from(state, PAIRS[name].ours, weights), train(optimizer, table, range(5, 10)))


@every_optimizer
@pytest.mark.parametrize("way", ["to torch", "from torch"])
def test_checkpoints_of_torch(name: str, way: str) -> None:
    save, load = PAIRS[name] if way == "to torch" else reversed(PAIRS[name])
    table = parameter()
    optimizer = save([table], lr=0.1)
    weights = train(optimizer, table, range(5)).clone()
    state = copy.deepcopy(optimizer.state_dict())
    torch.testing.assert_close(resume_from(state, load, weights), train(optimizer, table, range(5, 10)))


@every_optimizer
@pytest.mark.parametrize("fused", [False, True])
def test_states_for_torch_distributed_checkpoint(name: str, fused: bool) -> None:
    """They are loaded before the first step, which torch would otherwise take with a dense gradient."""
    checkpoint = pytest.importorskip("torch.distributed.checkpoint.state_dict")
    states = []
    for lr in (0.1, 1.0):
        bag = rt.EmbeddingBag(ROWS, WIDTH, mode="sum", sparse=True)
        optimizer = PAIRS[name].ours(bag.parameters(), lr=lr, fused=fused)
        if states:
            optimizer.make_states(bag.weight)
            checkpoint.set_optimizer_state_dict(bag, optimizer, optim_state_dict=states[0])
        else:
            bag(torch.tensor([[1, 2, 1]])).sum().backward()
            optimizer.step()
        states.append(copy.deepcopy(checkpoint.get_optimizer_state_dict(bag, optimizer)))
    assert states[1]["param_groups"] == states[0]["param_groups"]
    torch.testing.assert_close(states[1]["state"], states[0]["state"], rtol=0, atol=0)


def test_a_checkpoint_with_momentum() -> None:
    table = parameter()
    state = torch.optim.SGD([table], lr=0.1, momentum=0.9).state_dict()
    with pytest.raises(ValueError, match=r"raggrad\.torch\.optim\.SparseSGD: momentum: expected 0, got 0\.9"):
        resume_from(state, PAIRS["SGD"].ours, table.detach())


def test_schedulers_of_momentum_see_that_there_is_none() -> None:
    with pytest.raises(ValueError, match="optimizer must support momentum"):
        torch.optim.lr_scheduler.OneCycleLR(PAIRS["SGD"].ours([parameter()], lr=0.1), max_lr=1.0, total_steps=5)


def test_hooks_change_what_is_loaded() -> None:
    """That of before, and that of after loading."""
    table = parameter(torch.float16)
    optimizer = PAIRS["Adagrad"].ours([table], lr=0.1)
    train(optimizer, table, range(2))
    state = optimizer.state_dict()
    expected = state["state"][0]["sum"] * 2 + 1

    def twice(_: Any, state: dict[str, Any]) -> dict[str, Any]:
        return {**state, "state": {0: {**state["state"][0], "sum": state["state"][0]["sum"] * 2}}}

    optimizer.register_load_state_dict_pre_hook(twice)
    optimizer.register_load_state_dict_post_hook(lambda optimizer: optimizer.state[table]["sum"].add_(1))
    optimizer.load_state_dict(copy.deepcopy(state))
    assert_same_bits(optimizer.state[table]["sum"], expected)


@every_optimizer
@pytest.mark.parametrize("kind", COPIES)
def test_copies(name: str, kind: str) -> None:
    table = parameter()
    optimizer = PAIRS[name].ours([table], lr=0.1)
    train(optimizer, table, range(5))
    table.grad = None  # torch cannot pickle a sparse gradient of a parameter
    other = COPIES[kind](optimizer)
    (other_table,) = other.param_groups[0]["params"]
    assert other_table is not table
    assert_same_bits(train(other, other_table, range(5, 10)), train(optimizer, table, range(5, 10)))
