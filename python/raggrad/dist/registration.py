"""register: gradients of raggrad.torch's modules, summed over ranks in backward."""

from __future__ import annotations

import warnings
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ..settings import current_accumulation
from ..torch import Embedding, EmbeddingBag, EmbeddingBagCollection
from ..torch._operators.embeddings import embedding_bag_grad_rows
from ..torch._tables.data_parallel import is_summed_by_data_parallel
from ..torch._tables.shared import is_shared, share
from . import _reproducible as exact
from ._bags import cut
from ._messages import Ranks
from ._options import check_accumulation
from ._sums import Rows, agree_on_bounds, divided, facts_of, spread, sum_at_owners
from .sharded import ShardedEmbeddingBag

_NAME = "register"
_EMBEDDINGS = (EmbeddingBag, Embedding, EmbeddingBagCollection)


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
    Compiled modules, torch.func and raggrad.torch.without_waiting() are a RuntimeError; max_norm, and a table that is a
    parameter of another layer, too, a ValueError, because tables of ranks would come to differ. A module that is
    registered again has the options of the last time. A copy of a module, and one whose table was replaced
    (load_state_dict(assign=True)), has to be registered again: until then a call that wants a gradient is a
    RuntimeError.

    >>> import torch, raggrad.dist as rd, raggrad.torch as rt
    >>> store = torch.distributed.HashStore()  # of one process; torchrun makes one for several
    >>> torch.distributed.init_process_group("gloo", rank=0, world_size=1, store=store)
    >>> bag = rt.EmbeddingBag(10, 2, mode="sum", sparse=True)
    >>> rd.register(bag)
    >>> bag(torch.tensor([[7, 2, 7]])).sum().backward()
    >>> bag.weight.grad.indices().tolist(), bag.weight.grad.values().tolist()
    ([[2, 7]], [[1.0, 1.0], [2.0, 2.0]])
    >>> torch.distributed.destroy_process_group()
    """
    if not isinstance(module, nn.Module):
        raise TypeError(f"raggrad.dist.{_NAME}: module: expected a module, got {type(module).__name__}")
    check_accumulation(_NAME, accumulation)
    embeddings = [child for child in module.modules() if isinstance(child, _EMBEDDINGS)]
    tables = _parameters_of(module, _EMBEDDINGS)
    shards = _parameters_of(module, (ShardedEmbeddingBag,))
    _check_that_embeddings_can_be_shared(module, tables)
    device = next(iter(tables.values())).device if tables else torch.device("cpu")
    ranks = Ranks(_NAME, group, device)
    facts = {f"{name}:": f"{tuple(table.shape)}, {table.dtype}" for name, table in tables.items()}
    ranks.agree({**facts, "average =": average, "accumulation =": accumulation})
    for name, table in tables.items():
        with torch.no_grad():
            ranks.broadcast("weights", table)
        share(table, _Reducer(name, table.shape[0], group, average))
    for child in embeddings:
        _surround(child, accumulation)
    ignored = list(getattr(module, "_ddp_params_and_buffers_to_ignore", []))
    module._ddp_params_and_buffers_to_ignore = ignored + [
        name for name in [*tables, *shards] if name not in ignored
    ]


def _parameters_of(module: nn.Module, kinds: tuple[type, ...]) -> dict[str, nn.Parameter]:
    """The parameters of all modules of these kinds in a module, by their names there."""
    return {
        f"{prefix}.{name}".lstrip("."): parameter
        for prefix, child in module.named_modules(remove_duplicate=False)
        if isinstance(child, kinds)
        for name, parameter in child.named_parameters(recurse=False)
    }


def _check_that_embeddings_can_be_shared(module: nn.Module, tables: dict[str, nn.Parameter]) -> None:
    """Refuses what would make the tables of ranks differ."""
    for name, child in module.named_modules():
        if isinstance(child, _EMBEDDINGS) and getattr(child, "max_norm", None) is not None:
            raise ValueError(
                f"raggrad.dist.{_NAME}: {name or 'module'}: max_norm is not supported: each rank would scale the rows "
                "of its own ids only"
            )
    for name, parameter in module.named_parameters(remove_duplicate=False):
        if name not in tables and any(parameter is table for table in tables.values()):
            raise ValueError(
                f"raggrad.dist.{_NAME}: {name} is the table of an embedding, too: only the gradient of the embedding "
                "would be summed"
            )


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
        if dist.is_initialized() and torch.is_grad_enabled():  # a model may be saved here, and loaded where it is alone
            for name, table in module.named_parameters(recurse=False):
                _check_table(f"raggrad.dist.{_NAME}: {type(module).__name__}: {name}", table)
        self._tokens.append(None if self.accumulation is None else current_accumulation.set(self.accumulation))

    def _after(self, *_: Any) -> None:
        token = self._tokens.pop() if self._tokens else None  # none if something before _before has failed
        if token is not None:
            current_accumulation.reset(token)


def _check_table(where: str, table: Tensor) -> None:
    if table.requires_grad and not is_shared(table):
        raise RuntimeError(
            f"{where} is not the tensor that was registered, and its gradient would not be summed over ranks: "
            "register the module again"
        )
    if is_summed_by_data_parallel(table):
        warnings.warn(
            f"{where} is summed once more by DistributedDataParallel: register the model that it wraps, before it does",
            stacklevel=2,
        )


def _surround(module: nn.Module, accumulation: str | None) -> None:
    """Once: a module that is registered again, or copied, has its hooks, and two would undo each other's settings."""
    owners = [getattr(hook, "__self__", None) for hook in module._forward_pre_hooks.values()]
    found = [owner for owner in owners if isinstance(owner, _Surroundings)]
    surroundings = found[0] if found else _Surroundings(module)
    surroundings.accumulation = accumulation


class _Reducer:
    """Makes the gradient of one table on all ranks (raggrad.torch._tables.shared)."""

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
