"""EmbeddingBagCollection has the bits of separate EmbeddingBags, and never mixes up tables."""

from __future__ import annotations

import copy
import pickle
import re
from typing import Any

import pytest
import raggrad

from .door import Bags, random_bags, rt, torch

TABLES = {"user": (30, 4), "words": (50, 6), "item": (7, 4), "shop": (1, 4)}


def make_pair(**options: Any) -> tuple[Any, Any]:
    """A collection and a module for each of its tables, with the same weights."""
    torch.manual_seed(0)
    together = rt.EmbeddingBagCollection(TABLES, **options)
    torch.manual_seed(0)
    apart = torch.nn.ModuleDict({name: rt.EmbeddingBag(*shape, **options) for name, shape in TABLES.items()})
    return together, apart


def features(seed: int = 0, dtype: Any = torch.int64) -> dict[str, Bags]:
    """Features with different numbers of bags, the first and the last of which are empty."""
    made = {}
    for number, (name, (rows, _)) in enumerate(TABLES.items()):
        made[name] = random_bags(dtype, bags=9 + number, rows=rows, seed=seed + number)
    return made


def as_pairs(bags: dict[str, Bags]) -> dict[str, Any]:
    return {name: (feature.ids, feature.offsets) for name, feature in bags.items()}


def loss_of(pooled: dict[str, Any]) -> Any:
    return sum((rows.double().sin() * (1 + number)).sum() for number, rows in enumerate(pooled.values()))


def grad_of(collection: Any, name: str) -> Any:
    place = collection._place_of(name)
    grad = collection.get_parameter(place.parameter).grad
    return (grad.to_dense() if grad.is_sparse else grad).narrow(0, place.table.first, place.table.rows)


def check_same_bits(together: Any, apart: Any, inputs: dict[str, Any]) -> None:
    pooled = together(inputs)
    wanted = {name: apart[name](*(value if isinstance(value, tuple) else (value,))) for name, value in inputs.items()}
    assert list(pooled) == list(inputs)
    for name in inputs:
        assert torch.equal(pooled[name], wanted[name]), name
    loss_of(pooled).backward()
    loss_of(wanted).backward()
    for name in inputs:
        grad = apart[name].weight.grad
        assert torch.equal(grad_of(together, name), grad.to_dense() if grad.is_sparse else grad), name


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("mode", ["sum", "mean", "sqrtn"])
def test_the_bits_of_separate_modules(mode: str, sparse: bool, dtype: Any) -> None:
    together, apart = make_pair(mode=mode, sparse=sparse, dtype=dtype)
    check_same_bits(together, apart, as_pairs(features()))


@pytest.mark.parametrize("accumulation", ["sequential", "fast"])
@pytest.mark.parametrize("count", [1, 2, 7])
def test_the_bits_of_long_sums_with_any_number_of_threads(accumulation: str, count: int, threads: None) -> None:
    torch.set_num_threads(count)
    together, apart = make_pair(mode="sum", sparse=True)
    inputs = {name: torch.arange(40_000).reshape(-1, 8) % rows for name, (rows, _) in TABLES.items()}
    with raggrad.accumulation(accumulation):
        check_same_bits(together, apart, inputs)


@pytest.mark.parametrize("padding_idx", [0, -1])
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_padding(padding_idx: int, sparse: bool) -> None:
    together, apart = make_pair(padding_idx=padding_idx, sparse=sparse)
    assert not together.weight_of("item")[padding_idx].any()
    check_same_bits(together, apart, as_pairs(features()))


def test_padding_is_no_row_of_a_sparse_gradient() -> None:
    together, _ = make_pair(padding_idx=0, sparse=True)
    loss_of(together({"user": torch.tensor([[0, 3]]), "item": torch.tensor([[0, 1]])})).backward()
    assert together.weight_4.grad.indices().tolist() == [[3, 31]]


