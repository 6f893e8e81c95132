"""Loads the operators into torch, or says in one line why it cannot."""

from __future__ import annotations

from pathlib import Path

_OLDEST = (2, 10)
LIBRARY = Path(__file__).with_name("libraggrad_torch.so")

try:
    import torch
except ImportError as error:
    raise ImportError("raggrad.torch needs torch 2.10 or newer, and no torch can be imported") from error

_found = tuple(int(number) for number in torch.__version__.split(".")[:2])
if _found < _OLDEST:
    raise ImportError(f"raggrad.torch needs torch 2.10 or newer, and this is torch {torch.__version__}")
if not LIBRARY.exists():
    raise ImportError(
        "this raggrad was built without raggrad.torch, because torch's headers were not there; "
        "docs/packaging.md says how to build it"
    )
torch.ops.load_library(LIBRARY)
