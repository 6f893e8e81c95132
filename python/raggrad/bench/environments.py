"""The environments of the peers. They are made once and kept in a folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

# torch 2.10.0 is the last version whose Arm package comes without CUDA; fbgemm-gpu-cpu 1.5.0 is made for it.
REQUIREMENTS = {
    "tensorflow": ("tensorflow==2.21.0",),
    "torch": ("torch==2.10.0",),
    "jax": ("jax>=0.4.31",),
    "fbgemm": ("fbgemm-gpu-cpu==1.5.0", "torch==2.10.0"),
}
_ALL = ("numpy>=1.26", "ml_dtypes>=0.5")


class CannotInstall(Exception):
    """An environment cannot be made; the text says why."""


def default_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "raggrad" / "bench"


def python_of(peer: str, folder: Path) -> Path:
    return folder / f"venv-{peer}" / "bin" / "python"


def is_installed(peer: str, folder: Path) -> bool:
    stamp = _stamp(peer, folder)
    return stamp.exists() and stamp.read_text() == _wanted(peer)


def install(peer: str, folder: Path) -> None:
    """Makes the environment of a peer anew. pip's own settings (PIP_INDEX_URL, ...) decide where packages come from."""
    environment = folder / f"venv-{peer}"
    pip = (str(python_of(peer, folder)), "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    shutil.rmtree(environment, ignore_errors=True)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _run(sys.executable, "-m", "venv", str(environment))
        _run(*pip, *REQUIREMENTS[peer], *_ALL)
        _stamp(peer, folder).write_text(_wanted(peer))
    except BaseException as error:
        shutil.rmtree(environment, ignore_errors=True)
        if isinstance(error, OSError):
            raise CannotInstall(str(error)) from None
        raise


def _stamp(peer: str, folder: Path) -> Path:
    return folder / f"venv-{peer}" / ".complete"


def _wanted(peer: str) -> str:
    return "\n".join((*REQUIREMENTS[peer], *_ALL, ""))


def _run(*command: str) -> None:
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        lines = (result.stderr or result.stdout).strip().splitlines()
        reason = lines[-1].removeprefix("ERROR: ") if lines else f"{command[0]} ended with status {result.returncode}"
        unreachable = " (the package index could not be reached)" if "connection broken" in result.stderr else ""
        raise CannotInstall(reason + unreachable)
