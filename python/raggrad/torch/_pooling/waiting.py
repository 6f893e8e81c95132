"""Steps that never wait for a GPU, so that a CUDA graph can hold them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from torch import Tensor

from .._errors import has_numbers, named
from .._operators.operator import once_differentiable
from .._operators.updates import embedding_bag_planned_grad_apply_
from .._tables.quick_function import QuickFunction
from .planned import Plan

if TYPE_CHECKING:
    from .._optimizers.row_optimizer import RowOptimizer

_asked = ContextVar("without_waiting", default=False)
_NO_FAULT = -1  # word 1 of a report


class _FirstFault:
    """The first fault of a device, as a report. Graphs that were captured write there, so it never moves."""

    def __init__(self, device: torch.device) -> None:
        self.report = torch.zeros(6, dtype=torch.int64, device=device)
        self.word = self.report[1:2]
        self.word.fill_(_NO_FAULT)
        self._is_none = torch.ones(1, dtype=torch.bool, device=device)

    def note(self, report: Tensor) -> None:
        """Takes this report, unless there is a fault."""
        torch.eq(self.word, _NO_FAULT, out=self._is_none)
        torch.where(self._is_none, report, self.report, out=self.report)


_first_faults: dict[torch.device, _FirstFault] = {}


@contextlib.contextmanager
def without_waiting() -> Iterator[None]:
    """In this context embedding_bag, embedding and modules of raggrad.torch never wait for a GPU.

    Calls check ids on the device and go on. check() raises the first error that they found; until then results of bad
    ids mean nothing, but a fused optimizer leaves the table as it is. Streams that are being captured in a CUDA graph
    have these forms without being asked; then check() tells of replays.

    The table needs a fused optimizer or sparse=False: the size of a sparse gradient depends on the ids. padding_idx,
    max_norm and gradients of per_sample_weights are refused. With include_last_offset, the last offset has to be the
    number of ids. The ids are sorted once, in the call, for backward too: 28 bytes per id stay until backward is done.
    """
    before = _asked.set(True)
    try:
        yield
    finally:
        _asked.reset(before)


def check() -> None:
    """Waits for every GPU and raises the error of the first bad id since the last check().

    For calls inside without_waiting(), and for replays of CUDA graphs. A ValueError, as the call itself would raise.
    """
    for first in _first_faults.values():
        report = first.report.cpu()
        if int(report[1]) == _NO_FAULT:
            continue
        first.word.fill_(_NO_FAULT)
        try:
            torch.ops.raggrad.check_report(report)
        except RuntimeError as error:
            raise named(error, "check", indices="input", segment_ids="offsets") from None


def must_not_wait(weight: Tensor) -> bool:
    """Whether an eager call with this table has to be one that never waits."""
    if not (weight.is_cuda and has_numbers(weight)):
        return _asked.get()
    if torch.cuda.is_current_stream_capturing():
        if weight.device not in _first_faults:
            raise RuntimeError("raggrad.torch: call the model once before a CUDA graph captures it, as torch asks")
        return True
    if weight.device not in _first_faults:
        _first_faults[weight.device] = _FirstFault(weight.device)
    return _asked.get()


def refuse(name: str, argument: str) -> NoReturn:
    raise ValueError(f"raggrad.torch.{name}: {argument}: expected None where calls must not wait for the GPU")


def pool(
    name: str,
    weight: Tensor,
    optimizer: RowOptimizer | None,
    ids: Tensor,
    offsets: Tensor,
    include_last_offset: bool,
    weights: Tensor | None,
    mode: str,
    accumulation: str | None,
    padding_idx: int | None,
) -> Tensor:
    """embedding_bag that never waits."""
    if torch._C._are_functorch_transforms_active():
        raise NotImplementedError(f"raggrad.torch.{name}: torch.func is not supported where calls must not wait")
    if padding_idx is not None:
        refuse(name, "padding_idx")
    wanted = torch.is_grad_enabled()
    if wanted and weights is not None and weights.requires_grad:
        raise ValueError(f"raggrad.torch.{name}: per_sample_weights cannot have a gradient where calls must not wait")
    if optimizer is not None and optimizer.group_of(weight).get("weight_decay"):
        optimizer_name = f"raggrad.torch.optim.{type(optimizer).__name__}"
        raise RuntimeError(f"{optimizer_name}: weight_decay: expected 0 where calls must not wait")
    if include_last_offset:  # an offset of -1 is a fault
        offsets = torch.where(offsets[-1:] == ids.shape[0], offsets[:-1], -1)
    return _PlannedBag.apply(weight, weights, optimizer, ids, offsets, mode, accumulation)


class _PlannedBag(QuickFunction):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, weights: Tensor | None, optimizer: RowOptimizer | None, *bags: Any) -> Tensor:
        ids, offsets, ctx.mode, ctx.accumulation = bags
        pooled, report, number = torch.ops.raggrad.embedding_bag_planned.default(
            weight, ids, offsets, weights, ctx.mode, ctx.accumulation
        )
        ctx.plan, ctx.table, ctx.optimizer = Plan(number), weight, optimizer
        ctx.save_for_backward(weights)
        if (first := _first_faults.get(weight.device)) is not None:
            first.note(report)
        return pooled

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        (weights,) = ctx.saved_tensors
        plan = ctx.plan.number, weights, ctx.mode
        d_weight = None
        if ctx.optimizer is None:
            d_weight = torch.ops.raggrad.embedding_bag_planned_grad.default(grad, *plan, ctx.accumulation)
        else:
            ctx.optimizer.update_in_backward(
                ctx.table, embedding_bag_planned_grad_apply_, grad, plan, ctx.accumulation
            )
        return d_weight, None, None, None, None, None, None
