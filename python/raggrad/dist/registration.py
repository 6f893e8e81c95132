"""register: gradients of raggrad.torch's modules, summed over ranks in backward."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ..settings import current_accumulation
from ..torch import Embedding, EmbeddingBag, EmbeddingBagCollection
from ..torch._embedding_operators import embedding_bag_grad_rows
from ..torch._shared_tables import share
from . import _reproducible as exact
from ._bags import cut
from ._messages import Ranks
from ._options import check_accumulation
from ._sums import Rows, agree_on_bounds, divided, facts_of, spread, sum_at_owners
from .sharded import ShardedEmbeddingBag

_NAME = "register"


def register(
    module: nn.Module,
    group: dist.ProcessGroup | None = None,
    *,
    average: bool = False,
    accumulation: str | None = None,
) -> None:
    """Sums the gradients of embeddings over the ranks of a group, inside backward.

    Holds for every raggrad.torch.EmbeddingBag, Embedding and EmbeddingBagCollection in `module`, sparse or not. Their
    weights become those of rank 0. DistributedDataParallel leaves them alone if it wraps `module` itself; give it the
    same group. Tables of ShardedEmbeddingBag are named to it, too, and otherwise left as they are. All ranks call
    register.

    The exchange is that of raggrad.dist.all_reduce, one for every call of an embedding, while the backward of other
    layers goes on in DistributedDataParallel's buckets. All ranks must make the same calls, with as many ids as each
    has, and let a gradient reach each of them: a rank without data multiplies what it has by 0.

    `average` divides by the number of ranks, as DistributedDataParallel does. With accumulation="reproducible" the
    forward is summed like that, too, and gradients have the bits of one process with the bags of all ranks, whatever
    their number (with `average`, of its gradient divided by their number). Only here can sums be that exact: a gradient
    that each rank rounds first depends on how the batch was divided. It sends 24 bytes a row more and float64 sums
    instead of rows to the owners.

    Optimizers with fused=True work: every rank then updates its table in backward, after all have said that they can.
    Compiled modules, torch.func and raggrad.torch.without_waiting() are a RuntimeError. A module that is registered
    again has the options of the last time.
    """
    check_accumulation(_NAME, accumulation)
    tables: dict[str, nn.Parameter] = {}
    shards: list[str] = []
    for prefix, child in module.named_modules():
        names = [f"{prefix}.{name}".lstrip(".") for name, _ in child.named_parameters(recurse=False)]
        if isinstance(child, ShardedEmbeddingBag):
            shards += names
        elif isinstance(child, EmbeddingBag | Embedding | EmbeddingBagCollection):
            tables.update(zip(names, child.parameters(recurse=False), strict=True))
            _surround(child, accumulation)
    device = next(iter(tables.values())).device if tables else torch.device("cpu")
    ranks = Ranks(_NAME, group, device)
    ranks.agree({f"{name}:": f"{tuple(table.shape)}, {table.dtype}" for name, table in tables.items()})
    for name, table in tables.items():
        with torch.no_grad():
            dist.broadcast(table, group=ranks.group, group_src=0)
        share(table, _Reducer(name, table.shape[0], group, average))
    ignored = list(getattr(module, "_ddp_params_and_buffers_to_ignore", []))
    module._ddp_params_and_buffers_to_ignore = ignored + [
        name for name in [*tables, *shards] if name not in ignored
    ]


class _Surroundings:
    """Makes calls of a module use `accumulation`, and refuses those whose gradient would not be summed."""

    def __init__(self, module: nn.Module) -> None:
        self.accumulation: str | None = None
        self._tokens: list[Any] = []
        module.register_forward_pre_hook(self._before)
        module.register_forward_hook(self._after, always_call=True)

    def _before(self, module: nn.Module, *_: Any) -> None:
        if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
            raise RuntimeError(
                f"raggrad.dist.{_NAME}: {type(module).__name__}: its gradient is summed over ranks in backward, which "
                "torch.compile and torch.func cannot do"
            )
        self._tokens.append(None if self.accumulation is None else current_accumulation.set(self.accumulation))

    def _after(self, *_: Any) -> None:
        token = self._tokens.pop()
        if token is not None:
            current_accumulation.reset(token)


# A module that is registered again keeps its hooks: those of two would undo their settings in the wrong order.
_surroundings: WeakKeyDictionary[nn.Module, _Surroundings] = WeakKeyDictionary()


def _surround(module: nn.Module, accumulation: str | None) -> None:
    if module not in _surroundings:
        _surroundings[module] = _Surroundings(module)
    _surroundings[module].accumulation = accumulation


class _Reducer:
    """Makes the gradient of one table on all ranks (raggrad.torch._shared_tables)."""

    def __init__(self, name: str, rows: int, group: dist.ProcessGroup | None, average: bool) -> None:
        self._name, self._rows, self._group, self._average = name, rows, group, average

    @torch.no_grad()
    def __call__(
        self,
        grad: Tensor,
        ids: Tensor,
        offsets: Tensor,
        weights: Tensor | None,
        mode: str,
        include_last_offset: bool,
        padding_idx: int | None,
        accumulation: str | None,
        updates: bool,
    ) -> tuple[Tensor, Tensor]:
        ranks = Ranks(f"{_NAME}: gradient of {self._name}", self._group, grad.device)
        facts = {"mode": mode, "accumulation": accumulation, "average": self._average, "fused": updates}
        if accumulation == "reproducible":
            bags = cut(_NAME, ids, offsets, weights, include_last_offset, padding_idx)
            rows, terms = exact.gradient_terms(grad.contiguous(), bags, mode, self._rows)
            mine = Rows(grad[:0], rows, self._rows)
            (bounds,) = agree_on_bounds(ranks, [mine], facts_of([mine], **facts))
            sums = exact.sum_at_owners(ranks, rows, terms, self._rows, bounds)
            sums = sums._replace(values=sums.values.reshape(-1, *grad.shape[1:]))
        else:
            options = mode, include_last_offset, padding_idx, accumulation
            values, rows = embedding_bag_grad_rows(grad, ids, offsets, weights, self._rows, *options)
            mine = Rows(values, rows.to(torch.int64), self._rows)
            (sums,) = sum_at_owners(ranks, [mine], agree_on_bounds(ranks, [mine], facts_of([mine], **facts)), None)
        if self._average:
            sums = sums._replace(values=divided(sums.values, ranks.count))
        (everywhere,) = spread(ranks, [sums], None)
        if updates:
            ranks.commit()
        return everywhere.values, everywhere.rows
