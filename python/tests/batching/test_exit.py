"""Calls of the batching operators that still wait when the interpreter ends, or when it forks."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

SCRIPT = """
import atexit, os, sys, threading, time
import numpy as np
from raggrad import batching, errors, raw_ops

runtime = batching.default_runtime()
GRAD = np.float32([[1, 2]])
OWNER = {"original_input": GRAD, "batch_index": [[1, 0, 1], [2, 1, 2]], "grad": GRAD, "id": 1}

def wait(**more):
    return raw_ops.UnbatchGrad(**OWNER, **more)
"""


def run_script(code: str) -> subprocess.CompletedProcess[str]:
    """Runs a program; one that hangs fails. Python's warning of fork() beside threads is switched off."""
    quiet = "-Wignore:This process:DeprecationWarning"
    command = [sys.executable, quiet, "-c", SCRIPT + textwrap.dedent(code)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


# Programs that end while something waits, and what they print.
ENDINGS = {
    "a daemon thread waits": (
        """
        threading.Thread(target=wait, daemon=True).start()
        time.sleep(0.1)
        print("end")
        """,
        "end",
    ),
    "daemon threads come again and again": (
        """
        def again():
            while True:
                try:
                    wait(timeout_micros=50)
                except errors.OpError:
                    pass

        for _ in range(8):
            threading.Thread(target=again, daemon=True).start()
        time.sleep(0.2)
        print("end")
        """,
        "end",
    ),
    "threads wait for calls that nobody is left to make": (
        """
        def work(name):
            try:
                wait(shared_name=name)
            except errors.CancelledError:
                os.write(1, b"cancelled\\n")

        for name in "ab":
            threading.Thread(target=work, args=[name]).start()
        time.sleep(0.1)
        print("end", flush=True)
        """,
        "end\ncancelled\ncancelled",
    ),
    "threads still meet after the main one": (
        """
        def late():
            time.sleep(0.3)
            raw_ops.UnbatchGrad(original_input=[], batch_index=[], grad=GRAD, id=2)

        threading.Thread(target=lambda: print(wait().shape)).start()
        threading.Thread(target=late).start()
        print("end")
        """,
        "end\n(2, 2)",
    ),
    "a thread of a pool waits": (
        """
        from concurrent.futures import ThreadPoolExecutor
        ThreadPoolExecutor(2).submit(wait)
        time.sleep(0.1)
        print("end")
        """,
        "end",
    ),
    "a future waits": (
        """
        future = runtime.unbatch_grad_future(**OWNER)
        future.add_done_callback(lambda future: print(type(future.exception()).__name__))
        print("end")
        """,
        "end\nCancelledError",
    ),
    "a piece waits": (
        """
        raw_ops.UnbatchGrad(original_input=[], batch_index=[], grad=GRAD, id=7)
        print("end")
        """,
        "end",
    ),
    "a piece is about to expire": (
        """
        raw_ops.UnbatchGrad(original_input=[], batch_index=[], grad=GRAD, id=7)
        runtime.resource("UnbatchGrad").limits = batching.Limits(max_piece_age_micros=20_000)
        print("end")
        """,
        "end",
    ),
    "a call is made at the end": (
        """
        @atexit.register
        def late():
            try:
                wait(timeout_micros=1000)
            except errors.DeadlineExceededError:
                print("late")

        print("end")
        """,
        "end\nlate",
    ),
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_the_interpreter_ends(ending: str) -> None:
    code, output = ENDINGS[ending]
    run = run_script(code)
    assert (run.returncode, run.stderr, run.stdout.strip()) == (0, "", output)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_of_fork_gets_an_error() -> None:
    run = run_script(
        """
        threading.Thread(target=wait, daemon=True).start()
        time.sleep(0.1)
        future = runtime.unbatch_future(batched_tensor=[], batch_index=np.zeros((0, 3), np.int64), id=5)
        child = os.fork()
        if child == 0:
            try:
                wait()
            except errors.UnavailableError as error:
                print(error.message, flush=True)
            future.cancel()
            runtime.close()
            batching.set_default_runtime(batching.Runtime())
            try:
                wait(timeout_micros=1000)
            except errors.DeadlineExceededError:
                print("its own", flush=True)
            sys.exit(7)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), not future.done())
        """
    )
    assert (run.returncode, run.stderr) == (0, "")
    refusal = "UnbatchGrad: this runtime was made before fork(); make one in the child"
    assert run.stdout.splitlines() == [refusal, "its own", "7 True"]
