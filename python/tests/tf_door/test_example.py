"""examples/tf_unchanged: two steps of both models, with and without raggrad."""

from __future__ import annotations

import subprocess
import sys

from .door import ROOT


def test_unchanged_models_have_the_same_weights() -> None:
    program = ROOT / "examples" / "tf_unchanged" / "compare.py"
    ended = subprocess.run([sys.executable, str(program), "--steps", "2"], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.count("2 steps: same") == 2
