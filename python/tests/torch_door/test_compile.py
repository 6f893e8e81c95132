"""torch.compile, torch.export and autocast."""

from __future__ import annotations

from typing import Any

import pytest

from .door import ROWS, WIDTH, random_bags, random_table, rt, torch


class Model(torch.nn.Module):
    """Every function once, on tables of one width."""

    def __init__(self) -> None:
        super().__init__()
        self.bag = rt.EmbeddingBag.from_pretrained(random_table(torch.float32), freeze=False, padding_idx=3)
        self.rows = rt.Embedding.from_pretrained(random_table(torch.float32, seed=2), freeze=False)

    def forward(self, ids: Any, offsets: Any, matrix: Any) -> Any:
        bags = offsets.shape[0]
        pooled = self.bag(ids, offsets).tanh()
        matrices = self.bag(matrix * 1).sin()
        rows = self.rows(ids)
        summed = rt.segment_mean(rows, ids % bags, bags)
        picked = rt.sparse_segment_sum(rows, torch.arange(bags, device=ids.device), torch.arange(bags), bags)
        return pooled + summed + picked, matrices


def inputs(seed: int = 0, bags: int = 12) -> tuple[Any, Any, Any]:
    made = random_bags(seed=seed, bags=bags)
    return made.ids, made.offsets, made.ids[: bags // 2 * 2].reshape(-1, 2)


def losses(model: Any, arguments: tuple[Any, ...]) -> list[Any]:
    first, second = model(*arguments)
    loss = first.sum() + second.pow(2).sum()
    return [loss, *torch.autograd.grad(loss, [m for _, m in sorted(model.named_parameters())])]


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_compiled_as_one_graph(dynamic: bool) -> None:
    model = Model()
    compiled = torch.compile(model, fullgraph=True, dynamic=dynamic, backend="aot_eager")
    for bags in (12, 20) if dynamic else (12,):
        arguments = inputs(bags=bags)
        for ours, wanted in zip(losses(compiled, arguments), losses(model, arguments), strict=True):
            torch.testing.assert_close(ours, wanted)


def test_inductor() -> None:
    bags, weight = random_bags(), random_table(torch.float32).requires_grad_()

    def loss(weight: Any) -> Any:
        return rt.embedding_bag(bags.ids, weight * 2, bags.offsets).sin().sum()

    (ours,) = torch.autograd.grad(torch.compile(loss, fullgraph=True)(weight), weight)
    torch.testing.assert_close(ours, torch.autograd.grad(loss(weight), weight)[0])


@pytest.mark.parametrize(
    "module",
    [
        rt.EmbeddingBag(ROWS, WIDTH, sparse=True),
        rt.Embedding(ROWS, WIDTH, sparse=True),
        rt.EmbeddingBagCollection([(ROWS, WIDTH)], sparse=True),
    ],
    ids=lambda module: type(module).__name__,
)
def test_a_sparse_gradient_of_a_compiled_module(module: Any) -> None:
    ids = random_bags().ids
    features = [ids[None]] if isinstance(module, rt.EmbeddingBagCollection) else ids[None]
    (weight,) = module.parameters()
    for _ in range(2):
        pooled = torch.compile(module, fullgraph=True, backend="aot_eager")(features)
        (pooled[0] if isinstance(pooled, list) else pooled).sum().backward()
        assert weight.grad.is_coalesced()
        assert weight.grad.indices()[0].tolist() == sorted(set(ids.tolist()))


def test_exported() -> None:
    model, arguments = Model(), inputs()
    exported = torch.export.export(model, arguments).module()
    torch.testing.assert_close(exported(*arguments), model(*arguments))


def test_autocast_leaves_tables_as_they_are() -> None:
    bags, weight = random_bags(), random_table(torch.float32).requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        pooled = rt.embedding_bag(bags.ids, weight, bags.offsets)
        mixed = (pooled @ random_table(torch.float32, WIDTH, 3)).sum()
    assert pooled.dtype == torch.float32
    mixed.backward()
    assert weight.grad.dtype == torch.float32
