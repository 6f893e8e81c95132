"""TensorFlow with raggrad's kernels installed. Tests that import it are skipped where there is no raggrad.tf.

Everything in this folder runs in processes in which install() came before the first operator, except programs that
run() and run_anew() start.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

tf = pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
door = pytest.importorskip("raggrad.tf", reason="raggrad was built without raggrad.tf", exc_type=ImportError)

from raggrad.tf import on_demand  # noqa: E402

if on_demand.compiler():
    door.build()
door.install()

from raggrad.tf._load import calls as c_calls  # noqa: E402  the library is there only now
from raggrad.tf._load import library, operators  # noqa: E402

__all__ = ["ROOT", "calls", "door", "library", "operators", "run", "run_anew", "tf"]

ROOT = Path(__file__).parents[3]


def calls(operator: str) -> int:
    """How many calls of the operator raggrad answered in this process."""
    return (on_demand.calls if operator in on_demand.OPERATORS else c_calls)(operator)


def run(program: str, **environment: str) -> str:
    """Runs the program in a new process that has imported TensorFlow and returns what it printed. Fails with its output
    if it fails.
    """
    starter = _starter()
    with tempfile.TemporaryDirectory() as folder:
        output = [Path(folder, name) for name in ("printed", "errors")]
        for file in output:
            file.touch()
        request = {"program": program, "environment": environment, "output": [str(file) for file in output]}
        print(json.dumps(request), file=starter.stdin, flush=True)
        status = starter.stdout.readline().strip()
        printed, errors = (file.read_text() for file in output)
    assert status == "0", f"{printed}{errors}exit status {status}"
    return printed


@functools.cache
def _starter() -> subprocess.Popen[str]:
    command = [sys.executable, Path(__file__).with_name("starter.py")]
    starter = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    atexit.register(starter.communicate)  # closes its input and waits for its end
    return starter


def run_anew(program: str) -> str:
    """As run, in a process that has imported nothing."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
