"""The doors whose frameworks are installed, and whether an operator works through each of them."""

from __future__ import annotations

import importlib.util


def rows() -> list[tuple[str, str]]:
    """A name and a verdict for every door. Never raises."""
    return [("raggrad.torch", _torch())]


def _torch() -> str:
    try:
        if importlib.util.find_spec("torch") is None:
            return "not tried: torch is not installed"
        import torch

        from . import torch as door

        numbers = door.segment_sum(torch.tensor([[1.0], [2.0], [4.0]]), torch.tensor([1, 0, 1])).tolist()
    except Exception as error:  # frameworks fail in many ways
        return f"does not work: {(str(error).splitlines() or [type(error).__name__])[0]}"
    return "works" if numbers == [[2.0], [5.0]] else f"does not work: expected [[2.0], [5.0]], got {numbers}"
