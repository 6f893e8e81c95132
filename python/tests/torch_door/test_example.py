"""examples/torch_dlrm: a few steps on tiny tables, alone and on two processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from .door import torch

pytest.importorskip("matplotlib")
pytest.importorskip("tqdm")

PROGRAM = Path(__file__).parents[3] / "examples" / "torch_dlrm" / "train.py"
TINY = ["--steps", "3", "--batch", "128", "--rows", "50", "--dim", "4", "--device", "cpu", "--threads", "1"]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(PROGRAM), *arguments], capture_output=True, text=True)


def test_both_runs_have_the_same_losses(tmp_path: Path) -> None:
    picture = tmp_path / "both.png"
    ended = run(*TINY, "--plot", str(picture))
    assert ended.returncode == 0, ended.stderr
    losses = [line.split()[1:3] for line in ended.stdout.splitlines() if line.endswith(" ms")]
    assert len(losses) == 2
    assert losses[0] == losses[1]
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch has no torch.distributed")
def test_two_processes_have_the_bits_of_one() -> None:
    ended = run(*TINY, "--ranks", "2")
    assert ended.returncode == 0, ended.stderr
    assert "2 processes, whole tables" in ended.stdout
    assert "2 processes, divided tables" in ended.stdout
    assert "The same 3 losses and the same weights, bit for bit" in ended.stdout


def test_bad_arguments_give_one_line() -> None:
    ended = run("--ranks", "3", "--batch", "128")
    assert ended.returncode == 2
    assert ended.stderr == "train.py: --batch: expected a multiple of 192, got 128 (see --help)\n"