def test_last_offsets() -> None:
    """Ids after the last bag belong to nobody, not to the next table."""
    together, apart = make_pair(include_last_offset=True, sparse=True)
    ids, offsets = torch.tensor([1, 2, 3, 4]), torch.tensor([0, 2, 3])
    inputs = {"user": (ids, offsets), "item": (ids, offsets + 0)}
    check_same_bits(together, apart, inputs)
    assert together.weight_4.grad.indices().tolist() == [[1, 2, 3, 31, 32, 33]]


def test_forms_of_bags() -> None:
    together, apart = make_pair()
    lists = [[1, 2], [], [6]]
    jagged = torch.nested.nested_tensor([torch.tensor(row, dtype=torch.int64) for row in lists], layout=torch.jagged)
    forms = {"user": torch.tensor([[1, 2], [3, 4]]), "item": jagged, "words": raggrad.Ragged.from_lists(lists)}
    check_same_bits(together, apart, forms)
    wanted = apart["user"](forms["user"])
    assert torch.equal(together({"user": (forms["user"], None)})["user"], wanted)


@pytest.mark.parametrize("first", [torch.int32, torch.int64], ids=str)
def test_integer_types_mix(first: Any) -> None:
    together, apart = make_pair(mode="sum")
    inputs = as_pairs(features(dtype=torch.int32))
    inputs["user"] = tuple(part.to(first) for part in inputs["user"])
    check_same_bits(together, apart, inputs)


def test_empty_features() -> None:
    together, apart = make_pair()
    empty, none = torch.zeros(0, dtype=torch.int64), torch.zeros(3, dtype=torch.int64)
    check_same_bits(together, apart, {"user": (empty, none), "item": (none, empty), "shop": (none, none[:1])})
    assert together({}) == {}


def test_lists() -> None:
    together = rt.EmbeddingBagCollection([(5, 2), (6, 3)], mode="sum")
    pooled = together([torch.tensor([[1, 1]]), (torch.tensor([5]), torch.tensor([0]))])
    assert torch.equal(pooled[0], 2 * together.weight_of(0)[1:2])
    assert torch.equal(pooled[1], together.weight_of(1)[5:])
    with pytest.raises(ValueError, match="features: expected one for each of 2 tables, got 1"):
        together([torch.tensor([[1]])])


def test_results_can_be_changed_in_place() -> None:
    together, apart = make_pair()
    ids = torch.tensor([[1], [2]])
    pooled = together({"user": ids, "item": ids})
    (pooled["user"].mul_(3).sum() + pooled["item"].sum()).backward()
    (3 * apart["user"](ids)).sum().backward()
    assert torch.equal(grad_of(together, "user"), apart["user"].weight.grad)


def test_sparse_gradients_stay_coalesced() -> None:
    together, _ = make_pair(sparse=True)
    for seed in (1, 2):
        loss_of(together(as_pairs(features(seed)))).backward()
    assert together.weight_4.grad.is_coalesced()


def test_checkpoints_load_both_ways() -> None:
    together = rt.EmbeddingBagCollection(TABLES)
    stock = torch.nn.ModuleDict({name: torch.nn.EmbeddingBag(*shape) for name, shape in TABLES.items()})
    assert list(together.state_dict()) == list(stock.state_dict())
    together.load_state_dict(stock.state_dict())
    assert all(torch.equal(together.weight_of(name), stock[name].weight) for name in TABLES)
    other = torch.nn.Sequential(rt.EmbeddingBagCollection(TABLES))
    stock.load_state_dict(other[0].state_dict())
    assert all(torch.equal(other[0].weight_of(name), stock[name].weight) for name in TABLES)
    outer = torch.nn.Sequential(together)
    outer.load_state_dict(other.state_dict())
    assert torch.equal(together.weight_4, other[0].weight_4)


