"""Forms of lookup operands: ids and weights of other packages, names of arguments, tables in shards."""

from __future__ import annotations

import importlib
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from conftest import same_bits
from raggrad import Ragged, errors, ops

from .lookup_data import IDS, ROWS, SPLITS, positive_weights, table


def installed(package: str) -> Any:
    try:
        return importlib.import_module(package)
    except ImportError:
        return None


def test_ids_in_every_form() -> None:
    weights = positive_weights()
    listed = [weights[a:b].tolist() for a, b in pairwise(SPLITS)]
    want = ops.embedding_lookup_sparse(table(), IDS, weights)
    ragged = Ragged(IDS.nested_splits, weights)
    places = np.stack([np.repeat(np.arange(5), np.diff(SPLITS)), np.concatenate([np.arange(len(r)) for r in ROWS])], 1)
    sparse = SimpleNamespace(indices=places, values=IDS.values, dense_shape=[5, 5])
    sparse_weights = SimpleNamespace(indices=places, values=weights, dense_shape=[5, 5])
    forms: list[tuple[Any, Any]] = [(ROWS, weights), (ROWS, ragged), (IDS, ragged), (sparse, sparse_weights)]
    if pyarrow := installed("pyarrow"):
        forms.append((pyarrow.array(ROWS), pyarrow.array(listed)))
        forms.append((pyarrow.array(ROWS), pyarrow.array(weights)))
    if polars := installed("polars"):
        forms.append((polars.Series(ROWS), polars.Series(weights)))
    if awkward := installed("awkward"):
        forms.append((awkward.Array(ROWS), awkward.Array(listed)))
    if torch := installed("torch"):
        forms.append((IDS.to_torch(), torch.tensor(weights)))
    for ids, w in forms:
        assert same_bits(ops.embedding_lookup_sparse(table(), ids, w), want)
    single = ops.embedding_lookup_sparse(table("float32"), ROWS, positive_weights("float32"), "sum")
    assert same_bits(ops.embedding_lookup_sparse(table("float32"), ROWS, listed, "sum"), single)
    assert ops.embedding_lookup_sparse(table(), []).shape == (0, 4)
    assert ops.embedding_lookup_sparse(table(), [[], []]).tolist() == [[0.0] * 4] * 2


def test_names_of_arguments_are_also_tensorflows() -> None:
    weights = positive_weights()
    want = ops.embedding_lookup_sparse(table(), IDS, weights)
    assert same_bits(ops.embedding_lookup_sparse(table(), sp_ids=IDS, sp_weights=weights, combiner=None), want)
    safe = ops.safe_embedding_lookup_sparse(embedding_weights=table(), sparse_ids=IDS, sparse_weights=weights)
    assert same_bits(safe, want)
    grad = ops.embedding_lookup_sparse_grad(want, table(), sp_ids=IDS, sp_weights=weights)
    assert same_bits(grad.weights, ops.embedding_lookup_sparse_grad(want, table(), IDS, weights).weights)
    with pytest.raises(errors.InvalidArgumentError, match=r"^embedding_lookup_sparse: .*sp_ids\[0\]: expected 0 to 2"):
        ops.embedding_lookup_sparse(table()[:3], sp_ids=IDS)
    with pytest.raises(errors.InvalidArgumentError, match="sp_ids: expected only one of them, got both"):
        ops.embedding_lookup_sparse(table(), IDS, sp_ids=IDS)


def test_weights_at_other_places_are_refused() -> None:
    weights = positive_weights()
    moved = Ragged([np.array([0, 2, 3, 4, 9, 10])], weights)
    for ids, given in [(IDS, moved), (ROWS, moved), (IDS, [[1.0] * 10, [], [], [], []])]:
        with pytest.raises(errors.InvalidArgumentError, match=r"weights.nested_splits\[0\]: expected 3 at \[1\]"):
            ops.embedding_lookup_sparse(table(), ids, given)
    with pytest.raises(errors.InvalidArgumentError, match=r"weights.nested_splits\[0\]: expected shape \(6,\)"):
        ops.embedding_lookup_sparse(table(), IDS, [[1.0] * 10])
    ids = SimpleNamespace(indices=[[0, 0], [1, 0]], values=[1, 2], dense_shape=[2, 2])
    other = SimpleNamespace(indices=[[0, 0], [1, 1]], values=[1.0, 2.0], dense_shape=[2, 2])
    with pytest.raises(errors.InvalidArgumentError, match=r"weights.indices: expected \[1 0\] at \[1\], as ids"):
        ops.embedding_lookup_sparse(table(), ids, other)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("strategy", ["div", "mod"])
@pytest.mark.parametrize("count", [1, 2, 4, 5])
def test_tables_in_shards(count: int, strategy: str, weighted: bool) -> None:
    whole = table("float32")
    shards = np.array_split(whole, count) if strategy == "div" else [whole[i::count] for i in range(count)]
    weights = positive_weights("float32") if weighted else None
    upstream = np.random.default_rng(3).normal(size=(len(ROWS), 4)).astype(np.float32)
    for name, extra in [("embedding_lookup_sparse", {}), ("safe_embedding_lookup_sparse", {"default_id": 5})]:
        lookup, lookup_grad = getattr(ops, name), getattr(ops, f"{name}_grad")
        got = lookup(shards, IDS, weights, partition_strategy=strategy, **extra)
        assert same_bits(got, lookup(whole, IDS, weights, **extra))
        want = lookup_grad(upstream, whole, IDS, weights, **extra)
        grad = lookup_grad(upstream, shards, IDS, weights, partition_strategy=strategy, **extra)
        dense = [slices.to_dense() for slices in getattr(grad, "params", grad)]
        joined = np.empty_like(whole)
        for i, part in enumerate(dense):
            joined[i::count] = part if strategy == "mod" else 0
        if strategy == "div":
            joined = np.concatenate(dense)
        assert same_bits(joined, getattr(want, "params", want).to_dense())
        if weighted and name == "embedding_lookup_sparse":
            assert same_bits(grad.weights, want.weights)


def test_bad_shards() -> None:
    whole = table()
    for params, text in [
        ([whole[:2], whole[2:]], r"params: expected \[3, 3\] rows, got \[2, 4\]"),
        ([whole[:3], whole[3:, :2]], r"params\[1\]: expected float64 rows of shape \(4,\).* got float64 .*\(2,\)"),
        ([whole[:3], whole[3:].astype(np.float32)], r"params\[1\]: expected float64 rows .* got float32"),
        ([whole[:3], np.float64(1)], r"params\[1\]: expected at least rank 1, got a scalar"),
        ([whole[:2], whole[2:4]], r"ids\[\d\]: expected 0 to 3, got"),
    ]:
        with pytest.raises(errors.InvalidArgumentError, match=f"^embedding_lookup_sparse: .*{text}"):
            ops.embedding_lookup_sparse(params, IDS)
    with pytest.raises(errors.InvalidArgumentError, match="partition_strategy: expected 'div' or 'mod', got 'row'"):
        ops.embedding_lookup_sparse(whole, IDS, partition_strategy="row")
