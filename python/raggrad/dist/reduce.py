"""all_reduce: sparse gradients, summed over ranks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ..indexed_slices import MAX_ROWS
from ..torch._operators.segments import coo
from ..torch.sparse import coalesce
from ._messages import Ranks
from ._sums import Rows, agree_on_bounds, divided, facts_of, spread, sum_at_owners

_NAME = "all_reduce"
_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


@torch.no_grad()
def all_reduce(
    coo_or_param: Any,
    group: dist.ProcessGroup | None = None,
    *,
    average: bool = False,
    wire: torch.dtype | None = None,
) -> Any:
    """Sums sparse gradients over the ranks of a group.

    `coo_or_param` is a sparse COO tensor, a parameter with a sparse `.grad`, or several of these, in a list or as
    `module.parameters()` gives them. Several share one exchange, and come back as a list. Every rank ends with the same
    coalesced tensor, whose rows are unique and ascending. It is returned, and becomes the `.grad` of a parameter. A
    parameter without a gradient has no rows on this rank. All ranks of the group must call it, with the same tables in
    the same order.

    `average` divides the sums by the number of ranks. `wire=torch.bfloat16` sends rows in 2 bytes a value: every addend
    and every sum is then rounded to 8 bits, an error of at most 2^-9 of its magnitude each.

    Rows are cut into one range per rank, so that each owns about as many; owners sum what they get, in the order of the
    ranks, and send the sums to all. With n rows on each of W ranks and u rows in all, a rank sends n (W - 1) / W and
    then u (W - 1) / W rows, with ids of 4 bytes (8 from 2^31 rows on), besides 2 KB to each rank. Takes the memory of
    what is sent and received. The bits depend on the number of ranks, and on nothing else; raggrad.dist.register can
    avoid that, too.

    A rank that dies, comes too late or has other tables is a RuntimeError on all, which names it; gradients are then
    unchanged.

    >>> import torch, raggrad.dist as rd
    >>> store = torch.distributed.HashStore()  # of one process; torchrun makes one for several
    >>> torch.distributed.init_process_group("gloo", rank=0, world_size=1, store=store)
    >>> coo = torch.sparse_coo_tensor([[7, 2, 7]], [[1.0], [2.0], [3.0]], (10, 1), check_invariants=True)
    >>> total = rd.all_reduce(coo)
    >>> total.indices().tolist(), total.values().tolist()
    ([[2, 7]], [[2.0], [4.0]])
    >>> torch.distributed.destroy_process_group()
    """
    if wire not in (None, torch.bfloat16):
        raise ValueError(f"raggrad.dist.{_NAME}: wire: expected None or torch.bfloat16, got {wire}")
    one = isinstance(coo_or_param, Tensor) or not isinstance(coo_or_param, Iterable)
    tensors = [coo_or_param] if one else list(coo_or_param)
    device = next((tensor.device for tensor in tensors if isinstance(tensor, Tensor)), torch.device("cpu"))
    ranks = Ranks(_NAME, group, device)
    tables, fault = _tables_of(tensors, device)
    facts = facts_of(tables, average=average, wire=wire)
    bounds = agree_on_bounds(ranks, tables, facts, fault)
    sums = sum_at_owners(ranks, tables, bounds, wire)
    if average:
        sums = [table._replace(values=divided(table.values, ranks.count)) for table in sums]
    reduced = [
        coo(table.values, table.rows, (table.table_rows, *table.values.shape[1:]))
        for table in spread(ranks, sums, wire)
    ]
    for tensor, result in zip(tensors, reduced, strict=True):
        if not tensor.is_sparse:
            tensor.grad = result
    return reduced[0] if one else reduced


def _tables_of(tensors: Sequence[Any], device: torch.device) -> tuple[list[Rows], Exception | None]:
    """The rows of all tensors, and the first fault. A faulty tensor has no rows, so that ranks can still agree."""
    tables, fault = [], None
    for number, tensor in enumerate(tensors):
        name = "coo_or_param" if len(tensors) == 1 else f"coo_or_param[{number}]"
        try:
            tables.append(_rows_of(name, tensor, device))
        except Exception as error:  # all ranks must learn of it
            fault = fault or error
            empty = torch.empty(0, 1, device=device), torch.empty(0, dtype=torch.int64, device=device)
            tables.append(Rows(*empty, 0))
    return tables, fault


def _rows_of(name: str, tensor: Any, device: torch.device) -> Rows:
    where = f"raggrad.dist.{_NAME}: {name}"
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{where}: expected a sparse tensor or a parameter, got {type(tensor).__name__}")
    if tensor.device != device:
        raise ValueError(f"{where}: expected a tensor on {device}, as the first one, got {tensor.device}")
    if tensor.layout == torch.strided:
        is_parameter = tensor.is_leaf and (tensor.requires_grad or isinstance(tensor, nn.Parameter))
        if not is_parameter or tensor.dim() == 0:
            what = f"a dense tensor of shape {tuple(tensor.shape)}"
            raise ValueError(f"{where}: expected a sparse COO tensor or a parameter with rows, got {what}")
        if tensor.grad is None:
            return Rows(tensor.detach()[:0], torch.empty(0, dtype=torch.int64, device=tensor.device), tensor.shape[0])
        tensor, name, where = tensor.grad, f"{name}.grad", f"{where}.grad"
    if tensor.layout != torch.sparse_coo:
        raise ValueError(f"{where}: expected a sparse COO tensor, got {tensor.layout}")
    if tensor.sparse_dim() != 1:
        raise ValueError(f"{where}: expected 1 sparse dimension, got {tensor.sparse_dim()}")
    if tensor.dtype not in _DTYPES:
        raise ValueError(f"{where}: expected a floating-point type of 16 to 64 bits, got {tensor.dtype}")
    if tensor.shape[0] > MAX_ROWS:
        raise ValueError(f"{where}: expected at most {MAX_ROWS} rows, got {tensor.shape[0]}")
    table_rows = tensor.shape[0]
    for row in _extreme_rows_of(tensor):
        if not 0 <= row < table_rows:
            raise ValueError(f"{where}: expected rows 0 to {table_rows - 1}, got {row}")
    tensor = coalesce(tensor.detach())
    rows = tensor._indices()[0].contiguous()
    if not torch.ops.raggrad.ascends(rows):
        raise ValueError(f"{where}: marked coalesced, but its rows do not ascend")
    return Rows(tensor._values(), rows, table_rows)


def _extreme_rows_of(coo: Tensor) -> list[int]:
    """The smallest and the largest row, of a tensor that has some."""
    rows = coo._indices()[0]
    if coo.is_coalesced():  # the caller checks that they ascend
        return rows[:: max(rows.shape[0] - 1, 1)].tolist()
    return torch.stack(torch.aminmax(rows)).tolist() if rows.shape[0] else []