def test_torch_finds_tables_by_the_keys_of_checkpoints() -> None:
    """torch.distributed.checkpoint walks attributes. A name that the module has itself is not replaced."""
    state_dicts = pytest.importorskip("torch.distributed.checkpoint.state_dict")
    assert rt.EmbeddingBagCollection({"mode": (4, 3)}).mode == "mean"
    model = torch.nn.Sequential()
    model.named = rt.EmbeddingBagCollection({"a": (5, 3)})
    model.listed = rt.EmbeddingBagCollection([(5, 3), (2, 3)])
    saved = state_dicts.get_model_state_dict(model)
    assert list(saved) == ["named.a.weight", "listed.0.weight", "listed.1.weight"]
    copied = copy.deepcopy(model)
    with torch.no_grad():
        copied.named.a.weight.fill_(7)
    assert copied.named.weight_of("a").eq(7).all()
    assert not model.named.weight_of("a").eq(7).any()
    state_dicts.set_model_state_dict(copied, saved)
    assert torch.equal(copied.named.weight_of("a"), model.named.weight_of("a"))


def test_checkpoints_that_do_not_fit() -> None:
    together = rt.EmbeddingBagCollection(TABLES)
    state = together.state_dict()
    state["more.weight"] = state.pop("user.weight")
    with pytest.raises(RuntimeError, match=r'Missing key\(s\) in state_dict: "user.weight"'):
        together.load_state_dict(state)
    found = together.load_state_dict(state, strict=False)
    assert (found.missing_keys, found.unexpected_keys) == (["user.weight"], ["more.weight"])
    with pytest.raises(RuntimeError, match=r"size mismatch for item.weight: expected \(7, 4\), got \(8, 4\)"):
        together.load_state_dict({"item.weight": torch.zeros(8, 4)}, strict=False)
    on_meta = rt.EmbeddingBagCollection(TABLES, device="meta")
    with pytest.raises(RuntimeError, match=r"user.weight is on the meta device: call to_empty"):
        on_meta.load_state_dict(together.state_dict())
    on_meta.to_empty(device="cpu").load_state_dict(together.state_dict())
    assert torch.equal(on_meta.weight_4, together.weight_4)


def test_load_tables() -> None:
    together = rt.EmbeddingBagCollection(TABLES)
    stock = torch.nn.EmbeddingBag(7, 4)
    before = together.weight_of("user").clone()
    together.load_tables({"item": stock.weight})
    assert torch.equal(together.tables()["item"], stock.weight)
    assert torch.equal(together.weight_of("user"), before)
    with pytest.raises(ValueError, match=r"feature 'user': expected a weight of shape \(30, 4\), got \(7, 4\)"):
        together.load_tables({"user": stock.weight})


def test_functional_calls() -> None:
    """Torch puts plain tensors where parameters were."""
    bags, ids = rt.EmbeddingBagCollection({"a": (4, 2), "b": (3, 2)}, mode="sum"), torch.tensor([[0, 2]])

    def pooled(weight: Any) -> Any:
        return torch.func.functional_call(bags, {"weight_2": weight}, ({"b": ids},))["b"]

    weight = torch.arange(14.0).reshape(7, 2)
    assert torch.equal(pooled(weight), (weight[4] + weight[6])[None])
    grad = torch.func.grad(lambda table: pooled(table).sum())(weight)
    assert grad.sum(1).tolist() == [0, 0, 0, 0, 2, 0, 2]


def test_copies() -> None:
    together, apart = make_pair(sparse=True)
    loss_of(together(as_pairs(features()))).backward()
    for other in (copy.deepcopy(together), pickle.loads(pickle.dumps(together))):
        for module in (other, apart):
            module.zero_grad()
        check_same_bits(other, apart, as_pairs(features(3)))
        assert repr(other) == repr(together)


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("options", [{}, {"padding_idx": 0}], ids=["plain", "padding"])
def test_compiled_as_one_graph(dynamic: bool, options: dict[str, Any]) -> None:
    together, apart = make_pair(**options)
    compiled = torch.compile(together, fullgraph=True, dynamic=dynamic, backend="aot_eager")
    inputs = as_pairs(features())
    pooled = compiled(inputs)
    for name, feature in inputs.items():
        assert torch.equal(pooled[name], apart[name](*feature))
    loss_of(pooled).backward()
    wrong = [(torch.tensor([1, 30]), torch.tensor([0])), (torch.tensor([1, 2]), torch.tensor([1]))]
    for ids, offsets in wrong:
        with pytest.raises((RuntimeError, ValueError), match=r"out of range|offsets"):
            compiled({**inputs, "user": (ids, offsets)})


