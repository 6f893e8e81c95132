"""Functions on sparse COO tensors, and index_add. Gradients flow through the values."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..indexed_slices import MAX_ROWS
from ._errors import check_no_vmap, check_number, check_range, check_tensor, named, whole_number
from ._operators import sparse as ops
from ._operators.segments import coalesce_rows
from ._settings import order_of

# torch.compile has no sparse tensors, and fails with an IndexError on the values of one.
_not_compiled = torch.compiler.disable(reason="torch.compile does not support sparse tensors")


def index_add(
    input: Tensor,
    dim: int = 0,
    index: Tensor | None = None,
    source: Tensor | None = None,
    *,
    alpha: complex = 1,
    accumulation: str | None = None,
) -> Tensor:
    """input with alpha * source[i] added to slice index[i] of dimension `dim`, for every i: torch.index_add.

    Slices of one place are first added up, half and bfloat16 in float32, then to the input: the same bits on every run
    and with any number of threads, also where torch's function depends on chance. Copies the input, and source too if
    `dim` is not 0; takes up to 24 bytes per index besides. Parts of complex numbers are added by themselves. Integers
    and bools are left to torch, whose sums of them do not depend on the order.

    >>> import torch, raggrad.torch as rt
    >>> rt.index_add(torch.zeros(3, 1), 0, torch.tensor([2, 0, 2]), torch.tensor([[1.0], [2.0], [4.0]]))
    tensor([[2.],
            [0.],
            [5.]])
    """
    if index is None or source is None:
        raise TypeError("raggrad.torch.index_add: index, source: expected tensors, got None")
    check_tensor("index_add", "input", input)
    check_tensor("index_add", "index", index)
    check_tensor("index_add", "source", source)
    dim = whole_number("raggrad.torch.index_add: dim", dim)
    if not (input.is_complex() and isinstance(alpha, complex)):
        check_number("raggrad.torch.index_add: alpha", alpha)
    if input.dim() == 0 and source.dim() == 0:
        return index_add(input[None], dim, index, source[None], alpha=alpha, accumulation=accumulation)[0]
    _check_source(input, dim, index, source)
    if input.is_complex() and not isinstance(alpha, complex):
        parts = torch.view_as_real(input), torch.view_as_real(source)
        place = dim if dim >= 0 else dim - 1
        sums = index_add(parts[0], place, index, parts[1], alpha=alpha, accumulation=accumulation)
        return torch.view_as_complex(sums.contiguous())
    if not input.is_floating_point():
        check_range("index_add", "index", index, input.shape[dim])
        return torch.index_add(input, dim, index, source, alpha=alpha)
    rows, slices = (input, source) if dim == 0 else (input.movedim(dim, 0), source.movedim(dim, 0))
    places = index if index.dim() else index[None]
    try:
        sums = ops.index_add(rows, slices, places, float(alpha), order_of(accumulation))
    except RuntimeError as error:
        raise named(error, "index_add", indices="index", values="source", table="input") from None
    return sums if dim == 0 else sums.movedim(0, dim)


def _check_source(input: Tensor, dim: int, index: Tensor, source: Tensor) -> None:
    """Refuses what cannot be added. In compiled code the operator counts slices: how many may depend on data."""
    name, dimensions = "raggrad.torch.index_add", input.dim()
    if source.dtype != input.dtype:
        raise ValueError(f"{name}: source: expected {input.dtype}, as input has, got {source.dtype}")
    if source.dim() != dimensions:
        raise ValueError(f"{name}: source: expected the shape of input but for dim {dim}, got {tuple(source.shape)}")
    if not -dimensions <= dim < dimensions:
        raise IndexError(f"{name}: dim: expected {-dimensions} to {dimensions - 1}, got {dim}")
    expected = list(input.shape)
    expected[dim] = source.shape[dim] if torch.compiler.is_compiling() else index.numel()
    if list(source.shape) != expected:
        raise ValueError(
            f"{name}: source: expected the shape {tuple(expected)}, that of input with a slice for each index, "
            f"got {tuple(source.shape)}"
        )


def coalesce(coo: Tensor, *, accumulation: str | None = None) -> Tensor:
    """The sparse tensor with every place once, in order: Tensor.coalesce(), with the same bits on every run.

    A tensor that is marked coalesced is returned as it is. The sparse dimensions may have up to 2^32 places together.
    Takes up to 24 bytes per entry besides the result, and 8 more for each if there are several sparse dimensions. Parts
    of complex numbers are added by themselves. Integers and bools are left to torch, whose sums of them do not depend
    on the order.

    >>> import torch, raggrad.torch as rt
    >>> twice = torch.sparse_coo_tensor(torch.tensor([[7, 3, 7]]), torch.tensor([1.0, 2.0, 4.0]), (10,))
    >>> rt.coalesce(twice).values()
    tensor([2., 5.])
    """
    _check_coo("coalesce", coo)
    return _coalesced("coalesce", coo, accumulation)


def _coalesced(name: str, coo: Tensor, accumulation: str | None) -> Tensor:
    """coalesce inside of the function `name`."""
    if coo.is_coalesced():
        return coo
    if not (coo.is_floating_point() or coo.is_complex()):
        return coo.coalesce()
    return _Coalesce.apply(coo, name, order_of(accumulation))


class _Coalesce(torch.autograd.Function):
    """Both tensors have the same numbers at the same places, so the gradient passes unchanged."""

    @staticmethod
    def forward(coo: Tensor, name: str, accumulation: str | None) -> Tensor:
        places, shape = coo._indices(), coo.shape[: coo.sparse_dim()]
        count = torch.Size(shape).numel()
        if count > MAX_ROWS:
            raise ValueError(f"raggrad.torch.{name}: coo: expected at most {MAX_ROWS} places, got {count}")
        values = coo._values()
        parts = torch.view_as_real(values) if values.is_complex() else values
        try:
            parts, unique = coalesce_rows(parts, _numbers_of(name, places, shape), count, accumulation)
        except RuntimeError as error:
            raise named(error, name, values="coo", rows="coo", indices="coo") from None
        values = torch.view_as_complex(parts) if values.is_complex() else parts
        indices = torch.stack(torch.unravel_index(unique, shape)) if len(shape) > 1 else unique.expand(len(shape), -1)
        return torch.sparse_coo_tensor(indices, values, coo.shape, is_coalesced=True, check_invariants=False)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Without it torch.func has no derivative. Nothing has to be kept."""

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        return grad, None, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, coo: Tensor, *options: Any) -> tuple[Tensor, None]:
        """Inside of torch.vmap, but of a tensor that is the same for all examples."""
        return _Coalesce.apply(coo, *options), None


