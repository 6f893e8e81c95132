"""EmbeddingBag and Embedding stand in for torch's modules: constructors, repr, checkpoints, copies."""

from __future__ import annotations

import copy
import inspect
import io
import os
import pickle
from typing import Any

import numpy as np
import pytest
from raggrad import doctor_doors

from .door import random_bags, random_table, rt, torch

nn = torch.nn

PAIRS = [(rt.EmbeddingBag, nn.EmbeddingBag), (rt.Embedding, nn.Embedding)]
IDS = ["EmbeddingBag", "Embedding"]


@pytest.mark.parametrize(("ours", "theirs"), PAIRS, ids=IDS)
@pytest.mark.parametrize("options", [{}, {"padding_idx": 2}, {"max_norm": 1.0}, {"sparse": True, "dtype": torch.half}])
def test_constructors_repr_and_state(ours: Any, theirs: Any, options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    mine = ours(10, 3, **options)
    torch.manual_seed(0)
    stock = theirs(10, 3, **options)
    assert repr(mine) == repr(stock)
    assert list(mine.state_dict()) == list(stock.state_dict())
    assert torch.equal(mine.weight, stock.weight)
    stock.load_state_dict(ours(10, 3, **options).state_dict())
    mine.load_state_dict(stock.state_dict())
    assert torch.equal(mine.weight, stock.weight)
    assert isinstance(mine, theirs)


@pytest.mark.parametrize(("ours", "theirs"), PAIRS, ids=IDS)
def test_signatures_of_constructors(ours: Any, theirs: Any) -> None:
    """Torch's own functions look at them."""
    assert inspect.signature(ours) == inspect.signature(theirs)
    assert nn.utils.skip_init(ours, 10, 3).weight.shape == (10, 3)


@pytest.mark.parametrize("ours", [rt.EmbeddingBag, rt.Embedding], ids=IDS)
def test_from_pretrained(ours: Any) -> None:
    table = random_table()
    module = ours.from_pretrained(table, padding_idx=1)
    assert type(module) is ours
    assert not module.weight.requires_grad
    assert module(torch.tensor([[3]])).flatten().tolist() == table[3].tolist()


@pytest.mark.parametrize("ours", [rt.EmbeddingBag, rt.Embedding], ids=IDS)
def test_copies_have_gradients_of_their_own(ours: Any) -> None:
    module = ours(10, 3, sparse=True)
    ids = torch.tensor([[1, 2], [2, 2]])
    module(ids).sum().backward()  # leaves a hook on the weight
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    copies = [copy.deepcopy(module), pickle.loads(pickle.dumps(module)), torch.load(file, weights_only=False)]
    for other in copies:
        assert torch.equal(other.weight, module.weight)
        other.weight.grad = None
        other(ids).sum().backward()
        assert other.weight.grad.is_coalesced()
        assert other.weight.grad.indices().tolist() == [[1, 2]]


def test_a_model_is_unchanged_but_for_the_import() -> None:
    def train(package: Any) -> list[float]:
        torch.manual_seed(3)
        model = nn.Sequential(package.EmbeddingBag(50, 8, mode="sum"), nn.Tanh(), nn.Linear(8, 1))
        optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
        losses = []
        for step in range(20):
            ids = random_bags(bags=30, seed=step).ids[:40].reshape(10, 4)
            loss = (model(ids) - ids.float().mean(1, keepdim=True) / 50).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    torch.testing.assert_close(train(rt), train(nn))


def test_workers_of_a_data_loader() -> None:
    """Children of fork() pool rows although the parent's threads are gone."""
    module = rt.EmbeddingBag(50, 8)
    ids = torch.arange(200_000).reshape(-1, 4) % 50
    with torch.no_grad():
        wanted = module(ids)  # starts the threads of the parent

        class Data(torch.utils.data.Dataset):
            def __len__(self) -> int:
                return 4

            def __getitem__(self, number: int) -> Any:
                return module(ids)[number]

        loader = torch.utils.data.DataLoader(Data(), num_workers=2, multiprocessing_context="fork", timeout=60)
        assert torch.equal(torch.cat(list(loader)), wanted[:4])


def test_a_child_of_fork_uses_its_own_thread(threads: None) -> None:
    """Torch's own functions would wait for ever for threads that stayed behind in the parent."""
    torch.set_num_threads(2)
    weight, ids, offsets = random_table(), torch.arange(200_000) % 50, torch.arange(0, 200_000, 4)
    wanted = rt.embedding_bag(ids, weight, offsets).numpy()
    child = os.fork()
    if child == 0:
        same = np.array_equal(rt.embedding_bag(ids, weight, offsets).numpy(), wanted)
        os._exit(0 if same else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_the_doctor_calls_an_operator() -> None:
    assert ("raggrad.torch", "works") in doctor_doors.rows()
