"""Errors name the function and the argument that the user wrote."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import raggrad

from .door import random_table, rt, torch

WEIGHT, IDS, OFFSETS = random_table(rows=10), torch.tensor([1, 2, 3]), torch.tensor([0, 2])


def bag(ids: Any = IDS, weight: Any = WEIGHT, offsets: Any = OFFSETS, **options: Any) -> Callable[[], Any]:
    return lambda: rt.embedding_bag(ids, weight, offsets, **options)


def coo(values: Any, shape: tuple[int, ...] = (5,)) -> Any:
    return torch.sparse_coo_tensor(torch.stack([IDS] * len(shape)), values, (*shape, *values.shape[1:]))


def nested(*sizes: int, dtype: Any = torch.int64) -> Any:
    return torch.nested.nested_tensor([torch.ones(size, dtype=dtype) for size in sizes], layout=torch.jagged)


CASES = {
    "id too large": (bag(torch.tensor([1, 99, 3])), "embedding_bag: .*input[1] == 99 out of range [0, 10)"),
    "id negative": (bag(torch.tensor([-1, 9, 3])), "embedding_bag: .*input[0] == -1 out of range"),
    "float ids": (bag(IDS.float()), "embedding_bag: [input: expected int32 or int64, got float32]"),
    "float offsets": (bag(offsets=OFFSETS.float()), "embedding_bag: [offsets: expected int32 or int64, got float32]"),
    "first offset": (bag(offsets=OFFSETS + 1), "embedding_bag: [offsets[0]: expected 0, got 1]"),
    "offsets fall": (bag(offsets=torch.tensor([0, 2, 1])), "embedding_bag: [offsets[2]: expected at least 2"),
    "last offset": (bag(offsets=torch.tensor([0, 4])), "embedding_bag: [offsets[1]: expected at most 3"),
    "no end": (bag(offsets=OFFSETS[:0], include_last_offset=True), "embedding_bag: [offsets: expected at least one"),
    "offsets missing": (bag(offsets=None), "embedding_bag: offsets: expected a tensor for a 1-D input, got None"),
    "offsets and rows": (bag(IDS[None]), "embedding_bag: offsets: expected None, because every row"),
    "three dimensions": (bag(IDS[None, None]), "embedding_bag: input: expected 1 or 2 dimensions, got 3"),
    "weight dtype": (bag(weight=WEIGHT.to(torch.complex64)), "embedding_bag: weight has dtype complex64"),
    "weight of another type": (bag(weight=WEIGHT.to(torch.float8_e5m2)), "embedding_bag: weight has dtype float8_e5m2"),
    "unsigned ids": (bag(IDS.to(torch.uint64)), "embedding_bag: [input: expected int32 or int64, got uint64]"),
    "a type of 2025": (bag(weight=WEIGHT.to(torch.float8_e8m0fnu)), "embedding_bag: [dtype: expected one that raggrad"),
    "complex halves": (bag(IDS.to(torch.complex32)), "embedding_bag: [dtype: expected one that raggrad has, got Com"),
    "max": (bag(mode="max"), "embedding_bag: mode: expected 'sum', 'mean' or 'sqrtn', got 'max'"),
    "scale_grad_by_freq": (bag(scale_grad_by_freq=True), "embedding_bag: scale_grad_by_freq is not supported"),
    "padding_idx": (bag(padding_idx=10), "embedding_bag: padding_idx: expected -10 to 9, got 10"),
    "padding without rows": (
        bag(weight=WEIGHT[:0], padding_idx=0),
        "embedding_bag: padding_idx: expected None, because the table has no rows, got 0",
    ),
    "weights": (bag(per_sample_weights=WEIGHT[0, :2]), "embedding_bag: per_sample_weights: expected the shape"),
    "weights' dtype": (bag(per_sample_weights=IDS), "embedding_bag: "),
    "weights' bags": (
        bag(nested(2, 1), offsets=None, per_sample_weights=nested(1, 2, dtype=torch.float64)),
        "embedding_bag: per_sample_weights: expected bags of the sizes that input has",
    ),
    "accumulation": (bag(accumulation="best"), "embedding_bag: no such accumulation [accumulation: expected"),
    "module's mode": (lambda: rt.EmbeddingBag(3, 2, mode="max"), "EmbeddingBag: mode: expected 'sum', 'mean'"),
    "module's scaling": (lambda: rt.Embedding(3, 2, scale_grad_by_freq=True), "Embedding: scale_grad_by_freq"),
    "embedding": (lambda: rt.embedding(IDS + 9, WEIGHT), "embedding: .*input[0] == 10 out of range"),
    "segment id": (lambda: rt.segment_sum(WEIGHT[:3], IDS, 3), "segment_sum: a segment id is out of range [segm"),
    "segment rows": (lambda: rt.segment_mean(WEIGHT, IDS), "segment_mean: [segment_ids: expected one for every row"),
    "num_segments": (lambda: rt.segment_mean(WEIGHT[:3], IDS, -1), "segment_mean: [num_segments: expected 0 to"),
    "segments fall": (lambda: rt.sparse_segment_sum(WEIGHT, IDS, torch.tensor([0, 2, 1])), "sparse_segment_sum: "),
    "sparse index": (lambda: rt.sparse_segment_mean(WEIGHT, IDS + 9, IDS * 0), "sparse_segment_mean: .*indices[0]"),
    "index_add index": (lambda: rt.index_add(WEIGHT, 0, IDS + 9, WEIGHT[:3]), "index_add: Index 10 out of range"),
    "index_add rows": (lambda: rt.index_add(WEIGHT, 0, IDS, WEIGHT), "index_add: "),
    "index_add widths": (lambda: rt.index_add(WEIGHT, 0, IDS, WEIGHT[:3, :2]), "index_add: source: expected the shape"),
    "index_add ranks": (lambda: rt.index_add(WEIGHT[0], 0, IDS[:1], WEIGHT[0, 0]), "index_add: source: expected the s"),
    "table of ids": (
        lambda: rt.sparse_segment_sum(WEIGHT, IDS, IDS[None]),
        "sparse_segment_sum: segment_ids should be a vector",
    ),
    "max_norm and id": (bag(IDS + 9, max_norm=1.0), "embedding_bag: input: expected 0 to 9, got 10"),
    "max_norm and negative id": (bag(-IDS, max_norm=1.0), "embedding_bag: input: expected 0 to 9, got -3"),
    "max_norm and float ids": (bag(IDS.float(), max_norm=1.0), "embedding_bag: input: expected int32 or int64, got"),
    "index_add dtypes": (
        lambda: rt.index_add(WEIGHT, 0, IDS, WEIGHT[:3].float()),
        "index_add: source: expected torch.float64, as input has, got torch.float32",
    ),
    "index_add whole numbers": (
        lambda: rt.index_add(IDS, 0, IDS, IDS.int()),
        "index_add: source: expected torch.int64, as input has, got torch.int32",
    ),
    "index_add slices": (
        lambda: rt.index_add(WEIGHT, -1, IDS[:2], WEIGHT[:, :3]),
        "index_add: source: expected the shape (10, 2), that of input with a slice for each index, got (10, 3)",
    ),
    "index_add integers": (lambda: rt.index_add(IDS, 0, IDS + 9, IDS), "index_add: index: expected 0 to 2, got"),
    "index_add to nothing": (lambda: rt.index_add(IDS[:0], 0, IDS, IDS), "index_add: index: expected none, because"),
    "coalesce places": (lambda: rt.coalesce(coo(IDS.double(), (2**20, 2**20))), "coalesce: coo: expected at most"),
    "coalesce column": (
        lambda: rt.coalesce(torch.sparse_coo_tensor(torch.tensor([[0, 0], [5, 1]]), torch.ones(2), (3, 3))),
        "coalesce: coo: expected indices of 0 to 2 in dimension 1, got 5",
    ),
    "coalesce negative column": (
        lambda: rt.fill_empty_rows(torch.sparse_coo_tensor(torch.tensor([[1, 0], [-1, 0]]), torch.ones(2), (3, 3)), 0),
        "fill_empty_rows: coo: expected indices of 0 to 2 in dimension 1, got -1",
    ),
    "coalesce row": (
        lambda: rt.coalesce(torch.sparse_coo_tensor(torch.tensor([[3, 0], [0, 0]]), torch.ones(2), (3, 3))),
        "coalesce: coo: expected indices of 0 to 2 in dimension 0, got 3",
    ),
    "large number of segments": (
        lambda: rt.segment_sum(WEIGHT[:3], IDS, 2**63),
        "segment_sum: num_segments: expected at most 9223372036854775807, got more",
    ),
    "large start": (
        lambda: rt.sparse_slice(coo(IDS.double()), [2**63], [1]),
        "sparse_slice: start: expected at most 9223372036854775807, got more",
    ),
    "dense dimensions": (lambda: rt.fill_empty_rows(coo(WEIGHT[:3]), 0.0), "fill_empty_rows: coo: expected no dense"),
    "no columns": (lambda: rt.fill_empty_rows(torch.zeros(3, 0).to_sparse(), 1.0), "fill_empty_rows: coo: expected c"),
    "start": (lambda: rt.sparse_slice(coo(IDS.double()), [0, 0], [1]), "sparse_slice: start: expected 1 numbers"),
    "size": (lambda: rt.sparse_slice(coo(IDS.double()), [0], [-1]), "sparse_slice: size: expected 1 numbers that"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_errors(case: str) -> None:
    call, text = CASES[case]
    pattern = re.escape("raggrad.torch." + text).replace(r"\.\*", ".*")
    with pytest.raises(ValueError, match=pattern):
        call()


def unbatch(**options: Any) -> Callable[[], Any]:
    return lambda: rt.unbatch_grad(WEIGHT, IDS, WEIGHT, **{"id": 7, **options})


def add(**options: Any) -> Callable[[], Any]:
    return lambda: rt.index_add(**{"input": WEIGHT, "dim": 0, "index": IDS, "source": WEIGHT[:3], **options})


LIST = [1, 2, 3]
NO_TENSORS = {
    "input": (lambda: rt.embedding(LIST, WEIGHT), "embedding: input"),
    "weight": (bag(weight=WEIGHT.tolist()), "embedding_bag: weight"),
    "offsets": (bag(offsets=LIST), "embedding_bag: offsets"),
    "weights": (bag(per_sample_weights=LIST), "embedding_bag: per_sample_weights"),
    "data": (lambda: rt.segment_sum(LIST, IDS), "segment_sum: data"),
    "segment_ids": (lambda: rt.segment_mean(WEIGHT[:3], LIST), "segment_mean: segment_ids"),
    "indices": (lambda: rt.sparse_segment_sum(WEIGHT, LIST, IDS), "sparse_segment_sum: indices"),
    "index": (lambda: rt.index_add(WEIGHT, 0, LIST, WEIGHT[:3]), "index_add: index"),
    "source": (lambda: rt.index_add(WEIGHT, 0, IDS, LIST), "index_add: source"),
}


@pytest.mark.parametrize("case", NO_TENSORS)
def test_arguments_that_are_no_tensors(case: str) -> None:
    call, text = NO_TENSORS[case]
    with pytest.raises(TypeError, match=re.escape(f"raggrad.torch.{text}: expected a tensor, got list")):
        call()


TYPES = {
    "padding_idx": (bag(padding_idx=1.5), "embedding_bag: padding_idx: expected a whole number, got 1.5"),
    "padding_idx's text": (lambda: rt.embedding(IDS, WEIGHT, "1"), "embedding: padding_idx: expected a whole number, "),
    "max_norm": (bag(max_norm="one"), "embedding_bag: max_norm: expected a number, got str"),
    "norm_type": (lambda: rt.embedding(IDS, WEIGHT, None, 1.0, None), "embedding: norm_type: expected a number, got N"),
    "dim": (add(dim="rows"), "index_add: dim: expected a whole number, got 'rows'"),
    "fraction of a dim": (add(dim=0.5), "index_add: dim: expected a whole number, got 0.5"),
    "alpha": (add(alpha="2"), "index_add: alpha: expected a number, got str"),
    "complex alpha": (add(alpha=1j), "index_add: alpha: expected a number, got complex"),
    "default_value": (lambda: rt.fill_empty_rows(coo(IDS.double()), None), "fill_empty_rows: default_value: expected "),
    "id": (unbatch(id=1.5), "unbatch_grad: id: expected a whole number, got 1.5"),
    "container": (unbatch(container=None), "unbatch_grad: container: expected a string, got NoneType"),
    "shared_name": (unbatch(shared_name=["a"]), "unbatch_grad: shared_name: expected a string, got list"),
    "include_last_offset": (bag(include_last_offset="no"), "embedding_bag: include_last_offset: expected bool, got s"),
    "sparse": (lambda: rt.embedding(IDS, WEIGHT, sparse="no"), "embedding: sparse: expected bool, got str"),
    "accumulation": (lambda: rt.coalesce(coo(IDS.double()), accumulation=1), "coalesce: accumulation: expected Opti"),
    "num_segments": (lambda: rt.segment_sum(WEIGHT[:3], IDS, 4.5), "segment_sum: num_segments: expected int, got f"),
    "start": (lambda: rt.sparse_slice(coo(IDS.double()), [1.5], [1]), "sparse_slice: start: expected a list of whole"),
    "size": (lambda: rt.sparse_slice(coo(IDS.double()), [0], 1), "sparse_slice: size: expected a list of whole num"),
    "piece": (lambda: rt.unbatch_grad(WEIGHT, IDS, [1.0], 7), "unbatch_grad: grad: expected a tensor, got list"),
}  # fmt: skip


@pytest.mark.parametrize("case", TYPES)
def test_arguments_of_another_type(case: str) -> None:
    call, text = TYPES[case]
    with pytest.raises(TypeError, match=re.escape(f"raggrad.torch.{text}")):
        call()


COLLECTION = {
    "tables": (lambda: rt.EmbeddingBagCollection(None), "tables: expected a dict or a list, got NoneType"),
    "flag": (lambda: tables(include_last_offset="no"), "include_last_offset: expected True or False, got 'no'"),
    "sparse": (lambda: tables(sparse=None), "sparse: expected True or False, got None"),
    "padding_idx": (lambda: tables(padding_idx="1"), "feature 'a': padding_idx: expected a whole number, got '1'"),
    "features": (lambda: tables()(IDS), "features: expected a dict, got Tensor"),
    "list of features": (lambda: rt.EmbeddingBagCollection([(3, 2)])(7), "features: expected a list, got int"),
    "weight": (lambda: tables().load_tables({"a": [1.0]}), "feature 'a': weight: expected a tensor, got list"),
}


def tables(**options: Any) -> Any:
    return rt.EmbeddingBagCollection({"a": (3, 2)}, **options)


@pytest.mark.parametrize("case", COLLECTION)
def test_arguments_of_a_collection_of_another_type(case: str) -> None:
    call, text = COLLECTION[case]
    with pytest.raises(TypeError, match=re.escape(f"raggrad.torch.EmbeddingBagCollection: {text}")):
        call()


@pytest.mark.parametrize("kind", ["sparse", "jagged"])
def test_tensors_without_a_kernel(kind: str) -> None:
    weight = WEIGHT.to_sparse() if kind == "sparse" else nested(2, 1, dtype=torch.float32)
    got = "SparseCPU" if kind == "sparse" else "a nested one"
    text = f"raggrad.torch.embedding: expected dense tensors on a CPU or a GPU, got {got}"
    with pytest.raises(NotImplementedError, match=re.escape(text)):
        rt.embedding(IDS, weight)


@pytest.mark.parametrize("name", ["segment_sum", "sparse_segment_sum"])
def test_vmap_cannot_count_segments(name: str) -> None:
    ids, more = torch.stack([IDS, IDS]), () if name == "segment_sum" else (IDS,)
    with pytest.raises(ValueError, match=rf"raggrad\.torch\.{name}: num_segments: expected a number inside torch.vmap"):
        torch.vmap(lambda segment_ids: getattr(rt, name)(WEIGHT[:3], *more, segment_ids))(ids)


STACKED_COO = torch.stack([coo(torch.ones(3), (5, 5))] * 2)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: torch.vmap(rt.coalesce)(STACKED_COO), "raggrad.torch.coalesce: coo"),
        (
            lambda: torch.vmap(lambda one: rt.sparse_slice(one, [0], [1]))(STACKED_COO),
            "raggrad.torch.sparse_slice: coo",
        ),
        (
            lambda: torch.vmap(lambda one: rt.fill_empty_rows(one, 0.0))(STACKED_COO),
            "raggrad.torch.fill_empty_rows: coo",
        ),
        (
            lambda: torch.vmap(lambda default: rt.fill_empty_rows(STACKED_COO[0], default))(torch.ones(2)),
            "raggrad.torch.fill_empty_rows: default_value",
        ),
        (
            lambda: torch.func.jacrev(lambda weight: rt.embedding(IDS, weight, sparse=True))(WEIGHT),
            "raggrad.torch: the gradient of an embedding with sparse=True",
        ),
        (
            lambda: torch.vmap(torch.func.grad(lambda w, i: rt.embedding(i, w, sparse=True).sum()), (None, 0))(
                WEIGHT, torch.tensor([[1, 1], [1, 2]])
            ),
            "raggrad.torch: the gradient of an embedding with sparse=True",
        ),
        (
            lambda: torch.autograd.functional.jacobian(
                lambda weight: rt.embedding_bag(IDS[None], weight, sparse=True), WEIGHT, vectorize=True
            ),
            "raggrad.torch: the gradient of an embedding with sparse=True",
        ),
    ],
)
def test_vmap_has_no_sparse_tensors(call: Callable[[], Any], text: str) -> None:
    with pytest.raises(NotImplementedError, match=re.escape(f"{text}: torch.vmap cannot stack sparse tensors")):
        call()


def test_a_sparse_tensor_that_is_the_same_for_all_examples_of_vmap() -> None:
    one = coo(torch.tensor([1.0, 2.0, 4.0]))
    sums = torch.vmap(lambda factor: rt.coalesce(one).values() * factor)(torch.tensor([1.0, 10.0]))
    assert sums.tolist() == [[1, 2, 4], [10, 20, 40]]


def test_vmap_cannot_stack_updates_in_backward() -> None:
    bag = rt.EmbeddingBag(10, 2)
    optimizer, before = rt.optim.SparseSGD(bag.parameters(), fused=True), bag.weight.detach().clone()
    with pytest.raises(NotImplementedError, match=r"optim\.SparseSGD: torch\.vmap cannot stack updates of a table"):
        torch.autograd.grad(bag(IDS[None]), bag.weight, torch.ones(3, 1, 2), is_grads_batched=True)
    optimizer.step()
    assert torch.equal(bag.weight, before)


def test_a_dimension_that_is_not_there() -> None:
    with pytest.raises(IndexError, match=r"raggrad\.torch\.index_add: dim: expected -2 to 1, got 2"):
        rt.index_add(WEIGHT, 2, IDS, WEIGHT)


@pytest.mark.parametrize("kind", ["meta", "fake"])
def test_tensors_without_numbers(kind: str) -> None:
    """There is nothing to check, but there are results."""
    with torch.device("meta") if kind == "meta" else torch._subclasses.FakeTensorMode():
        numbers, ids = torch.zeros(10, 2, dtype=torch.int64), torch.zeros(3, dtype=torch.int64)
        assert rt.index_add(numbers, 0, ids, numbers[:3]).shape == (10, 2)
        assert rt.embedding(ids, torch.zeros(10, 2), max_norm=1.0).shape == (3, 2)


def test_bad_ids_leave_a_table_with_max_norm_as_it_is() -> None:
    weight = WEIGHT.clone()
    for ids in ([1, 10], [-1, 1]):
        with pytest.raises(ValueError, match=r"embedding: input: expected 0 to 9"):
            rt.embedding(torch.tensor(ids), weight, max_norm=0.1)
    assert torch.equal(weight, WEIGHT)


def test_ragged_ids_of_two_levels() -> None:
    ragged = raggrad.Ragged.from_lists([[[1], [2]], [[3]]])
    with pytest.raises(TypeError, match=r"embedding_bag: input: expected a tensor or a raggrad.Ragged with one level"):
        rt.embedding_bag(ragged, WEIGHT)
    with pytest.raises(TypeError, match="got list"):
        rt.embedding_bag([1, 2], WEIGHT)


@pytest.mark.parametrize("function", ["coalesce", "fill_empty_rows", "sparse_slice"])
def test_functions_on_sparse_tensors_refuse_others(function: str) -> None:
    arguments = {"coalesce": (), "fill_empty_rows": (0.0,), "sparse_slice": ([0], [1])}[function]
    for other in (WEIGHT, WEIGHT.to_sparse_csr(), [1.0]):
        with pytest.raises(TypeError, match=rf"raggrad\.torch\.{function}: coo: expected a sparse COO tensor"):
            getattr(rt, function)(other, *arguments)


def test_an_operator_says_its_name() -> None:
    with pytest.raises(RuntimeError, match=r"INVALID_ARGUMENT: raggrad::sparse_segment: .*indices\[0\] == 10"):
        torch.ops.raggrad.sparse_segment(WEIGHT, IDS + 9, IDS * 0, 1, "sum", None)
    with pytest.raises(RuntimeError, match=r"\[combiner: expected 'sum', 'mean' or 'sqrtn', got 'prod'\]"):
        torch.ops.raggrad.sparse_segment(WEIGHT, IDS, IDS * 0, 1, "prod", None)


@pytest.mark.parametrize(
    ("stub", "text"),
    [
        ("sys.modules['torch'] = None", "raggrad.torch needs torch 2.10 or newer, and no torch can be imported"),
        ("sys.modules['torch'] = types.SimpleNamespace(__version__='2.9.1+cpu')", "and this is torch 2.9.1+cpu"),
    ],
    ids=["missing", "too old"],
)
def test_a_torch_that_cannot_be_used(stub: str, text: str) -> None:
    code = f"import sys, types; {stub}\ntry:\n import raggrad.torch\nexcept ImportError as error: print(error)"
    assert text in subprocess.check_output([sys.executable, "-c", code], text=True)
