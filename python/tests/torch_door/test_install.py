"""install() gives raggrad's gradients to models that do not know of it, and uninstall() takes them away."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from typing import Any

import pytest

from .door import ROWS, WIDTH, random_bags, random_table, rt, tolerance, torch

nn, F = torch.nn, torch.nn.functional
NAMES = ("embedding", "embedding_bag")
STOCK = {name: getattr(F, name) for name in NAMES}
EMBEDDING, BAG = (f"torch.nn.functional.{name}" for name in NAMES)
INDEX_ADDS = ("torch.Tensor.index_add", "torch.Tensor.index_add_")


@pytest.fixture
def installed() -> Iterator[None]:
    rt.install()
    yield
    rt.uninstall()


def node(tensor: Any) -> str:
    """The name of the operator that made the tensor."""
    return type(tensor.grad_fn).__name__


def is_ours(tensor: Any) -> bool:
    return "raggrad" in node(tensor)


def fell_back(name: str) -> list[str]:
    return list(rt.status()[name].fell_back)


def test_it_is_undone() -> None:
    in_place = torch.Tensor.index_add_
    rt.install()
    rt.install()
    kept = F.embedding
    assert kept is not STOCK["embedding"]
    assert {answer.by for name, answer in rt.status().items() if name != "torch.index_add"} == {"raggrad"}
    rt.uninstall()
    rt.uninstall()
    assert {answer.by for answer in rt.status().values()} == {"torch"}
    assert all(getattr(F, name) is STOCK[name] for name in NAMES)
    assert torch.Tensor.index_add_ is in_place
    assert "index_add" not in vars(torch.Tensor)
    weight = random_table().requires_grad_()
    assert not is_ours(kept(torch.tensor([1]), weight))


def test_somebody_else_replaces_ours() -> None:
    """uninstall() leaves their function alone, and ours behind it is torch's again."""
    rt.install()
    ours = F.embedding
    try:
        F.embedding = lambda *args, **kwargs: ours(*args, **kwargs)
        theirs = F.embedding
        rt.uninstall()
        assert F.embedding is theirs
        assert not is_ours(F.embedding(torch.tensor([1]), random_table().requires_grad_()))
    finally:
        F.embedding = STOCK["embedding"]


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("kind", [nn.Embedding, nn.EmbeddingBag])
def test_models_built_before_and_after(kind: Any, sparse: bool) -> None:
    ids = torch.tensor([[1, 2], [2, 3]])
    before = kind(10, 3, sparse=sparse)
    before(ids).sum().backward()
    wanted = before.weight.grad
    rt.install()
    try:
        after = copy.deepcopy(before)
        for module in (before, after):
            module.weight.grad = None
            out = module(ids)
            assert is_ours(out)
            out.sum().backward()
            assert module.weight.grad.is_sparse == sparse
            assert torch.equal(module.weight.grad.to_dense(), wanted.to_dense())
            assert not sparse or module.weight.grad.is_coalesced()
    finally:
        rt.uninstall()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("options", [{}, {"padding_idx": 3}, {"max_norm": 1.0}, {"mode": "sum"}], ids=str)
def test_the_numbers_of_torch(options: dict[str, Any], dtype: Any) -> None:
    def results() -> list[Any]:
        bags, weight = random_bags(), random_table(dtype).requires_grad_()
        pooled = F.embedding_bag(bags.ids, weight, bags.offsets, **options)
        loss = pooled.double().sin().sum()
        if "mode" not in options:
            loss = loss + F.embedding(bags.ids, weight, **options).double().cos().sum()
        return [pooled, *torch.autograd.grad(loss, weight)]

    wanted = results()
    rt.install()
    try:
        ours = results()
        assert is_ours(ours[0])
    finally:
        rt.uninstall()
    torch.testing.assert_close(ours, wanted, **tolerance(dtype))


def test_weights_of_ids(installed: None) -> None:
    weight, weights = random_table().requires_grad_(), torch.tensor([[2.0, 3.0]]).double().requires_grad_()
    pooled = F.embedding_bag(torch.tensor([[1, 4]]), weight, per_sample_weights=weights, mode="sum")
    assert is_ours(pooled)
    (d_weights,) = torch.autograd.grad(pooled.sum(), weights)
    torch.testing.assert_close(d_weights[0], weight[[1, 4]].sum(1).detach(), rtol=1e-14, atol=1e-14)


