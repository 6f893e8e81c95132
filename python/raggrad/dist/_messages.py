"""Messages between the ranks of a group, with errors that name operation, phase and rank.

Everything goes from rank to rank, never through a collective of the backend: a rank that dies or does not come is known
by name, parts may have any sizes, and they are sent from and received into the memory where they lie.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch import Tensor

from .traffic import note

_TAG = 0x7267  # keeps our messages apart from those that users send
_HEADER = 256  # numbers of a header: the same for every operation, so that ranks that disagree can say so
_FIRST_NUMBER = 2  # behind the digest and the sign of a fault
_HOST = torch.device("cpu")
_PACKED = 1 << 20  # bytes: a message of several parts up to this size is sent as one, for the price of two copies

HEADER_NUMBERS = _HEADER - _FIRST_NUMBER


class Ranks:
    """The ranks of a group in one call of an operation."""

    def __init__(self, operation: str, group: dist.ProcessGroup | None, device: torch.device) -> None:
        self.operation = operation
        if not dist.is_available() or not dist.is_initialized():
            raise RuntimeError(f"raggrad.dist.{operation}: call torch.distributed.init_process_group first")
        self.group = dist.group.WORLD if group is None else group
        try:
            self.rank = dist.get_rank(self.group)
        except ValueError as error:
            raise ValueError(f"raggrad.dist.{operation}: group: {error}") from None
        if self.rank < 0:
            raise RuntimeError(f"raggrad.dist.{operation}: group: this process is not a member")
        self.count = dist.get_world_size(self.group)
        self.device = device
        self._wire = _memory_of_messages(operation, self.group, device)
        self.others = [rank for rank in range(self.count) if rank != self.rank]

    def agree(
        self, facts: Mapping[str, Any], fault: Exception | None = None, numbers: Sequence[int] = ()
    ) -> list[list[int]]:
        """Makes sure that all ranks call this operation with the same facts, and that none has a fault.

        If not, every rank raises an error that names the first rank that differs. Returns the numbers of every rank, up
        to HEADER_NUMBERS, filled up with zeros.
        """
        said = {"operation": self.operation, "memory of messages:": self._wire.type, **facts}
        digest = int.from_bytes(hashlib.blake2b(repr(said).encode(), digest_size=7).digest(), "little")
        header = [digest, int(fault is not None), *numbers]
        headers = self.swap_numbers("agreement", [header + [0] * (_HEADER - len(header))] * self.count)
        if any(other[:_FIRST_NUMBER] != [digest, 0] for other in headers):
            self._disagree(said, fault, headers)
        return [other[_FIRST_NUMBER:] for other in headers]

    def commit(self) -> None:
        """Waits until all ranks have come so far. From here on nothing can fail on one rank alone."""
        self.swap_numbers("commit", [[1]] * self.count)

    def broadcast(self, phase: str, tensor: Tensor) -> None:
        """Copies the tensor of rank 0 into those of all others."""
        message = tensor.contiguous()  # backends send memory as it lies, which is for each rank to choose
        try:
            dist.broadcast(message, group=self.group, group_src=0)
        except Exception as error:  # which does not say what rank is at fault
            self._fail(phase, {None: error})
        if message is not tensor:
            tensor.copy_(message)

    def swap_numbers(self, phase: str, numbers: Sequence[Sequence[int]]) -> list[list[int]]:
        """Sends numbers[r] to every rank r, and returns what every rank sent to this one. All have the same length."""
        sent = torch.tensor(numbers, dtype=torch.int64, device=self._wire)
        received = torch.empty_like(sent)
        self.swap(phase, [[row] for row in sent], [[row] for row in received])
        return received.tolist()

    def swap(self, phase: str, sent: Sequence[Sequence[Tensor]], received: Sequence[Sequence[Tensor]]) -> None:
        """Sends the tensors sent[r] to every rank r and fills received[r] with those that r sends.

        All are contiguous and lie on one device. Both sides know the sizes; what is empty is not sent.
        """
        for source, target in zip(sent[self.rank], received[self.rank], strict=True):
            target.copy_(source)
        made: dict[int, list[Tensor]] = {}  # what goes to all ranks is packed and copied once
        for rank in self.others:
            if id(sent[rank]) not in made:
                made[id(sent[rank])] = [message.to(self._wire) for message in _messages_of(sent[rank])]
        outgoing = {rank: made[id(sent[rank])] for rank in self.others}
        incoming = {rank: _buffers_of(received[rank], self._wire) for rank in self.others}
        for messages in outgoing.values():
            for message in messages:
                note(phase, message.numel() * message.element_size())
        self._transfer(phase, outgoing, incoming)
        for rank in self.others:
            _unpack(incoming[rank], received[rank])

    def _transfer(self, phase: str, outgoing: dict[int, list[Tensor]], incoming: dict[int, list[Tensor]]) -> None:
        deadline = time.monotonic() + _timeout_of(self.group).total_seconds()
        to_do = [(dist.irecv, message, rank) for rank in self.others for message in incoming[rank]]
        to_do += [(dist.isend, message, rank) for rank in self.others for message in outgoing[rank]]
        if not to_do:
            return
        if self._wire != _HOST:  # NCCL wants them all at once, and does not say which rank is at fault
            works = [(work, None) for work in self._start_together(phase, to_do)]
        else:
            works = [(self._start(phase, *one), one[2]) for one in to_do]
        lost: dict[int | None, Exception] = {}
        for work, rank in works:
            if rank in lost:
                continue
            try:
                work.wait(timedelta(seconds=max(deadline - time.monotonic(), 0.001)))
            except Exception as error:  # backends raise what they like
                lost[rank] = error
        if lost:
            self._fail(phase, lost)

    def _start(self, phase: str, function: Any, message: Tensor, rank: int) -> Any:
        peer = {"group_src": rank} if function is dist.irecv else {"group_dst": rank}
        try:
            return function(message, group=self.group, tag=_TAG, **peer)
        except Exception as error:
            self._fail(phase, {rank: error})

    def _start_together(self, phase: str, to_do: Sequence[Any]) -> Any:
        try:
            return dist.batch_isend_irecv(
                [dist.P2POp(function, message, group=self.group, group_peer=rank) for function, message, rank in to_do]
            )
        except Exception as error:
            self._fail(phase, {None: error})

    def _fail(self, phase: str, lost: Mapping[int | None, Exception]) -> NoReturn:
        causes = ", ".join(
            f"{'a rank' if rank is None else f'rank {rank}'} ({_first_sentence(error)})" for rank, error in lost.items()
        )
        raise RuntimeError(
            f"raggrad.dist.{self.operation}: {phase}: rank {self.rank} of {self.count} has lost {causes}"
        ) from next(iter(lost.values()))

    def _disagree(self, said: Mapping[str, Any], fault: Exception | None, headers: list[list[int]]) -> NoReturn:
        text = str(fault) if fault is not None else "\n".join(f"{name} {value}" for name, value in said.items())
        mine = torch.tensor(list(text.encode()), dtype=torch.uint8, device=self._wire)
        lengths = self.swap_numbers("disagreement", [[mine.shape[0]]] * self.count)
        all_texts = [mine.new_empty(length) for (length,) in lengths]
        self.swap("disagreement", [[mine]] * self.count, [[other] for other in all_texts])
        texts = [bytes(other.tolist()).decode() for other in all_texts]
        if fault is not None:
            raise fault
        for rank, header in enumerate(headers):
            if header[1]:
                raise RuntimeError(f"raggrad.dist.{self.operation}: rank {rank} has a fault: {texts[rank]}")
        differs = next(rank for rank, header in enumerate(headers) if header[0] != headers[0][0])
        one, other = texts[0].splitlines(), texts[differs].splitlines()
        one_only = "; ".join(line for line in one if line not in other)
        other_only = "; ".join(line for line in other if line not in one)
        raise RuntimeError(
            f"raggrad.dist.{self.operation}: ranks disagree: rank {differs} has {other_only or 'less'}, "
            f"rank 0 has {one_only or 'less'}"
        )


def _backend_of(group: dist.ProcessGroup, device: torch.device) -> Any:
    """The backend that moves tensors of a device; None if the group has none for it."""
    try:
        return group._get_backend(device)
    except RuntimeError:
        return None


def _memory_of_messages(operation: str, group: dist.ProcessGroup, device: torch.device) -> torch.device:
    """Where messages lie that bring tensors of a device: there, or in host memory if the group has gloo for it."""
    backend = _backend_of(group, device)
    if backend is None:
        raise RuntimeError(
            f"raggrad.dist.{operation}: group: expected a backend for tensors on {device.type}, got "
            f"{dist.get_backend(group)} only"
        )
    return _HOST if device.type == "cpu" or backend.name() == "gloo" else device


def _timeout_of(group: dist.ProcessGroup) -> timedelta:
    """The time that a rank waits for others in one phase."""
    for device in ("cpu", "cuda"):
        options = getattr(_backend_of(group, torch.device(device)), "options", None)
        if options is not None:
            return options._timeout
    return timedelta(minutes=30)


def _first_sentence(error: Exception) -> str:
    """Without the place in the backend's source, which comes first, and its advice."""
    line = (str(error).splitlines() or [type(error).__name__])[0]
    return re.sub(r"^\[[^\]]*\] ", "", line).split(". ")[0]


