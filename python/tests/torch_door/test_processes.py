"""Modules and optimizers in other processes: DataLoader, spawn, torch.save, DistributedDataParallel."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .door import random_bags, rt, torch

nn = torch.nn
IDS = torch.tensor([[1, 2], [2, 2], [0, 3]])
PATIENCE = 600  # seconds: for machines that are slow, not a measure of speed
MODULES = {
    "EmbeddingBag": lambda: rt.EmbeddingBag(10, 3, mode="sqrtn", sparse=True),
    "Embedding": lambda: rt.Embedding(10, 3, padding_idx=1),
    "EmbeddingBagCollection": lambda: rt.EmbeddingBagCollection([(10, 3)], sparse=True),
}
every_module = pytest.mark.parametrize("make", MODULES.values(), ids=MODULES)


def pooled(module: Any) -> Any:
    return module([IDS])[0] if isinstance(module, rt.EmbeddingBagCollection) else module(IDS)


class Pooled(torch.utils.data.Dataset):
    """Samples that modules make in the worker."""

    def __init__(self, modules: list[Any]) -> None:
        self.modules = modules

    def __len__(self) -> int:
        return len(self.modules)

    def __getitem__(self, number: int) -> Any:
        with torch.no_grad():
            return pooled(self.modules[number])


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_workers_of_a_data_loader(start: str) -> None:
    modules = [make() for make in MODULES.values()]
    options = {"num_workers": 1, "multiprocessing_context": start, "timeout": PATIENCE, "batch_size": None}
    made = list(torch.utils.data.DataLoader(Pooled(modules), **options))
    for rows, module in zip(made, modules, strict=True):
        assert torch.equal(rows, pooled(module).detach())


def in_children(start: str, function: Callable[..., None], *arguments: tuple[Any, ...]) -> None:
    """Calls the function in one new process for each tuple of arguments."""
    context = torch.multiprocessing.get_context(start)
    children = [context.Process(target=function, args=each) for each in arguments]
    for child in children:
        child.start()
    for child in children:
        child.join(PATIENCE)
        assert child.exitcode == 0


def train_here(module: Any) -> None:
    """A step with a fused optimizer, on weights whose memory the parent shares."""
    optimizer = rt.optim.SparseSGD(module.parameters(), lr=1.0, fused=True)
    pooled(module).sum().backward()
    optimizer.step()


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_a_child_trains_weights_in_shared_memory(start: str, threads: None) -> None:
    torch.set_num_threads(1)  # a child of fork() would wait for ever for threads that torch started before
    module = rt.EmbeddingBag(10, 3, mode="sum").share_memory()
    with torch.no_grad():
        expected = module.weight - torch.bincount(IDS.flatten(), minlength=10)[:, None]
    in_children(start, train_here, (module,))
    assert torch.equal(module.weight, expected)


@every_module
def test_a_module_saved_whole(make: Any, tmp_path: Path) -> None:
    module = make()
    pooled(module).sum().backward()
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    copies = [copy.deepcopy(module), pickle.loads(pickle.dumps(module)), torch.load(file, weights_only=False)]
    torch.save(module.state_dict(), tmp_path / "state.pt")
    copies.append(make())
    copies[-1].load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    for other in copies:
        assert type(other) is type(module)
        assert torch.equal(pooled(other), pooled(module))
        assert all(one is not two for one, two in zip(other.parameters(), module.parameters(), strict=True))


class Model(nn.Module):
    """Tables beside a layer with buffers, which DistributedDataParallel broadcasts before every forward.

    It takes sparse gradients from nn.Embedding, nn.EmbeddingBag and their subclasses only.
    """

    def __init__(self, sparse: bool) -> None:
        super().__init__()
        self.bag = rt.EmbeddingBag(50, 4, mode="sum", sparse=sparse)
        self.tables = rt.EmbeddingBagCollection({"a": (50, 4), "b": (50, 4)})
        self.normed = nn.BatchNorm1d(4)

    def forward(self, ids: Any, offsets: Any) -> Any:
        rows = self.tables({"a": (ids, offsets), "b": (ids, offsets)})
        return self.normed(self.bag(ids, offsets) + rows["a"] * rows["b"])


def train_beside_another(rank: int, folder: Path) -> None:
    """Saves all that a rank has after one backward pass. The ranks differ in weights, buffers and batches before."""
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    torch.save([values_after_backward(rank, sparse) for sparse in (False, True)], folder / f"{rank}.pt")
    torch.distributed.destroy_process_group()


def values_after_backward(rank: int, sparse: bool) -> dict[str, Any]:
    torch.manual_seed(rank)
    model = Model(sparse)
    parallel = nn.parallel.DistributedDataParallel(model)
    model.normed.running_mean.fill_(100 * rank)
    batch = random_bags(seed=rank)
    parallel(batch.ids, batch.offsets).tanh().sum().backward()
    found = {f"gradient of {name}": value.grad.to_dense() for name, value in model.named_parameters()}
    return {**found, **{name: value.detach() for name, value in model.state_dict().items()}}


@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch has no torch.distributed")
def test_distributed_data_parallel(tmp_path: Path) -> None:
    in_children("spawn", train_beside_another, *((rank, tmp_path) for rank in range(2)))
    found = [torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in range(2)]
    for zero, one in zip(*found, strict=True):
        means = zero.pop("normed.running_mean"), one.pop("normed.running_mean")
        assert all((mean < 50).all() for mean in means)  # that of rank 1 was 100, and a tenth of it comes from a batch
        zero.pop("normed.running_var"), one.pop("normed.running_var")
        torch.testing.assert_close(one, zero, rtol=0, atol=0)
        assert zero["gradient of tables.weight_4"].any()
