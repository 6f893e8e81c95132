"""embedding_bag and embedding: torch's functions of these names, with raggrad's gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ._errors import check_number, check_range, check_tensor, named, whole_number
from ._operators import embeddings as ops
from ._pooling import waiting
from ._pooling.planned import FusedPlannedBag, PlannedBag, serves
from ._settings import order_of_eager
from ._tables.fused import FusedBag, FusedEmbedding, optimizer_of
from ._tables.shared import SharedBag, SharedEmbedding, reducer_of

if TYPE_CHECKING:
    from ..ragged import Ragged

MODES = ("sum", "mean", "sqrtn")


def embedding_bag(
    input: Tensor | Ragged,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
    *,
    accumulation: str | None = None,
) -> Tensor:
    """Pools rows of `weight` by bag: torch.nn.functional.embedding_bag, with one more mode, "sqrtn".

    `input` has the ids of all bags, int32 or int64: 1-D with `offsets`, 2-D with one bag a row, a jagged nested tensor,
    or a raggrad.Ragged. "sqrtn" divides the sum by the square root of the bag's size. An empty bag is zero.

    sparse=True gives weight a COO gradient with unique, ascending rows that is marked coalesced, also after
    `.backward()`; sparse=False a dense one. Neither uses atomics: the same input gives the same bits, with any number
    of threads. `accumulation` chooses the order of the gradient's sums (raggrad.accumulation).

    `per_sample_weights`, of the shape of `input` and the dtype of `weight` or float32, multiply rows before they are
    added, in every mode; means still divide by the number of ids. They have a gradient, too.

    Copies nothing but operands that are not contiguous. The call takes 4 bytes per id besides its result, and the bytes
    of all ids and weights again if some are padding; backward takes up to 28 bytes per id, 40 with weights. On a GPU
    the call sorts the ids for backward, unless there is padding: 16 bytes per id, 20 with weights, stay until backward
    is done.

    `include_last_offset`, `padding_idx` and `max_norm` with `norm_type` are as in torch. `mode="max"` and
    `scale_grad_by_freq` are ValueErrors.

    >>> import torch, raggrad.torch as rt
    >>> weight = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    >>> rt.embedding_bag(torch.tensor([0, 2, 1]), weight, torch.tensor([0, 2]))
    tensor([[3., 4.],
            [3., 4.]])
    """
    name = "embedding_bag"
    check_options(name, mode, scale_grad_by_freq)
    check_tensor(name, "weight", weight)
    ids, starts, include_last_offset = bags_of(name, input, offsets, include_last_offset)
    weights = weights_of(name, per_sample_weights, input, ids, starts, weight)
    padding_idx = row_number(name, padding_idx, weight)
    if max_norm is not None:
        _limit_norms(name, weight, ids, max_norm, norm_type)
    try:
        if torch.compiler.is_compiling():  # whatever depends on this call's surroundings is for eager calls alone
            bags = ids, starts, weights, mode, include_last_offset, padding_idx, sparse, accumulation
            return ops.embedding_bag(weight, *bags)
        order = order_of_eager(accumulation)
        if (reducer := reducer_of(weight)) is not None:
            bags = ids, starts, weights, mode, include_last_offset, padding_idx, sparse, order
            return SharedBag.apply(weight, reducer, *bags)
        optimizer = optimizer_of(weight)
        if waiting.must_not_wait(weight):
            _check_no_rows(name, weight, sparse and optimizer is None)
            bags = ids, starts, include_last_offset, weights, mode, order
            return waiting.pool(name, weight, optimizer, *bags, padding_idx)
        options = mode, include_last_offset, padding_idx, order
        if padding_idx is None and serves(weight):
            if optimizer is not None:
                return FusedPlannedBag.apply(weight, weights, optimizer, ids, starts, options)
            return PlannedBag.apply(weight, weights, sparse, ids, starts, options)
        if optimizer is not None:
            return FusedBag.apply(weight, weights, optimizer, ids, starts, options)
        return ops.embedding_bag(weight, ids, starts, weights, mode, include_last_offset, padding_idx, sparse, order)
    except RuntimeError as error:
        raise named(error, name, indices="input", data="weight", weights="per_sample_weights") from None


def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
    *,
    accumulation: str | None = None,
) -> Tensor:
    """Rows of `weight`: torch.nn.functional.embedding with raggrad's gradients, which embedding_bag describes.

    `input` has any shape; that of a jagged nested tensor gives one of its rows. `scale_grad_by_freq` is a ValueError.
    Rows of `padding_idx` have no gradient, and `max_norm` shortens rows of `weight` in place, as in torch.

    >>> import torch, raggrad.torch as rt
    >>> weight = torch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    >>> rt.embedding(torch.tensor([1, 1]), weight, sparse=True).sum().backward()
    >>> weight.grad.indices(), weight.grad.values()
    (tensor([[1]]), tensor([[2., 2.]]))
    """
    name = "embedding"
    check_tensor(name, "input", input)
    check_tensor(name, "weight", weight)
    if input.is_nested:
        ids, offsets = _parts_of_nested(name, "input", input)
        options = padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse
        rows = embedding(ids, weight, *options, accumulation=accumulation)
        return torch.nested.nested_tensor_from_jagged(rows, offsets)
    check_options(name, "sum", scale_grad_by_freq)
    padding_idx = row_number(name, padding_idx, weight)
    if max_norm is not None:
        _limit_norms(name, weight, input, max_norm, norm_type)
    try:
        if torch.compiler.is_compiling():
            return ops.embedding(weight, input, padding_idx, sparse, accumulation)
        order = order_of_eager(accumulation)
        if (reducer := reducer_of(weight)) is not None:
            return SharedEmbedding.apply(weight, reducer, input, padding_idx, sparse, order)
        optimizer = optimizer_of(weight)
        if waiting.must_not_wait(weight):
            _check_no_rows(name, weight, sparse and optimizer is None)
            ids = input.reshape(-1)
            bags = ids, torch.arange(ids.shape[0], device=ids.device), False, None, "sum", order
            rows = waiting.pool(name, weight, optimizer, *bags, padding_idx)
            return rows.reshape(*input.shape, *weight.shape[1:])
        if optimizer is not None:
            return FusedEmbedding.apply(weight, None, optimizer, input, padding_idx, order)
        return ops.embedding(weight, input, padding_idx, sparse, order)
    except RuntimeError as error:
        raise named(error, name, indices="input", data="weight", weights="per_sample_weights") from None


def _check_no_rows(name: str, weight: Tensor, sparse: bool) -> None:
    if sparse and weight.requires_grad and torch.is_grad_enabled():
        raise ValueError(
            f"raggrad.torch.{name}: sparse: the size of a sparse gradient depends on the ids, and calls must not wait "
            "for the GPU here; use sparse=False or an optimizer with fused=True"
        )


def check_options(name: str, mode: str, scale_grad_by_freq: bool) -> None:
    """Refuses options that torch has and raggrad has not."""
    if mode not in MODES:
        raise ValueError(f"raggrad.torch.{name}: mode: expected 'sum', 'mean' or 'sqrtn', got {mode!r}")
    if scale_grad_by_freq:
        raise ValueError(f"raggrad.torch.{name}: scale_grad_by_freq is not supported")


def bags_of(
    name: str, input: Tensor | Ragged, offsets: Tensor | None, include_last_offset: bool
) -> tuple[Tensor, Tensor, bool]:
    """Ids, offsets, and whether the last offset is an end."""
    if not isinstance(input, Tensor):
        return (*_parts_of_ragged(name, input, offsets), True)
    if input.is_nested:
        _check_no_offsets(name, offsets, "a nested tensor has its own")
        if input.dim() != 2:
            raise ValueError(f"raggrad.torch.{name}: input: expected a nested tensor of 2 dimensions")
        return (*_parts_of_nested(name, "input", input), True)
    if input.dim() == 2:
        _check_no_offsets(name, offsets, "every row of a 2-D input is a bag")
        bags, size = input.shape
        return input.reshape(-1), torch.arange(bags, device=input.device) * size, False
    if input.dim() != 1:
        raise ValueError(f"raggrad.torch.{name}: input: expected 1 or 2 dimensions, got {input.dim()}")
    if offsets is None:
        raise ValueError(f"raggrad.torch.{name}: offsets: expected a tensor for a 1-D input, got None")
    check_tensor(name, "offsets", offsets)
    return input, offsets, include_last_offset


def weights_of(
    name: str, weights: Tensor | None, input: Tensor | Ragged, ids: Tensor, starts: Tensor, table: Tensor
) -> Tensor | None:
    """The weights in the order of the ids, which bags_of has cut out of `input`."""
    if weights is None:
        return None
    check_tensor(name, "per_sample_weights", weights)
    if weights.dtype not in (table.dtype, torch.float32):
        kinds = " or ".join(dict.fromkeys([str(table.dtype), "torch.float32"]))
        raise ValueError(f"raggrad.torch.{name}: per_sample_weights: expected {kinds}, got {weights.dtype}")
    if isinstance(input, Tensor) and not input.is_nested and weights.shape != input.shape:
        raise ValueError(
            f"raggrad.torch.{name}: per_sample_weights: expected the shape of input, {tuple(input.shape)}, "
            f"got {tuple(weights.shape)}"
        )
    if weights.is_nested:
        flat, own_starts = _parts_of_nested(name, "per_sample_weights", weights)
        fit = own_starts is starts or torch.compiler.is_compiling() or torch.equal(own_starts.to(starts), starts)
        if not fit:
            raise ValueError(f"raggrad.torch.{name}: per_sample_weights: expected bags of the sizes that input has")
    else:
        flat = weights.reshape(-1)
    if flat.shape != ids.shape:
        raise ValueError(
            f"raggrad.torch.{name}: per_sample_weights: expected one for each of {ids.shape[0]} ids, "
            f"got {flat.shape[0]}"
        )
    return flat


def _parts_of_nested(name: str, argument: str, nested: Tensor) -> tuple[Tensor, Tensor]:
    """Values and offsets of a nested tensor."""
    if nested.layout != torch.jagged:
        raise ValueError(f"raggrad.torch.{name}: {argument}: expected a jagged nested tensor, got a strided one")
    if nested.lengths() is not None:  # between its rows lie values that belong to none
        nested = nested.contiguous()
    return nested.values(), nested.offsets()


def _parts_of_ragged(name: str, ragged: Ragged, offsets: Tensor | None) -> tuple[Tensor, Tensor]:
    splits, values = getattr(ragged, "nested_splits", None), getattr(ragged, "values", None)
    if splits is None or len(splits) != 1:
        raise TypeError(
            f"raggrad.torch.{name}: input: expected a tensor or a raggrad.Ragged with one level of splits, "
            f"got {type(ragged).__name__}"
        )
    _check_no_offsets(name, offsets, "a Ragged has its own")
    ids = torch.as_tensor(values)
    return ids, torch.as_tensor(splits[0]).to(ids.device)


def _check_no_offsets(name: str, offsets: Tensor | None, why: str) -> None:
    if offsets is not None:
        raise ValueError(f"raggrad.torch.{name}: offsets: expected None, because {why}")


def row_number(name: str, padding_idx: int | None, weight: Tensor) -> int | None:
    """padding_idx as a row that is not negative."""
    if padding_idx is None:
        return None
    rows = weight.shape[0]
    padding_idx = whole_number(f"raggrad.torch.{name}: padding_idx", padding_idx)
    if not -rows <= padding_idx < rows:
        expected = f"{-rows} to {rows - 1}" if rows else "None, because the table has no rows"
        raise ValueError(f"raggrad.torch.{name}: padding_idx: expected {expected}, got {padding_idx}")
    return padding_idx + rows if padding_idx < 0 else padding_idx


def _limit_norms(name: str, weight: Tensor, ids: Tensor, max_norm: float, norm_type: float) -> None:
    check_number(f"raggrad.torch.{name}: max_norm", max_norm)
    check_number(f"raggrad.torch.{name}: norm_type", norm_type)
    if not torch.compiler.is_compiling():
        if waiting.must_not_wait(weight):
            waiting.refuse(name, "max_norm")
        _check_ids(name, ids, weight.shape[0])
    with torch.no_grad():
        torch.embedding_renorm_(weight, ids.contiguous(), max_norm, norm_type)


def _check_ids(name: str, ids: Tensor, rows: int) -> None:
    """Torch shortens rows before it looks at the next id, and on a GPU wherever an id points."""
    if ids.dtype not in (torch.int32, torch.int64):
        raise ValueError(f"raggrad.torch.{name}: input: expected int32 or int64, got {ids.dtype}")
    check_range(name, "input", ids, rows)