def _numbers_of(name: str, places: Tensor, shape: torch.Size) -> Tensor:
    """One number for every place: rows first. With one dimension it is the row, which the operator checks; with more, a
    column that is not there would be one of the next row.
    """
    if len(shape) != 1 and places.numel():
        for dimension, (low, high) in enumerate(torch.stack(torch.aminmax(places, dim=1), 1).tolist()):
            for index in (low, high):
                if not 0 <= index < shape[dimension]:
                    raise ValueError(
                        f"raggrad.torch.{name}: coo: expected indices of 0 to {shape[dimension] - 1} in dimension "
                        f"{dimension}, got {index}"
                    )
    number = places[0] if len(shape) else places.new_zeros(places.shape[1])
    for dimension in range(1, len(shape)):
        number = number * shape[dimension] + places[dimension]
    return number


@_not_compiled
def fill_empty_rows(coo: Tensor, default_value: Tensor | float) -> tuple[Tensor, Tensor]:
    """Gives every row without entries one with the default value, in its first column.

    Returns the sparse tensor, coalesced, and a tensor that says which rows were empty. Differentiable in the values of
    `coo` and in `default_value`. A tensor that is not coalesced is coalesced first.

    >>> import torch, raggrad.torch as rt
    >>> coo = torch.tensor([[0.0, 3.0], [0.0, 0.0]]).to_sparse()
    >>> filled, empty = rt.fill_empty_rows(coo, 9.0)
    >>> filled.to_dense(), empty
    (tensor([[0., 3.],
            [9., 0.]]), tensor([False,  True]))
    """
    entries = _entries_of("fill_empty_rows", coo)
    check_no_vmap("raggrad.torch.fill_empty_rows: default_value", default_value)
    if coo.shape[:1].numel() and not coo.shape[1:].numel():  # an entry would lie outside of the tensor
        raise ValueError(f"raggrad.torch.fill_empty_rows: coo: expected columns, got shape {tuple(coo.shape)}")
    values = entries.values()
    try:
        default = torch.as_tensor(default_value, dtype=values.dtype, device=values.device)
    except TypeError:
        raise TypeError(
            f"raggrad.torch.fill_empty_rows: default_value: expected a number, got {type(default_value).__name__}"
        ) from None
    try:
        filled, indices, empty_rows, _ = ops.fill_empty_rows(
            values, default, entries.indices().t().contiguous(), list(coo.shape)
        )
    except RuntimeError as error:
        raise named(error, "fill_empty_rows", values="coo", indices="coo") from None
    return _coo(indices, filled, coo.shape), empty_rows


