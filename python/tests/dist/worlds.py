"""Worlds of processes with a gloo group, and what became of each. Tests that import it are skipped without torch."""

from __future__ import annotations

import io
import multiprocessing
import os
import tempfile
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
rt = pytest.importorskip("raggrad.torch", reason="raggrad was built without raggrad.torch", exc_type=ImportError)
rd = pytest.importorskip("raggrad.dist", exc_type=ImportError)

import torch.distributed as dist  # noqa: E402

# Torch is imported once, in a process that has no threads yet, and each rank is a fork of that. Optimizers and
# autograd functions import torch._dynamo when they are first used, which takes seconds.
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["torch", "torch.distributed", "torch._dynamo", "raggrad.torch", "raggrad.dist"])

PATIENCE = 120  # seconds: for machines that are slow, not a measure of speed


class Outcome(NamedTuple):
    value: Any
    error: str | None  # type and text
    took: float | None  # seconds


def run(ranks: int, function: Callable[..., Any], *arguments: Any, timeout: float = PATIENCE) -> list[Any]:
    """function(rank, *arguments) on every rank of a new world. Raises the first error.

    Processes are used again, which saves their start: groups are new, random numbers begin with seed 0.
    """
    outcomes = outcomes_of(ranks, function, *arguments, timeout=timeout)
    for rank, outcome in enumerate(outcomes):
        assert outcome is not None, f"rank {rank} has died"
        assert outcome.error is None, f"rank {rank}: {outcome.error}"
    return [outcome.value for outcome in outcomes]


def outcomes_of(
    ranks: int, function: Callable[..., Any], *arguments: Any, timeout: float = PATIENCE
) -> list[Outcome | None]:
    """The same; None for a rank that has died without a word."""
    with tempfile.TemporaryDirectory() as folder:
        members = [_idle.pop() if _idle else _Process() for _ in range(ranks)]
        for rank, member in enumerate(members):
            member.begin((os.path.join(folder, "store"), rank, ranks, timeout, function, arguments))
        outcomes = [member.outcome() for member in members]
    _idle.extend(member for member, outcome in zip(members, outcomes, strict=True) if outcome and not outcome.error)
    return outcomes


class _Process:
    """A process that is a rank of one world after the other, until it fails in one."""

    def __init__(self) -> None:
        self._pipe, theirs = _context.Pipe()
        self._process = _context.Process(target=_main, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()

    def begin(self, job: tuple[Any, ...]) -> None:
        self._pipe.send_bytes(packed(job))

    def outcome(self) -> Outcome | None:
        try:
            if self._pipe.poll(PATIENCE):
                outcome = Outcome(*_unpacked(self._pipe.recv_bytes()))
                if outcome.error is None:
                    return outcome
            else:
                outcome = Outcome(None, "no answer: it hangs", None)
                self._process.kill()
        except (EOFError, ConnectionResetError):
            outcome = None
        self._process.join(PATIENCE)
        assert not self._process.is_alive(), "a rank hangs"
        return outcome


_idle: list[_Process] = []


def packed(value: Any) -> bytes:
    """Tensors as bytes: torch would share their memory, which ends with their process."""
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


def _unpacked(data: bytes) -> Any:
    return torch.load(io.BytesIO(data), weights_only=False)


def _main(pipe: Any) -> None:
    torch.set_num_threads(1)
    while True:
        try:
            job = _unpacked(pipe.recv_bytes())
        except EOFError:
            return
        outcome = _outcome_of(*job)
        pipe.send_bytes(packed(tuple(outcome)))
        if outcome.error is not None:
            os._exit(0)  # to leave the group would wait for others


def _outcome_of(
    store: str, rank: int, ranks: int, timeout: float, function: Any, arguments: tuple[Any, ...]
) -> Outcome:
    torch.manual_seed(0)
    # The timeout of the group holds for its start, too: nobody begins before all processes are there.
    everyone = dist.FileStore(f"{store}-start", ranks)
    everyone.set(f"rank {rank}", "is here")
    everyone.wait([f"rank {other}" for other in range(ranks)], timedelta(seconds=PATIENCE))
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=ranks, timeout=timedelta(seconds=timeout)
    )
    begin = time.monotonic()
    try:
        value = function(rank, *arguments)
    except Exception as error:
        lines = "".join(traceback.format_exception(error)) if os.environ.get("RAGGRAD_TRACEBACKS") else ""
        return Outcome(None, f"{type(error).__name__}: {error}{lines}", time.monotonic() - begin)
    took = time.monotonic() - begin
    dist.destroy_process_group()
    return Outcome(value, None, took)