BAD = {
    "beyond its table": ((torch.tensor([1, 7]), torch.tensor([0])), r".*input\[1\] == 7 out of range \[0, 7\)"),
    "negative": ((torch.tensor([-1]), torch.tensor([0])), r".*input\[0\] == -1 out of range"),
    "first offset": ((torch.tensor([1, 2]), torch.tensor([1])), r"\[offsets\[0\]: expected 0, got 1\]"),
    "last offset": ((torch.tensor([1, 2]), torch.tensor([0, 3])), r"\[offsets\[1\]: expected at most 2"),
    "offsets fall": ((torch.tensor([1, 2]), torch.tensor([0, 2, 1])), r"\[offsets\[2\]: expected at least 2"),
    "float ids": ((torch.tensor([1.0]), torch.tensor([0])), r"\[input: expected int32 or int64, got float32"),
    "float offsets": ((torch.tensor([1]), torch.tensor([0.0])), r"\[offsets: expected int32 or int64, got float32"),
    "no offsets": ((torch.tensor([1]), None), "offsets: expected a tensor for a 1-D input"),
    "one value": ((torch.tensor([1]),), r"expected \(ids, offsets\) or \(ids, offsets, per_sample_weights\), got 1"),
    "four values": ((torch.tensor([1]), None, None, None), r"expected \(ids, offsets\) or .*, got 4 values"),
}


@pytest.mark.parametrize("case", BAD)
def test_errors_name_the_feature(case: str) -> None:
    together, _ = make_pair()
    feature, text = BAD[case]
    inputs = {**as_pairs(features()), "item": feature}
    with pytest.raises(ValueError, match=rf"^raggrad.torch.EmbeddingBagCollection: feature 'item': {text}"):
        together(inputs)


def test_errors_of_the_constructor() -> None:
    with pytest.raises(ValueError, match="EmbeddingBagCollection: mode: expected 'sum', 'mean' or 'sqrtn', got 'max'"):
        rt.EmbeddingBagCollection(TABLES, mode="max")
    with pytest.raises(ValueError, match="feature 'shop': padding_idx: expected -1 to 0, got 3"):
        rt.EmbeddingBagCollection(TABLES, padding_idx=3)
    with pytest.raises(ValueError, match=r"feature 'a': expected rows >= 0 and dim >= 1, got \(3, 0\)"):
        rt.EmbeddingBagCollection({"a": (3, 0)})
    for shape in (3, (3,), (3, 2.5), "ab"):
        with pytest.raises(ValueError, match=re.escape(f"feature 'a': expected rows >= 0 and dim >= 1, got {shape}")):
            rt.EmbeddingBagCollection({"a": shape})
    with pytest.raises(ValueError, match="feature 'b': there is no such table"):
        rt.EmbeddingBagCollection({"a": (3, 1)})({"b": torch.tensor([[0]])})


def test_names_that_are_numbers() -> None:
    tables = rt.EmbeddingBagCollection({1: (5, 4), 2: (3, 4)})
    ids = torch.tensor([[1, 2]])
    assert list(tables({2: ids, 1: ids})) == [2, 1]
    with pytest.raises(ValueError, match=r"feature '2': .*\[0, 3\)"):
        tables({1: ids, 2: ids + 1})
    with pytest.raises(ValueError, match="feature '1': expected one table of this name, got two"):
        rt.EmbeddingBagCollection({1: (5, 4), "1": (3, 4)})