@_not_compiled
def sparse_slice(coo: Tensor, start: Sequence[int], size: Sequence[int]) -> Tensor:
    """The box [start, start + size) of a sparse tensor, coalesced, cut off where the tensor ends.

    Differentiable in the values of `coo`. A tensor that is not coalesced is coalesced first.

    >>> import torch, raggrad.torch as rt
    >>> coo = torch.tensor([[0.0, 3.0], [5.0, 0.0]]).to_sparse()
    >>> rt.sparse_slice(coo, [0, 1], [2, 1]).to_dense()
    tensor([[3.],
            [0.]])
    """
    entries = _entries_of("sparse_slice", coo)
    begin, extent = _whole_numbers("start", start), _whole_numbers("size", size)
    for argument, numbers in (("start", begin), ("size", extent)):
        if len(numbers) != coo.dim() or min(numbers, default=0) < 0:
            raise ValueError(
                f"raggrad.torch.sparse_slice: {argument}: expected {coo.dim()} numbers that are not negative, "
                f"got {numbers}"
            )
    try:
        values, indices = ops.sparse_slice(
            entries.values(), entries.indices().t().contiguous(), list(coo.shape), begin, extent
        )
    except RuntimeError as error:
        raise named(error, "sparse_slice", values="coo", indices="coo") from None
    shape = [max(min(n, whole - first), 0) for n, whole, first in zip(extent, coo.shape, begin, strict=True)]
    return _coo(indices, values, shape)


def _whole_numbers(argument: str, numbers: Sequence[int]) -> list[int]:
    try:
        return [operator.index(number) for number in numbers]
    except TypeError:
        raise TypeError(
            f"raggrad.torch.sparse_slice: {argument}: expected a list of whole numbers, got {numbers}"
        ) from None


def _check_coo(name: str, coo: Tensor) -> None:
    if not isinstance(coo, Tensor) or coo.layout != torch.sparse_coo:
        kind = coo.layout if isinstance(coo, Tensor) else type(coo).__name__
        raise TypeError(f"raggrad.torch.{name}: coo: expected a sparse COO tensor, got {kind}")
    check_no_vmap(f"raggrad.torch.{name}: coo", coo)


def _entries_of(name: str, coo: Tensor) -> Tensor:
    _check_coo(name, coo)
    if coo.dense_dim() != 0:
        raise ValueError(f"raggrad.torch.{name}: coo: expected no dense dimensions, got {coo.dense_dim()}")
    # Whole numbers have the same sum in any order.
    return _coalesced(name, coo, None) if coo.is_floating_point() else coo.coalesce()


def _coo(indices: Tensor, values: Tensor, shape: Sequence[int]) -> Tensor:
    return torch.sparse_coo_tensor(indices.t(), values, shape, is_coalesced=True, check_invariants=False)