FALLBACKS = {
    "max": (BAG, "mode='max'", lambda w, ids: F.embedding_bag(ids, w, mode="max")),
    "bags by frequency": (
        BAG,
        "scale_grad_by_freq=True",
        lambda w, ids: F.embedding_bag(ids, w, scale_grad_by_freq=True),
    ),
    "by frequency": (EMBEDDING, "scale_grad_by_freq=True", lambda w, ids: F.embedding(ids, w, scale_grad_by_freq=True)),
    "complex": (EMBEDDING, "a dtype that", lambda w, ids: F.embedding(ids, w.detach().to(torch.complex64))),
    "no gradient": (EMBEDDING, "no gradient", lambda w, ids: F.embedding(ids, w.detach())),
    "meta": (EMBEDDING, "a device on", lambda w, ids: F.embedding(ids.to("meta"), w.to("meta"))),
    "integers": (INDEX_ADDS[0], "a dtype that", lambda w, ids: torch.zeros(9, 2).long().index_add(0, ids[0], ids)),
    "second dim": (INDEX_ADDS[0], "a dim other", lambda w, ids: w[:2].index_add(1, ids[0], w[2:4, :2])),
}  # fmt: skip


@pytest.mark.parametrize("case", FALLBACKS)
def test_torch_answers_the_rest(case: str, installed: None) -> None:
    name, reason, call = FALLBACKS[case]
    ids, weight = torch.tensor([[1, 2], [2, 3]]), random_table().requires_grad_()
    ours = call(weight, ids)
    assert [found for found in fell_back(name) if found.startswith(reason)]
    assert set(fell_back(name)) <= set(rt.status()[name].torch_answers)
    rt.uninstall()
    wanted = call(weight, ids)
    assert ours.shape == wanted.shape and ours.dtype == wanted.dtype
    assert ours.is_meta or torch.equal(ours, wanted)


def test_a_default_device_is_no_reason(installed: None) -> None:
    """Torch keeps it as a mode that sees every call."""
    with torch.device("cpu"):
        assert is_ours(F.embedding(torch.tensor([1]), random_table().requires_grad_()))
    assert fell_back(EMBEDDING) == []


