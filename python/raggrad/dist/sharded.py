"""ShardedEmbeddingBag: a table whose rows are divided among ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ..indexed_slices import MAX_ROWS
from ..torch._errors import is_stacked, whole_number
from ..torch._operators.segments import coalesce_rows
from ..torch._operators.updates import apply_rows_
from ..torch._optimizers.row_optimizer import RowOptimizer
from ..torch._pooling.waiting import must_not_wait
from ..torch._settings import order_of
from ..torch._tables.data_parallel import refuse_data_parallel
from ..torch._tables.fused import optimizer_of
from ..torch._tables.sparse_gradients import make_grad
from ..torch.bags import bags_of, check_options, weights_of
from ._bags import Bags, check_ids, cut
from ._checkpoints import Checkpoints, OptimizerStates
from ._cuts import bounds_of
from ._hot_rows import Copies, HotRows, send_ahead
from ._lookup import Lookup
from ._messages import Ranks
from ._model import piece_bytes
from ._options import check_accumulation, padding_row
from ._reproducible import MOST_EXACT_ROWS
from ._sums import Rows, divided
from .cost import NETWORK, Network

_CLASS = "ShardedEmbeddingBag"
_BLOCK = 4096  # rows that are drawn from one seed


class ShardedEmbeddingBag(Checkpoints):
    """An embedding bag whose table is cut into ranges of rows, one per rank.

    Every rank pools its own bags, as raggrad.torch.embedding_bag does: ids go to the ranks that own them, sums of rows
    come back. In backward every rank sends the rows of its gradient, each once, to their owners. All ranks of `group`
    must call forward and backward together, with as many bags as each has; none is fine.

    `optimizer` makes an optimizer of a list of parameters, such as functools.partial(rt.optim.SparseAdagrad, lr=0.1).
    Owners then update their rows in backward, and there is no gradient. Without it, `weight`, the rows of this rank,
    gets a sparse gradient for any optimizer of raggrad.torch.optim, or is updated in backward by one with fused=True.
    Gradients are summed over ranks; `average` divides them by the number of ranks, as DistributedDataParallel does.

    `rows` says how many rows each rank has, by default ceil(num_embeddings / ranks) and what is left for the last.
    Weights are drawn like those of nn.EmbeddingBag, the same for every number of ranks. ids equal to `padding_idx` are
    left out.

    By default the bits depend on the number of ranks and nothing else. With accumulation="reproducible", here or in
    raggrad.accumulation, pooled rows and gradients have the bits of one process that has all bags and the whole table.
    It sends float64 sums instead of rows, and takes at most 2^31 - 1 rows. The gradient of per_sample_weights is
    computed at the owners either way, id by id.

    Rows that others ask for so often that it is cheaper to send them to everybody go ahead of a call (`hot_rows` of
    this rank): fewer bytes, the same bits. `replicate=False` turns that off. `network` says what a message and a byte
    cost; raggrad.dist.measure() finds out.

    With b bags of i ids in all and p pieces (bags, each counted once for every owner of its rows), a rank sends in
    forward at most 4 i + 4 p bytes and the rows of pieces that others asked for; in backward its unique rows. Twice
    2 KB to each rank come on top. The memory of a call is that of what is sent and received.

    A rank that dies, comes too late or has an id out of range is an error on all ranks, and no table has changed,
    except that a rank which dies in the very last message of backward may leave some shards updated and some not.
    torch.compile leaves calls out of its graphs.

    >>> import torch, raggrad.dist as rd
    >>> store = torch.distributed.HashStore()  # of one process; torchrun makes one for several
    >>> torch.distributed.init_process_group("gloo", rank=0, world_size=1, store=store)
    >>> bag = rd.ShardedEmbeddingBag(10, 2, mode="sum")
    >>> bag
    ShardedEmbeddingBag(10, 2, mode='sum', rows 0 to 9 of this rank)
    >>> bag(torch.tensor([7, 2, 7]), torch.tensor([0, 2])).shape
    torch.Size([2, 2])
    >>> torch.distributed.destroy_process_group()
    """

    def __init__(
        self,
        num_embeddings: int,
        dim: int,
        mode: str = "mean",
        group: dist.ProcessGroup | None = None,
        *,
        optimizer: Callable[[list[nn.Parameter]], torch.optim.Optimizer] | None = None,
        average: bool = False,
        rows: Sequence[int] | None = None,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        accumulation: str | None = None,
        replicate: bool = True,
        network: Network = NETWORK,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        for argument, value, least in (("num_embeddings", num_embeddings, 0), ("dim", dim, 1)):
            if whole_number(f"raggrad.dist.{_CLASS}: {argument}", value) < least:
                raise ValueError(f"raggrad.dist.{_CLASS}: {argument}: expected at least {least}, got {value}")
        if num_embeddings > MAX_ROWS:
            raise ValueError(
                f"raggrad.dist.{_CLASS}: num_embeddings: expected at most {MAX_ROWS}, got {num_embeddings}"
            )
        if optimizer is not None and not callable(optimizer):
            raise TypeError(
                f"raggrad.dist.{_CLASS}: optimizer: expected a function that makes one, got {type(optimizer).__name__}"
            )
        check_accumulation(_CLASS, accumulation)
        try:
            check_options(_CLASS, mode, False)
        except ValueError as error:
            raise ValueError(str(error).replace("raggrad.torch", "raggrad.dist")) from None
        self.num_embeddings, self.dim, self.mode = num_embeddings, dim, mode
        self.include_last_offset, self.accumulation, self.group = include_last_offset, accumulation, group
        self.average = average
        self._hot = HotRows(network if replicate else None)
        device = torch.get_default_device() if device is None else torch.device(device)
        ranks = Ranks(_CLASS, group, device)
        self._rank = ranks.rank
        self._bounds = bounds_of(f"raggrad.dist.{_CLASS}: rows", num_embeddings, ranks.count, rows)
        self.padding_idx = padding_row(_CLASS, padding_idx, num_embeddings)
        first, end = self.row_range
        self.weight = nn.Parameter(torch.empty(end - first, dim, device=device, dtype=dtype))
        self.optimizer = None if optimizer is None else optimizer([self.weight])
        ranks.agree(self._facts())
        self.reset_parameters()
        if self.optimizer is not None:
            self.optimizer_states = OptimizerStates()
        if isinstance(self.optimizer, RowOptimizer):  # checkpoints are loaded before the first step, too
            self.optimizer.make_states(self.weight)

    @property
    def row_range(self) -> tuple[int, int]:
        """The first row of this rank, and the one behind its last."""
        return self._bounds[self._rank], self._bounds[self._rank + 1]

    @property
    def hot_rows(self) -> Tensor:
        """The rows of this rank that go ahead of calls now."""
        return self._hot.rows + self.row_range[0]

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draws the table anew, from the random numbers of rank 0."""
        seed = int(torch.randint(2**62, ()))
        ranks = self._ranks("reset_parameters")
        seed = ranks.agree(self._facts(), numbers=[seed])[0][0]
        first, end = self.row_range
        for begin in range(first - first % _BLOCK, end, _BLOCK):
            generator = torch.Generator().manual_seed(seed + begin)
            block = torch.randn(_BLOCK, self.dim, generator=generator)
            if self.padding_idx is not None and begin <= self.padding_idx < begin + _BLOCK:
                block[self.padding_idx - begin] = 0
            low, high = max(begin, first), min(begin + _BLOCK, end)
            self.weight[low - first : high - first].copy_(block[low - begin : high - begin])

    @torch.compiler.disable(reason="ranks wait for each other in raggrad.dist.ShardedEmbeddingBag")
    def forward(
        self, input: Any, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None
    ) -> Tensor:
        """Pools the bags of this rank: torch.nn.EmbeddingBag.forward."""
        if torch._C._are_functorch_transforms_active() or must_not_wait(self.weight):
            raise RuntimeError(
                f"raggrad.dist.{_CLASS}: ranks wait for each other: not inside torch.func, "
                "raggrad.torch.without_waiting() or a CUDA graph"
            )
        refuse_data_parallel(f"raggrad.dist.{_CLASS}", self.weight, "shards, which have other rows on every rank")
        order = order_of(self.accumulation)
        ranks = self._ranks("forward")
        bags, fault = None, None
        try:
            bags = self._bags(input, offsets, per_sample_weights, order)
        except Exception as error:  # all ranks must learn of it
            fault = error
        weights_type = None if bags is None or bags.weights is None else bags.weights.dtype
        facts = {**self._facts(), "per_sample_weights =": weights_type, "accumulation =": order}
        hot = self._hot.begin_call()
        counts = [numbers[0] for numbers in ranks.agree(facts, fault, [hot.shape[0]])]
        assert bags is not None
        fused = optimizer_of(self.weight) if self.optimizer is None else None
        copies = send_ahead(ranks, hot, counts, self.weight, self._bounds)
        return _Pool.apply(self.weight, bags.weights, self, bags, order, copies, fused)

    def extra_repr(self) -> str:
        first, end = self.row_range
        rows = f"rows {first} to {end - 1}" if first < end else "no rows"
        return f"{self.num_embeddings}, {self.dim}, mode={self.mode!r}, {rows} of this rank"

    def __deepcopy__(self, memo: dict[int, Any]) -> ShardedEmbeddingBag:
        """A copy with the same group, which cannot be copied."""
        memo[id(self.group)] = self.group
        copied = memo[id(self)] = type(self).__new__(type(self))
        copied.__dict__.update(deepcopy(self.__dict__, memo))
        return copied

    def _ranks(self, operation: str) -> Ranks:
        ranks = Ranks(f"{_CLASS}.{operation}", self.group, self.weight.device)
        made_for = self._rank, len(self._bounds) - 1
        if (ranks.rank, ranks.count) != made_for:  # the module was pickled, or the group is another one now
            raise RuntimeError(
                f"raggrad.dist.{ranks.operation}: group: expected rank {made_for[0]} of {made_for[1]}, whose rows are "
                f"here, got rank {ranks.rank} of {ranks.count}: load a state_dict into a new module instead"
            )
        return ranks

    def _facts(self) -> dict[str, Any]:
        table = f"{self.num_embeddings} rows of {self.dim}, {self.weight.dtype}, divided at {self._bounds[1:-1]}"
        return {
            "table:": table,
            "mode =": self.mode,
            "average =": self.average,
            "padding_idx =": self.padding_idx,
            "optimizer:": None if self.optimizer is None else type(self.optimizer).__name__,
        }

    def _bags(self, input: Any, offsets: Tensor | None, weights: Tensor | None, order: str | None) -> Bags:
        name = f"raggrad.dist.{_CLASS}"
        try:
            ids, starts, include_last_offset = bags_of(_CLASS, input, offsets, self.include_last_offset)
            weights = weights_of(_CLASS, weights, input, ids, starts, self.weight)
        except (TypeError, ValueError) as error:
            raise type(error)(str(error).replace("raggrad.torch", "raggrad.dist")) from None
        for argument, tensor in (("input", ids), ("offsets", starts), ("per_sample_weights", weights)):
            if tensor is not None and tensor.device != self.weight.device:
                raise ValueError(f"{name}: {argument}: expected a tensor on {self.weight.device}, got {tensor.device}")
        if order == "reproducible" and self.num_embeddings > MOST_EXACT_ROWS:
            raise ValueError(f"{name}: accumulation: 'reproducible' takes at most {MOST_EXACT_ROWS} rows")
        bags = cut(name, ids, starts, weights, include_last_offset, None)
        check_ids(name, bags.ids, self.num_embeddings)
        if self.padding_idx is None:
            return bags
        return cut(name, bags.ids, bags.starts, bags.weights, False, self.padding_idx)

    def _update(self, rows: Rows, fused: RowOptimizer | None) -> Tensor | None:
        """The gradient of the shard; None if an optimizer has taken it, this module's or the user's fused one."""
        shape = (rows.table_rows, *rows.values.shape[1:])
        values = rows.values
        if self.average or self.optimizer is None:
            values, unique = coalesce_rows(values, rows.rows, rows.table_rows, "sequential")
            values = divided(values, dist.get_world_size(self.group)) if self.average else values
            rows = Rows(values, unique, rows.table_rows)
        if getattr(self.optimizer, "_fused", False):
            fused = self.optimizer
        if fused is not None:
            fused.update_in_backward(self.weight, apply_rows_, rows.values, (rows.rows,), "sequential")
            if fused is self.optimizer:
                fused.step()
            return None
        if self.optimizer is None:
            return make_grad(self.weight, rows.values, rows.rows, shape)
        self.weight.grad = torch.sparse_coo_tensor(rows.rows[None], rows.values, shape, check_invariants=False)
        try:
            self.optimizer.step()
        finally:
            self.weight.grad = None
        return None


