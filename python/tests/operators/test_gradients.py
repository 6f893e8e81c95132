"""Every gradient operator, compared with finite differences of its forward operator.

A pair is a function that draws an instance of the problem: parameters, the forward as a function of them, and their
gradients as a function of the gradient of the output. To check one more pair, write such a function with the decorator
@pair.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
from raggrad import IndexedSlices, Ragged, VariantArray, ops, raw_ops

STEP = 1e-5
TOLERANCE = 1e-7

Arrays = dict[str, np.ndarray]


class Instance(NamedTuple):
    parameters: Arrays  # float64
    forward: Callable[[Arrays], np.ndarray]
    gradients: Callable[[np.ndarray], Arrays]


PAIRS: dict[str, Callable[[np.random.Generator], Instance]] = {}


def pair(draw: Callable[[np.random.Generator], Instance]) -> Callable[[np.random.Generator], Instance]:
    PAIRS[draw.__name__] = draw
    return draw


def ragged_rows(rng: np.random.Generator, rows: int) -> np.ndarray:
    """The rows of entries. Many rows are empty, a few have several entries; they may be sorted."""
    lengths = rng.geometric(0.4, rows) * (rng.random(rows) < 0.6)
    entries = np.repeat(np.arange(rows), lengths)
    return entries if rng.random() < 0.5 else rng.permutation(entries)


@pair
def sparse_fill_empty_rows(rng: np.random.Generator) -> Instance:
    rows = int(rng.integers(0, 12))
    first = ragged_rows(rng, rows)
    indices = np.stack([first, rng.integers(0, 5, len(first))], axis=1)

    def filled(parameters: Arrays) -> raw_ops.SparseFillEmptyRowsOutput:
        return raw_ops.SparseFillEmptyRows(indices=indices, dense_shape=np.array([rows, 5]), **parameters)

    parameters = {"values": rng.normal(size=len(first)), "default_value": rng.normal(size=())}
    reverse_index_map = filled(parameters).reverse_index_map

    def gradients(grad: np.ndarray) -> Arrays:
        result = raw_ops.SparseFillEmptyRowsGrad(reverse_index_map=reverse_index_map, grad_values=grad)
        return {"values": result.d_values, "default_value": result.d_default_value}

    return Instance(parameters, lambda p: filled(p).output_values, gradients)


@pair
def ragged_fill_empty_rows(rng: np.random.Generator) -> Instance:
    nrows = int(rng.integers(0, 12))
    value_rowids = ragged_rows(rng, nrows)

    def filled(parameters: Arrays) -> raw_ops.RaggedFillEmptyRowsOutput:
        return raw_ops.RaggedFillEmptyRows(value_rowids=value_rowids, nrows=np.array(nrows), **parameters)

    parameters = {"values": rng.normal(size=len(value_rowids)), "default_value": rng.normal(size=())}
    reverse_index_map = filled(parameters).reverse_index_map

    def gradients(grad: np.ndarray) -> Arrays:
        result = raw_ops.RaggedFillEmptyRowsGrad(reverse_index_map=reverse_index_map, grad_values=grad)
        return {"values": result.d_values, "default_value": result.d_default_value}

    return Instance(parameters, lambda p: filled(p).output_values, gradients)


@pair
def sparse_slice(rng: np.random.Generator) -> Instance:
    rank = int(rng.integers(0, 4))
    indices = rng.integers(0, 4, (int(rng.integers(0, 20)), rank))  # with repeats
    if rank and rng.random() < 0.5:
        indices = indices[np.lexsort(indices.T[::-1])]
    start, size = rng.integers(-1, 2, rank), rng.integers(2, 5, rank)

    def sliced(parameters: Arrays) -> raw_ops.SparseSliceOutput:
        return raw_ops.SparseSlice(
            indices=indices, shape=np.full(rank, 4), start=start, size=size, values=parameters["values"]
        )

    parameters = {"values": rng.normal(size=len(indices))}
    output_indices = sliced(parameters).output_indices

    def gradients(grad: np.ndarray) -> Arrays:
        return {
            "values": raw_ops.SparseSliceGrad(
                backprop_val_grad=grad, input_indices=indices, input_start=start, output_indices=output_indices
            )
        }

    return Instance(parameters, lambda p: sliced(p).output_values, gradients)


def segment_pool(combiner: str, version: str) -> Callable[[np.random.Generator], Instance]:
    """SparseSegment<combiner>WithNumSegments with its dense or sparse gradient: skipped segments, repeated rows."""

    def draw(rng: np.random.Generator) -> Instance:
        rows, segments, n = int(rng.integers(1, 8)), int(rng.integers(1, 8)), int(rng.integers(0, 30))
        ids = {"indices": rng.integers(0, rows, n), "segment_ids": np.sort(rng.integers(0, segments, n))}
        forward = getattr(raw_ops, f"SparseSegment{combiner}WithNumSegments")
        backward = getattr(raw_ops, f"SparseSegment{combiner}Grad{version}")

        def gradients(grad: np.ndarray) -> Arrays:
            if version == "":
                return {"data": backward(grad=grad, output_dim0=rows, **ids)}
            sparse = backward(grad=grad, dense_output_dim0=rows, **ids)
            return {"data": IndexedSlices(sparse.output, sparse.sorted_unique_indices, (rows, 3)).to_dense()}

        parameters = {"data": rng.normal(size=(rows, 3))}
        return Instance(parameters, lambda p: forward(data=p["data"], num_segments=segments, **ids), gradients)

    return draw


for combiner in ("Sum", "Mean", "SqrtN"):
    for version in ("", "V2"):
        PAIRS[f"SparseSegment{combiner}Grad{version}"] = segment_pool(combiner, version)


def unsorted_segments(combiner: str) -> Callable[[np.random.Generator], Instance]:
    """ops.segment_<combiner>: segment ids in any order, some segments without rows."""

    def draw(rng: np.random.Generator) -> Instance:
        segments, rows = int(rng.integers(1, 8)), int(rng.integers(0, 20))
        ids = rng.integers(0, segments, rows)
        forward, backward = getattr(ops, f"segment_{combiner}"), getattr(ops, f"segment_{combiner}_grad")
        return Instance(
            {"data": rng.normal(size=(rows, 3))},
            lambda p: forward(p["data"], ids, segments),
            lambda grad: {"data": backward(grad, ids)},
        )

    return draw


for combiner in ("sum", "mean", "sqrtn"):
    PAIRS[f"segment_{combiner}"] = unsorted_segments(combiner)


def ragged_splits(rng: np.random.Generator, rows: int, levels: int) -> list[np.ndarray]:
    """Splits, outermost first, of rows of which some are empty."""
    splits = []
    for _ in range(levels):
        lengths = rng.geometric(0.5, rows) * (rng.random(rows) < 0.7)
        splits.append(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))
        rows = int(splits[-1][-1])
    return splits


@pair
def ragged_tensor_to_variant(rng: np.random.Generator) -> Instance:
    """Some pieces are left out of the loss: their gradients are missing."""
    levels = int(rng.integers(1, 3))
    splits = ragged_splits(rng, int(rng.integers(0, 6)), levels)
    used = rng.random(len(splits[0]) - 1) < (0.6 if levels == 1 else 1.0)
    parameters = {"values": rng.normal(size=(splits[-1][-1], 2))}

    def pieces(values: np.ndarray) -> VariantArray:
        return raw_ops.RaggedTensorToVariant(rt_nested_splits=splits, rt_dense_values=values, batched_input=True)

    shapes = [piece.values.shape for piece in pieces(parameters["values"])]

    def forward(given: Arrays) -> np.ndarray:
        values = [piece.values.ravel() for piece, use in zip(pieces(given["values"]), used, strict=True) if use]
        return np.concatenate([np.zeros(0), *values])

    def gradients(grad: np.ndarray) -> Arrays:
        elements, begin = [], 0
        for shape, use in zip(shapes, used, strict=True):
            size = int(np.prod(shape)) if use else 0
            elements.append(Ragged([], grad[begin : begin + size].reshape(shape)) if use else None)
            begin += size
        values_shape = np.array(parameters["values"].shape, np.int32)
        joined = raw_ops.RaggedTensorToVariantGradient(
            encoded_ragged_grad=VariantArray(elements, (len(elements),)), row_splits=splits[0],
            dense_values_shape=values_shape, Tvalues="float64",
        )  # fmt: skip
        return {"values": joined.reshape(values_shape)}

    return Instance(parameters, forward, gradients)


@pair
def ragged_tensor_from_variant(rng: np.random.Generator) -> Instance:
    levels = int(rng.integers(0, 3))
    count = int(rng.integers(1, 5))
    splits = [ragged_splits(rng, int(rng.integers(0, 4)), levels) for _ in range(count)]
    rows = [own[-1][-1] if own else rng.integers(0, 4) for own in splits]
    parameters = {str(i): rng.normal(size=(n, 2)) for i, n in enumerate(rows)}

    def joined(given: Arrays) -> raw_ops.RaggedTensorFromVariantOutput:
        return raw_ops.RaggedTensorFromVariant(
            encoded_ragged=[Ragged(own, given[str(i)]) for i, own in enumerate(splits)], input_ragged_rank=levels,
            output_ragged_rank=levels + 1, Tvalues="float64",
        )  # fmt: skip

    output_splits = joined(parameters).output_nested_splits

    def gradients(grad: np.ndarray) -> Arrays:
        pieces = raw_ops.RaggedTensorToVariant(
            rt_nested_splits=output_splits, rt_dense_values=grad, batched_input=True
        )
        return {str(i): piece.values for i, piece in enumerate(pieces)}

    return Instance(parameters, lambda p: joined(p).output_dense_values, gradients)


def differences(loss: Callable[[Arrays], float], parameters: Arrays, name: str) -> np.ndarray:
    """Central differences, entry by entry."""
    slopes = np.zeros(parameters[name].shape)
    for entry in np.ndindex(slopes.shape):
        sides = []
        for step in (STEP, -STEP):
            moved = parameters[name].copy()
            moved[entry] += step
            sides.append(loss(parameters | {name: moved}))
        slopes[entry] = (sides[0] - sides[1]) / (2 * STEP)
    return slopes


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("name", PAIRS)
def test_gradient_is_the_slope_of_the_forward(name: str, seed: int) -> None:
    rng = np.random.default_rng([seed, *name.encode()])
    instance = PAIRS[name](rng)
    output = instance.forward(instance.parameters)
    weights = rng.normal(size=output.shape)

    def loss(parameters: Arrays) -> float:
        return float(np.sum(weights * np.sin(instance.forward(parameters))))

    gradients = instance.gradients(weights * np.cos(output))
    assert gradients.keys() == instance.parameters.keys()
    for parameter, gradient in gradients.items():
        slopes = differences(loss, instance.parameters, parameter)
        np.testing.assert_allclose(gradient, slopes, rtol=TOLERANCE, atol=TOLERANCE)