def _bytes_of(tensors: Sequence[Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _is_packed(tensors: Sequence[Tensor]) -> bool:
    return len(tensors) > 1 and 0 < _bytes_of(tensors) <= _PACKED


def _messages_of(tensors: Sequence[Tensor]) -> list[Tensor]:
    if _is_packed(tensors):
        return [torch.cat([tensor.reshape(-1).view(torch.uint8) for tensor in tensors])]
    return [tensor for tensor in tensors if tensor.numel()]


def _buffers_of(tensors: Sequence[Tensor], wire: torch.device) -> list[Tensor]:
    """Where messages arrive: in the tensors themselves if they lie where messages do, and are not packed."""
    if _is_packed(tensors):
        return [torch.empty(_bytes_of(tensors), dtype=torch.uint8, device=wire)]
    return [
        tensor if tensor.device == wire else torch.empty_like(tensor, device=wire)
        for tensor in tensors
        if tensor.numel()
    ]


def _unpack(buffers: Sequence[Tensor], tensors: Sequence[Tensor]) -> None:
    if not _is_packed(tensors):
        for buffer, tensor in zip(buffers, (tensor for tensor in tensors if tensor.numel()), strict=True):
            if buffer is not tensor:
                tensor.copy_(buffer)
        return
    begin = 0
    for tensor in tensors:
        end = begin + _bytes_of([tensor])
        tensor.reshape(-1).view(torch.uint8).copy_(buffers[0][begin:end])
        begin = end