class _Pool(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        weight: Tensor,
        weights: Tensor | None,
        module: ShardedEmbeddingBag,
        bags: Bags,
        order: str | None,
        copies: Copies | None,
        fused: RowOptimizer | None,
    ) -> Tensor:
        exact = order == "reproducible"
        lookup = Lookup(module._ranks("forward"), bags, module._bounds, copies)
        size = weight.element_size()
        piece = piece_bytes(module.dim, size, exact)
        module._hot.see(lookup.asked, lookup.own, lookup.ranks, module.dim * size, piece)
        ctx.module, ctx.lookup, ctx.order, ctx.fused = module, lookup, order, fused
        # Another update between forward and backward is fine, but not for the gradient of the weights.
        ctx.save_for_backward(weight if ctx.needs_input_grad[1] else None)
        return (lookup.pool_reproducibly if exact else lookup.pool)(weight, module.mode)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        module, ranks = ctx.module, ctx.lookup.ranks
        ranks.operation = f"{_CLASS}.backward"
        wanted = list(ctx.needs_input_grad[:2])
        table, fault = None, None
        try:
            (table,) = ctx.saved_tensors
        except RuntimeError as error:  # it has changed since
            fault = error
        if is_stacked(grad):
            fault = NotImplementedError(f"raggrad.dist.{_CLASS}: torch.vmap cannot stack gradients that ranks sum")
        facts = {**module._facts(), "accumulation =": ctx.order, "gradients of (table, weights) wanted =": wanted}
        ranks.agree(facts, fault)
        grad = grad.contiguous()
        d_table = d_weights = None
        if ctx.needs_input_grad[1]:
            d_weights = ctx.lookup.gradient_of_weights(grad, table.detach(), module.mode)
        if ctx.needs_input_grad[0]:
            rows = ctx.lookup.gradient_of_shard(grad, module.mode, ctx.order)
            ranks.commit()
            d_table = module._update(rows, ctx.fused)
        return d_table, d_weights, None, None, None, None, None