def test_modes_see_calls(installed: None) -> None:
    seen = []

    class Watch(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(function)
            return function(*args, **(kwargs or {}))

    with Watch():
        F.embedding(torch.tensor([1]), random_table().requires_grad_())
    assert F.embedding in seen


def test_errors_are_those_of_torch(installed: None) -> None:
    weight = random_table().requires_grad_()
    with pytest.raises(IndexError, match="index out of range in self"):
        F.embedding(torch.tensor([ROWS]), weight)
    with pytest.raises(TypeError, match=r"embedding\(\)"):
        F.embedding(torch.tensor([1]))
    with pytest.raises(ValueError, match="offsets has to be a 1D Tensor"):
        F.embedding_bag(torch.tensor([1]), weight)
    with pytest.raises((IndexError, RuntimeError), match=r"^index"):
        torch.zeros(3, 2).index_add_(0, torch.tensor([3]), torch.ones(1, 2))
    with pytest.raises(NotImplementedError, match="per_sample_weights"):
        F.embedding_bag(torch.tensor([[1]]), weight, per_sample_weights=torch.ones(1, 1).double())
    assert rt.status()[EMBEDDING].fell_back == {"arguments that raggrad.torch refuses": 2}


def test_what_torch_refuses_stays_an_error(installed: None) -> None:
    """Although functions of raggrad.torch take some of it."""
    ids, offsets, weight = torch.tensor([0, 1]), torch.tensor([0]), random_table().requires_grad_()
    for table in (weight[0], weight[None]):
        with pytest.raises(RuntimeError, match="'weight' must be 2-D"):
            F.embedding(ids, table)
        with pytest.raises(ValueError, match="weight has to be a 2D Tensor"):
            F.embedding_bag(ids, table, offsets)
    with pytest.raises(RuntimeError, match="to have the same type"):
        F.embedding_bag(ids, weight, offsets, mode="sum", per_sample_weights=torch.ones(2))
    with pytest.raises(RuntimeError, match=r"Got self.shape = \[5, 3\] source.shape = \[2, 4\]"):
        torch.zeros(5, 3).index_add_(0, torch.tensor([1, 1]), torch.ones(2, 4))


def sums(kind: str, start: Any, index: Any, source: Any, alpha: float) -> Any:
    if kind == "torch.Tensor.index_add":
        return start.index_add(0, index, source, alpha=alpha)
    return start.clone().index_add_(0, index, source, alpha=alpha)


@pytest.mark.parametrize("alpha", [1, -0.5])
@pytest.mark.parametrize("kind", INDEX_ADDS)
def test_index_add(kind: str, alpha: float) -> None:
    def results() -> list[Any]:
        start, source = random_table().requires_grad_(), random_table(rows=80, seed=2).requires_grad_()
        index = torch.arange(80) * 7 % ROWS
        total = sums(kind, start, index, source, alpha)
        return [total.detach(), *torch.autograd.grad(total.sin().sum(), [start, source])]

    wanted = results()
    rt.install()
    try:
        ours = results()
        assert fell_back(kind) == []
    finally:
        rt.uninstall()
    torch.testing.assert_close(ours, wanted, rtol=1e-14, atol=1e-14)


def test_index_add_changes_the_tensor_in_place(installed: None) -> None:
    total = torch.zeros(3, 2)
    version = total._version
    assert total.index_add_(0, torch.tensor([2, 2]), torch.ones(2, 2)) is total
    assert total.tolist() == [[0, 0], [0, 0], [2, 2]]
    assert total._version > version
    with pytest.raises(RuntimeError, match="leaf"):
        torch.zeros(3, 2, requires_grad=True).index_add_(0, torch.tensor([1]), torch.ones(1, 2))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bag, self.rows = nn.EmbeddingBag(ROWS, WIDTH, mode="sum"), nn.Embedding(ROWS, WIDTH)

    def forward(self, ids: Any) -> Any:
        return self.bag(ids) + self.rows(ids[:, 0]).index_add(0, ids[:2, 0] % 2, self.rows(ids[:2, 1]))


IDS = torch.tensor([[1, 2], [2, 3], [4, 4]])


@pytest.mark.parametrize("when", ["installed", "uninstalled"])
def test_compiled_exported_and_traced(when: str, installed: None) -> None:
    """Such code has torch's operators alone, so that it runs where there is no raggrad."""
    model = Model()
    wanted = model(IDS)
    assert is_ours(F.embedding_bag(IDS, model.bag.weight))
    if when == "uninstalled":
        rt.uninstall()
    exported = torch.export.export(model, (IDS,))
    traced = torch.jit.trace(model, (IDS,))
    for text in (str(exported.graph), str(traced.inlined_graph)):
        assert "raggrad::" not in text and "ops.raggrad" not in text
        assert "embedding" in text
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    for other in (compiled, exported.module(), traced):
        torch.testing.assert_close(other(IDS), wanted)
    compiled(IDS).sum().backward()


@pytest.mark.parametrize("when", ["installed", "uninstalled"])
def test_scripted(when: str, installed: None) -> None:
    def add(total: torch.Tensor, index: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
        return torch.index_add(total, 0, index, source) + total.index_add(0, index, source)

    if when == "uninstalled":
        rt.uninstall()
    model = nn.Sequential(nn.Embedding(ROWS, WIDTH))
    arguments = torch.zeros(3, 2), torch.tensor([1, 1]), torch.ones(2, 2)
    assert torch.equal(torch.jit.script(model)(IDS), model(IDS))
    assert torch.equal(torch.jit.script(add)(*arguments), add(*arguments))


def test_torch_func(installed: None) -> None:
    weight = random_table()
    per_sample = torch.func.vmap(torch.func.grad(lambda w, ids: F.embedding(ids, w).sin().sum()), (None, 0))(
        weight, IDS
    )
    assert per_sample.shape == (3, ROWS, WIDTH)
    assert "inside torch.func" in fell_back(EMBEDDING)


def test_deterministic_algorithms_and_pickles(installed: None) -> None:
    torch.use_deterministic_algorithms(True)
    try:
        model = Model()
        model(IDS).sum().backward()
        assert pickle.loads(pickle.dumps(F.embedding)) is F.embedding
        assert torch.equal(pickle.loads(pickle.dumps(model))(IDS), model(IDS))
        torch.zeros(3, 2).index_add_(0, torch.tensor([2, 2]), torch.ones(2, 2))
    finally:
        torch.use_deterministic_algorithms(False)


def test_an_unchanged_script_trains_as_before() -> None:
    def train() -> list[float]:
        torch.manual_seed(3)
        model = nn.Sequential(nn.EmbeddingBag(ROWS, 8, mode="sum", sparse=True), nn.Tanh(), nn.Linear(8, 1))
        optimizers = [
            torch.optim.SparseAdam(model[0].parameters(), 0.05),
            torch.optim.Adam(model[2].parameters(), 0.05),
        ]
        losses = []
        for step in range(20):
            ids = random_bags(bags=30, seed=step).ids[:40].reshape(10, 4)
            loss = (model(ids) - ids.float().mean(1, keepdim=True) / ROWS).pow(2).mean()
            model.zero_grad()
            loss.backward()
            for optimizer in optimizers:
                optimizer.step()
            losses.append(loss.item())
        return losses

    wanted = train()
    rt.install()
    try:
        ours = train()
        assert rt.status()[BAG].fell_back == {}
    finally:
        rt.uninstall()
    torch.testing.assert_close(ours, wanted)
