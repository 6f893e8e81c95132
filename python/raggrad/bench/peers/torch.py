"""PyTorch: the ways in which its users write these operators, which it lacks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import torch

from . import Inputs, Way, rows_in_use


def about() -> dict[str, str]:
    return {"torch": torch.__version__, "numpy": np.__version__}


def use_threads(count: int) -> None:
    torch.set_num_threads(count)


def tensor(array: np.ndarray) -> torch.Tensor:
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def array(result: torch.Tensor) -> np.ndarray:
    result = result.detach().contiguous()
    if result.dtype == torch.bfloat16:
        return result.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return result.numpy()


def offsets(inputs: Inputs) -> torch.Tensor:
    """The begin of each segment, and the end of the last: torch takes these instead of segment ids."""
    numbers = np.arange(len(inputs["grad"]) + 1)
    return torch.from_numpy(np.searchsorted(inputs["segment_ids"], numbers).astype(inputs["indices"].dtype))


def _contributions(grad: torch.Tensor, segment_ids: torch.Tensor) -> torch.Tensor:
    counts = torch.bincount(segment_ids, minlength=len(grad)).clamp_(min=1)
    return (grad / counts[:, None].to(grad.dtype)).index_select(0, segment_ids)


def _unique_and_index_add(inputs: Inputs) -> Callable[[], Any]:
    grad, indices, segment_ids = (tensor(inputs[name]) for name in ("grad", "indices", "segment_ids"))

    def call() -> tuple[torch.Tensor, torch.Tensor]:
        used, places = torch.unique(indices, return_inverse=True)
        rows = torch.zeros(len(used), grad.shape[1], dtype=grad.dtype)
        return rows.index_add_(0, places, _contributions(grad, segment_ids)), used

    return call


def _coalesce(inputs: Inputs) -> Callable[[], Any]:
    grad, indices, segment_ids = (tensor(inputs[name]) for name in ("grad", "indices", "segment_ids"))
    size = (int(inputs["dense_output_dim0"]), grad.shape[1])

    def call() -> tuple[torch.Tensor, torch.Tensor]:
        sparse = torch.sparse_coo_tensor(
            indices[None], _contributions(grad, segment_ids), size, check_invariants=False
        ).coalesce()
        return sparse.values(), sparse.indices()[0]

    return call


def _dense_backward(inputs: Inputs) -> Callable[[], Any]:
    """The backward of embedding_bag: a dense gradient with all rows of the table."""
    grad, indices = tensor(inputs["grad"]), tensor(inputs["indices"])
    table = torch.zeros(int(inputs["dense_output_dim0"]), grad.shape[1], dtype=grad.dtype, requires_grad=True)
    pooled = torch.nn.functional.embedding_bag(
        indices, table, offsets(inputs), mode="mean", include_last_offset=True
    )

    def call() -> tuple[Inputs, torch.Tensor]:
        return inputs, torch.autograd.grad(pooled, table, grad, retain_graph=True)[0]

    return call


def _gather_and_mask(inputs: Inputs) -> Callable[[], Any]:
    positions, grad = tensor(inputs["reverse_index_map"]), tensor(inputs["grad_values"])

    def call() -> tuple[torch.Tensor, torch.Tensor]:
        left = torch.ones(len(grad), dtype=torch.bool)
        left[positions] = False
        return grad[positions], grad[left].sum()

    return call


def _gather_and_zero(inputs: Inputs) -> Callable[[], Any]:
    positions, grad = tensor(inputs["reverse_index_map"]), tensor(inputs["grad_values"])

    def call() -> tuple[torch.Tensor, torch.Tensor]:
        return grad[positions], grad.index_fill(0, positions, 0).sum()

    return call


def _window_mask(inputs: Inputs) -> Callable[[], Any]:
    grad, indices, start = (tensor(inputs[name]) for name in ("backprop_val_grad", "input_indices", "input_start"))
    end = start + tensor(inputs["size"])

    def call() -> torch.Tensor:
        inside = ((indices >= start) & (indices < end)).all(1)
        result = torch.zeros(len(indices), dtype=grad.dtype)
        result[inside] = grad
        return result

    return call


def _window_mask_by_column(inputs: Inputs) -> Callable[[], Any]:
    grad, indices = tensor(inputs["backprop_val_grad"]), tensor(inputs["input_indices"])
    begins, ends = inputs["input_start"].tolist(), (inputs["input_start"] + inputs["size"]).tolist()

    def call() -> torch.Tensor:
        inside = torch.ones(len(indices), dtype=torch.bool)
        for column, begin, end in zip(indices.unbind(1), begins, ends, strict=True):
            inside &= (column >= begin) & (column < end)
        return torch.zeros(len(indices), dtype=grad.dtype).masked_scatter_(inside, grad)

    return call


def _cat(inputs: Inputs) -> Callable[[], Any]:
    lengths = np.diff(inputs["row_splits"]).tolist()
    pieces = list(tensor(inputs["values"]).split(lengths))
    missing = inputs["missing"].tolist()

    def call() -> torch.Tensor:
        for number in missing:
            pieces[number] = torch.zeros(lengths[number], 64)
        return torch.cat(pieces)

    return call


def _arrays(result: Any) -> list[np.ndarray]:
    return [array(part) for part in (result if isinstance(result, tuple) else (result,))]


def _dense_arrays(result: tuple[Inputs, torch.Tensor]) -> list[np.ndarray]:
    return rows_in_use(result[0], array(result[1]))


_way = partial(Way, arrays=_arrays)

WAYS = {
    "SparseSegmentMeanGradV2": [
        _way("unique + index_add", _unique_and_index_add),
        _way("coalesce", _coalesce),
        Way("dense embedding_bag backward", _dense_backward, _dense_arrays),
    ],
    "SparseFillEmptyRowsGrad": [_way("gather + mask", _gather_and_mask), _way("gather + fill", _gather_and_zero)],
    "SparseSliceGrad": [_way("mask", _window_mask), _way("mask by column", _window_mask_by_column)],
    "RaggedTensorToVariantGradient": [_way("torch.cat", _cat)],
}
