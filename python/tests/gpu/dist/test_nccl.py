"""raggrad.dist by NCCL, which has one rank, or one for each GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from dist.worlds import dist, rd, run, torch

from .test_reduce import gradient, reduce_on_a_stream
from .test_registered import serial_registered, train_registered
from .test_sharded import train_sharded
from .training import OPTIMIZERS, PATIENCE, serial_training

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no GPU")


def nccl(rank: int, ranks: int, backend: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """Runs a test's function in a group of NCCL, which takes the place of all ranks' group of gloo."""
    torch.cuda.set_device(rank)
    group = dist.new_group(backend=backend)
    world, dist.group.WORLD = dist.group.WORLD, group
    try:
        return function(rank, ranks, *arguments)
    finally:
        dist.group.WORLD = world


def send_to_itself(rank: int) -> None:
    """Messages of NCCL as ranks exchange them, though there is but one rank."""
    from raggrad.dist._messages import Ranks

    torch.cuda.set_device(0)
    ranks = Ranks("test", dist.new_group(backend="nccl"), torch.device("cuda", 0))
    parts = [torch.arange(1000, device="cuda"), torch.randn(50_000, 16, device="cuda")]
    received = [torch.empty_like(part) for part in parts]
    ranks.others = [0]
    ranks._transfer("rows", {0: parts}, {0: received})
    for part, came in zip(parts, received, strict=True):
        assert torch.equal(part, came)
    with pytest.raises(RuntimeError, match=r"group: expected a backend for tensors on cpu, got .*nccl"):
        rd.all_reduce(gradient(0, torch.float32), ranks.group)


def test_messages_of_nccl() -> None:
    run(1, send_to_itself, timeout=PATIENCE)


@pytest.mark.parametrize("backend", ["nccl", "cpu:gloo,cuda:nccl"])
@pytest.mark.parametrize("ranks", [1, 2])
def test_nccl(ranks: int, backend: str) -> None:
    if torch.cuda.device_count() < ranks:
        pytest.skip(f"NCCL wants a GPU for each rank, and there is {torch.cuda.device_count()}")
    rule = OPTIMIZERS["adagrad"]
    want = serial_training("mean", rule, False, torch.float32)
    arguments = "mean", rule, False, torch.float32, True
    for full, _ in run(ranks, nccl, ranks, backend, train_sharded, *arguments, timeout=PATIENCE):
        assert torch.equal(full, want)
    tables = serial_registered(rule)
    for got in run(ranks, nccl, ranks, backend, train_registered, rule, True, timeout=PATIENCE):
        assert all(torch.equal(one, other) for one, other in zip(got, tables, strict=True))
    run(ranks, nccl, ranks, backend, reduce_on_a_stream, timeout=PATIENCE)
