"""measure: the constants of the cost model, where it runs."""

from __future__ import annotations

import time
from statistics import median
from typing import Any

import torch
import torch.distributed as dist

from ._messages import Ranks
from .cost import Network

_LARGE = 1 << 22  # bytes: long enough that the start of a message does not count
_SMALL = 8


def measure(group: dist.ProcessGroup | None = None, *, device: Any = None) -> Network:
    """Measures the cost of a message and of a byte between the ranks of a group, for explain and ShardedEmbeddingBag.

    All ranks call it, and get the same answer: that of the slowest one. It sends 4 MiB from everyone to everyone five
    times, and small messages 21 times, as the operations of raggrad.dist do. Medians count. One rank alone has nothing
    to measure, and gets the defaults.
    """
    ranks = Ranks("measure", group, torch.get_default_device() if device is None else torch.device(device))
    ranks.agree({})
    others = len(ranks.others)
    if not others:
        return Network()
    short = median(_seconds(ranks, _SMALL) for _ in range(21))
    long = median(_seconds(ranks, _LARGE) for _ in range(5))
    return Network(bandwidth=others * _LARGE / max(long - short, 1e-9), latency=short / others)


def _seconds(ranks: Ranks, size: int) -> float:
    """The time of an exchange in which everyone sends `size` bytes to everyone, on the slowest rank."""
    sent = torch.zeros(size, dtype=torch.uint8, device=ranks.device)
    received = torch.empty(ranks.count, size, dtype=torch.uint8, device=ranks.device)
    received.zero_()  # its pages are there before the clock starts
    ranks.swap_numbers("start", [[0]] * ranks.count)
    begin = time.perf_counter_ns()
    ranks.swap("messages", [[sent]] * ranks.count, [[row] for row in received])
    if ranks.device.type == "cuda":
        torch.cuda.synchronize(ranks.device)
    took = time.perf_counter_ns() - begin
    return max(times[0] for times in ranks.swap_numbers("times", [[took]] * ranks.count)) / 1e9
