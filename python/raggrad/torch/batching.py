"""unbatch_grad: gradients of the rows of a batch, brought by several threads and joined for one of them."""

from __future__ import annotations

import torch
from torch import Tensor

from ..batching import Cancellation
from ..errors import CancelledError, DeadlineExceededError, OpError
from ..raw_ops import UnbatchGrad
from ._errors import check_tensor, whole_number

# The pieces that wait for their owner, by container, shared_name and id, with their graphs.
_pieces: dict[tuple[str, str, int], Tensor] = {}


@torch.compiler.disable(reason="raggrad.torch.unbatch_grad waits for other threads")
def unbatch_grad(
    original_input: Tensor,
    batch_index: Tensor,
    grad: Tensor,
    id: Tensor | int,
    *,
    container: str = "",
    shared_name: str = "",
    timeout_micros: float | None = None,
    cancellation: Cancellation | None = None,
) -> Tensor:
    """Gradient of Unbatch: every thread brings the gradient of its rows, and the owner of the batch gets all of them.

    raggrad.raw_ops.UnbatchGrad for tensors. A call is the owner if `original_input` has elements; they are not read. It
    waits for the calls with the ids in `batch_index`, [calls, 3]: id, first row, end. It returns their gradients in
    that order. The others return [0, ...] at once. `timeout_micros` is how long an owner may wait, by default 10
    minutes; then it is a DeadlineExceededError. `cancellation` ends the wait earlier.

    The result is differentiable in the gradients of all calls, also of other threads; a join that has to be is a second
    copy. Gradients are copied once, into the result; nobody may write to them before. torch.compile leaves the call
    out of its graphs.

    >>> import torch, raggrad.torch as rt
    >>> rt.unbatch_grad(torch.empty(0), torch.empty(0, 3, dtype=torch.int64), torch.tensor([[0.5]]), 7).shape
    torch.Size([0, 1])
    >>> index = torch.tensor([[7, 0, 1], [8, 1, 2]])
    >>> rt.unbatch_grad(torch.zeros(2, 1), index, torch.tensor([[0.25]]), 8)
    tensor([[0.5000],
            [0.2500]])
    """
    for argument, tensor in (("original_input", original_input), ("batch_index", batch_index), ("grad", grad)):
        check_tensor("unbatch_grad", argument, tensor)
    for argument, text in (("container", container), ("shared_name", shared_name)):
        if not isinstance(text, str):
            raise TypeError(f"raggrad.torch.unbatch_grad: {argument}: expected a string, got {type(text).__name__}")
    where = container, shared_name
    mine = (*where, whole_number("raggrad.torch.unbatch_grad: id", id))
    before = _pieces.get(mine)
    _pieces[mine] = grad
    try:
        joined = UnbatchGrad(
            original_input=original_input.detach(),
            batch_index=batch_index,
            grad=grad.detach(),
            id=mine[2],
            container=container,
            shared_name=shared_name,
            timeout_micros=timeout_micros,
            cancellation=cancellation,
        )
    except OpError as error:
        keys = _keys_of(original_input, batch_index)
        if isinstance(error, CancelledError | DeadlineExceededError):  # all pieces of the batch are gone
            for key in keys:
                _pieces.pop((*where, key), None)
        elif before is None:
            _pieces.pop(mine, None)
        else:
            _pieces[mine] = before
        raise type(error)(str(error).replace("UnbatchGrad", "raggrad.torch.unbatch_grad", 1)) from None
    pieces = [_pieces.pop((*where, key), None) for key in _keys_of(original_input, batch_index)]
    if not (torch.is_grad_enabled() and any(piece is not None and piece.requires_grad for piece in pieces)):
        return joined
    if any(piece is None for piece in pieces):
        raise RuntimeError("raggrad.torch.unbatch_grad: another function brought rows of this batch, without a graph")
    return torch.cat(pieces)


def _keys_of(original_input: Tensor, batch_index: Tensor) -> list[int]:
    """The ids of a batch; none for a call that is not its owner."""
    return batch_index.reshape(-1)[::3].tolist() if original_input.numel() else []
