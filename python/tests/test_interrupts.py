"""Ctrl-C in the middle of a long call."""

from __future__ import annotations

import subprocess
import sys

import pytest

# Sends SIGINT to the process while main(), a long call, runs. Prints how the call ended, and whether it took clearly
# less processor time than an undisturbed call. Other programs do not change that time, but they can delay the signal:
# then it takes a few attempts. A call looks for signals every 50 ms, so the arrays grow until it takes 300 ms.
SCRIPT = """
import os, signal, threading, time
import numpy as np
import raggrad
from raggrad import IndexedSlices, SegmentPlan, optimizers, raw_ops

signal.signal(signal.SIGINT, signal.default_int_handler)  # shells let background jobs ignore it
raggrad.set_num_threads({threads})
table = np.zeros((1000, 64), np.float32)
column = np.zeros((1000, 1), np.float32)

def main():
    {call}

def interrupt(after, done):
    begin = time.process_time()
    while time.process_time() - begin < after and not done.is_set():
        time.sleep(0.001)
    os.kill(os.getpid(), signal.SIGINT)

def timed(interrupt_after=None):
    done = threading.Event()
    start = time.process_time()
    error = None
    try:
        if interrupt_after is not None:
            threading.Thread(target=interrupt, args=(interrupt_after, done)).start()
        main()
        done.set()
        time.sleep(0.5 if interrupt_after is not None else 0)
    except KeyboardInterrupt as caught:
        error = caught
    return time.process_time() - start, error

n = 500_000
while True:
    ids = np.arange(n, dtype=np.int32) % 991
    bags = np.arange(n, dtype=np.int32) // 50
    ones = np.ones((n, 1), np.float32)
    main()  # touches new memory
    start = time.monotonic()
    whole, _ = timed()
    seconds = time.monotonic() - start
    if seconds > 0.3:
        break
    n *= max(2, int(0.4 / seconds))

column[:] = 0
for attempt in range({attempts}):
    part, error = timed(0.2 * whole)
    if part < 0.7 * whole:
        break
    whole, _ = timed()
print(type(error).__name__, part < 0.7 * whole)
"""

CALLS = {
    "a forward": "raw_ops.SparseSegmentSum(data=table, indices=ids, segment_ids=bags)",
    "a gradient": (
        "raw_ops.SparseSegmentSumGradV2(grad=ones, indices=ids, segment_ids=bags, dense_output_dim0=1000)"
    ),
    "a plan": "SegmentPlan(ids, bags, num_rows=1000, num_segments=n // 50)",
}


def run(call: str, threads: int, attempts: int, after: str = "") -> list[str]:
    code = SCRIPT.format(call=call, threads=threads, attempts=attempts) + after
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert done.stderr == ""
    return done.stdout.splitlines()


@pytest.mark.parametrize("threads", [1, 2, 7])
@pytest.mark.parametrize("call", CALLS)
def test_a_long_call_ends_early(call: str, threads: int) -> None:
    assert run(CALLS[call], threads, attempts=10) == ["KeyboardInterrupt True"]


def test_a_handler_that_does_not_raise_does_not_end_the_call() -> None:
    handler = "signal.signal(signal.SIGINT, lambda *_: print('seen')); "
    *seen, outcome = run(handler + CALLS["a gradient"], threads=2, attempts=1)
    assert set(seen) == {"seen"}
    assert outcome.startswith("NoneType")


def test_an_update_in_place_is_made_whole() -> None:
    call = "IndexedSlices(ones, ids, (1000, 1)).apply_(column, optimizers.SGD(learning_rate=1.0))"
    outcome, updates = run(call, threads=2, attempts=1, after="print(-column.sum(dtype=np.float64) / n)")
    assert outcome.startswith("KeyboardInterrupt")
    assert float(updates).is_integer()
