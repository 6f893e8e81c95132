"""Measurements in a worker: single calls, blocks of tiny calls, or batches of several threads."""

from __future__ import annotations

import gc
import itertools
import threading
import time
from collections.abc import Callable
from statistics import median
from typing import Any, NamedTuple

import numpy as np

SAMPLE_SECONDS = 0.15  # the length of a sample; a single interruption does not change it much
_BLOCK = 20e-6  # seconds; shorter calls are timed in blocks of this length, far above the clock's resolution
_MOST_CALLS = 20_000

_COPY_BYTES = 256 << 20


def calls_per_sample(seconds: float) -> int:
    return max(1, min(_MOST_CALLS, round(SAMPLE_SECONDS / max(seconds, 1e-9))))


def medians_in_turns(
    calls: dict[str, Callable[[], Any]], rounds: int, warm_ups: int, wait: Callable[[], None] = lambda: None
) -> dict[str, float]:
    """Milliseconds of each call: the median of all rounds but the first `warm_ups`.

    Calls take turns, so that a busy machine slows all of them. wait() is called before and after each.
    """
    times: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(warm_ups + rounds):
        for name, call in calls.items():
            wait()
            begin = time.perf_counter()
            call()
            wait()
            if number >= warm_ups:
                times[name].append((time.perf_counter() - begin) * 1e3)
    return {name: median(kept) for name, kept in times.items()}


def time_calls(call: Callable[[], Any], calls: int) -> float:
    """Seconds per call: the median of the calls or, if they are short, of blocks of calls.

    The time includes the allocation of the output, but not its release, except within a block.
    """
    clock = time.perf_counter
    block = max(1, round(calls * _BLOCK / SAMPLE_SECONDS))
    times = []
    gc.collect()
    gc.disable()
    try:
        for _ in range(calls // block):
            start = clock()
            for _ in range(block - 1):
                call()
            result = call()
            times.append((clock() - start) / block)
            del result
    finally:
        gc.enable()
    return float(np.median(times))


class Batches(NamedTuple):
    seconds: float  # of all batches
    latencies: list[float]  # of each batch, from its first piece to its owner's return


def time_batches(bring: Callable[[int], Any], pieces: int, batches: int, threads: int) -> Batches:
    """Every free thread takes the next piece. The owner of a batch is its last piece."""
    clock = time.perf_counter
    numbers = itertools.count()
    begun = [0.0] * batches
    ended = [0.0] * batches
    failures: list[BaseException] = []

    def work() -> None:
        try:
            while (number := next(numbers)) < pieces * batches:
                batch, piece = divmod(number, pieces)
                if piece == 0:
                    begun[batch] = clock()
                bring(number)
                if piece == pieces - 1:
                    ended[batch] = clock()
        except BaseException as failure:
            failures.append(failure)

    workers = [threading.Thread(target=work, daemon=True) for _ in range(threads)]
    start = clock()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    seconds = clock() - start
    if failures:
        raise failures[0]
    return Batches(seconds, [end - begin for begin, end in zip(begun, ended, strict=True)])


def copy_bandwidth(threads: int) -> dict[str, float]:
    """Bytes per second, read plus written, when `threads` threads copy 256 MiB.

    "copy" writes to memory that was used before, "fresh" to new memory of the system, as for a fresh output.
    """
    source = np.ones(_COPY_BYTES, np.uint8)
    used = np.zeros(_COPY_BYTES, np.uint8)
    return {
        "copy": 2 * _COPY_BYTES / min(_copy(source, used, threads) for _ in range(3)),
        "fresh": 2 * _COPY_BYTES / min(_copy(source, np.empty(_COPY_BYTES, np.uint8), threads) for _ in range(3)),
    }


def _copy(source: np.ndarray, target: np.ndarray, threads: int) -> float:
    """Seconds from the first thread's begin to the last one's end.

    NumPy copies contiguous bytes by memcpy and releases the GIL.
    """
    ready = threading.Barrier(threads)
    times: list[float] = []

    def work(part: np.ndarray, of: np.ndarray) -> None:
        ready.wait()
        begin = time.perf_counter()
        np.copyto(part, of)
        times.extend((begin, time.perf_counter()))

    parts = zip(np.array_split(target, threads), np.array_split(source, threads), strict=True)
    workers = [threading.Thread(target=work, args=part) for part in parts]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return max(times) - min(times)
