"""Tensors without numbers on devices that need not be there: FakeTensorMode, which torch.compile uses, and meta."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from .door import rt, torch

fake_mode = torch._subclasses.FakeTensorMode


def on(device: str) -> dict[str, Any]:
    """Operands of all functions."""
    ids = torch.zeros(3, dtype=torch.int64, device=device)
    return {
        "weight": torch.zeros(10, 2, device=device),
        "rows": torch.zeros(3, 2, device=device),
        "ids": ids,
        "offsets": torch.zeros(2, dtype=torch.int64, device=device),
        "factors": torch.zeros(3, device=device),
    }


# function(here, there), and the arguments that the error names.
MIXED: dict[str, tuple[Callable[..., Any], str, str]] = {
    "embedding_bag": (lambda a, b: rt.embedding_bag(b["ids"], a["weight"], b["offsets"]), "input", "weight"),
    "offsets": (lambda a, b: rt.embedding_bag(a["ids"], a["weight"], b["offsets"]), "offsets", "weight"),
    "weights": (
        lambda a, b: rt.embedding_bag(a["ids"], a["weight"], a["offsets"], per_sample_weights=b["factors"]),
        "per_sample_weights",
        "weight",
    ),
    "embedding": (lambda a, b: rt.embedding(b["ids"], a["weight"]), "input", "weight"),
    "segment_sum": (lambda a, b: rt.segment_sum(a["rows"], b["ids"], 2), "segment_ids", "data"),
    "sparse_segment_mean": (lambda a, b: rt.sparse_segment_mean(a["rows"], b["ids"], b["ids"], 2), "indices", "data"),
    "index_add": (lambda a, b: rt.index_add(a["weight"], 0, b["ids"], a["rows"]), "index", "input"),
}


@pytest.mark.parametrize("case", MIXED)
@pytest.mark.parametrize(("here", "there"), [("cuda", "cpu"), ("cpu", "cuda")])
def test_fake_tensors_on_several_devices(case: str, here: str, there: str) -> None:
    """The same error as from kernels, where a program is traced and not when it runs."""
    function, argument, first = MIXED[case]
    with fake_mode():
        assert function(on(here), on(here)).device.type == here
        text = rf"\.{'embedding_bag' if case in ('offsets', 'weights') else case}: operands are on different devices "
        text += rf"\[{argument}: expected that of {first} \({here}.*\), got {there}"
        with pytest.raises(ValueError, match=text):
            function(on(here), on(there))


def test_an_update_of_fake_tensors_on_several_devices() -> None:
    with fake_mode():
        here, there = on("cpu"), on("cuda")
        rule = "sgd", 0.1, 0.0, 0.0, 0.0, 1, None
        with pytest.raises(RuntimeError, match=r"raggrad::apply_rows_: .*\[rows: expected that of table"):
            torch.ops.raggrad.apply_rows_(here["weight"], None, None, here["rows"], there["ids"], *rule)


def test_ids_of_the_host_for_a_table_on_meta() -> None:
    """As torch's functions: models are run on meta for the shapes of their results."""
    here, there = on("meta"), on("cpu")
    for case in ("embedding_bag", "embedding"):
        assert MIXED[case][0](here, there).is_meta


@pytest.mark.parametrize("case", MIXED)
def test_ids_on_meta_for_a_table_of_the_host(case: str) -> None:
    """Torch gives memory that nobody wrote to."""
    with pytest.raises(ValueError, match=r"on different devices \[.*expected that of .* \(cpu\), got meta"):
        MIXED[case][0](on("cpu"), on("meta"))


@pytest.mark.parametrize("device", ["cpu", "cuda", "meta"])
@pytest.mark.parametrize("fused", [False, True], ids=["separate", "fused"])
def test_modules_where_there_are_no_numbers(fused: bool, device: str) -> None:
    """There need be no GPU: tools run a model like that for the shapes and the memory of its results."""
    with fake_mode() if device != "meta" else torch.device("meta"):
        bags = rt.EmbeddingBagCollection({"a": (10, 2), "b": (5, 2)}, sparse=fused, device=device)
        bag = rt.EmbeddingBag(10, 2, sparse=fused, device=device)
        rows = rt.Embedding(10, 2, sparse=fused, device=device)
        tables = [bag.weight, rows.weight, *bags.parameters()]
        optimizer = rt.optim.SparseAdam(tables, fused=fused)
        ids, offsets = (on(device)[name] for name in ("ids", "offsets"))
        results = [bag(ids, offsets), rows(ids), *bags({"a": (ids, offsets), "b": (ids, offsets)}).values()]
        assert [tuple(result.shape) for result in results] == [(2, 2), (3, 2), (2, 2), (2, 2)]
        assert {result.device.type for result in results} == {device}
        if device == "cuda":  # torch's backward asks for a real one
            return
        sum(result.sum() for result in results).backward()
        assert all((table.grad is None) == fused for table in tables)
        if fused:
            optimizer.step()
