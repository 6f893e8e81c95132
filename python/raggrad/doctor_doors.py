"""The doors whose frameworks are installed, and whether an operator works through each of them, on every device."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable
from typing import Any

_EXPECTED = [[2.0], [5.0]]
# install() cannot be undone, and TensorFlow writes to standard error when it is imported: it gets a process of its own.
_TF_PROGRAM = """
import tensorflow as tf, raggrad.tf
raggrad.tf.install()
print(tf.sparse.segment_sum([[1.0], [2.0], [4.0]], [0, 2, 1], [0, 0, 1]).numpy().tolist())
"""


def rows() -> list[tuple[str, str]]:
    """A name and a verdict for every door. Never raises."""
    return [("raggrad.torch", _verdict("torch", _torch)), ("raggrad.jax", _verdict("jax", _jax)), ("raggrad.tf", _tf())]


def _verdict(framework: str, call: Callable[[], dict[str, Any]]) -> str:
    """Whether a sum of three rows came out right on each device that the framework finds."""
    try:
        if importlib.util.find_spec(framework) is None:
            return f"not tried: {framework} is not installed"
        sums = call()
    except Exception as error:  # frameworks fail in many ways
        return f"does not work: {(str(error).splitlines() or [type(error).__name__])[0]}"
    wrong = [f"expected {_EXPECTED} on {device}, got {found}" for device, found in sums.items() if found != _EXPECTED]
    return f"does not work: {wrong[0]}" if wrong else "works"


def _torch() -> dict[str, Any]:
    import torch

    from . import torch as door

    return {"cpu": door.segment_sum(torch.tensor([[1.0], [2.0], [4.0]]), torch.tensor([1, 0, 1])).tolist()}


def _jax() -> dict[str, Any]:
    import jax
    import numpy as np

    from . import jax as door

    def sums(device: Any) -> Any:
        data, ids = np.float32([[1], [2], [4]]), np.int32([1, 0, 1])
        return door.segment_sum(jax.device_put(data, device), jax.device_put(ids, device), 2).tolist()

    devices = [*jax.devices("cpu"), *(device for device in jax.devices() if device.platform in ("gpu", "cuda"))]
    return {str(device): sums(device) for device in devices}


def _tf() -> str:
    try:
        if importlib.util.find_spec("tensorflow") is None:
            return "not tried: TensorFlow is not installed"
        done = subprocess.run([sys.executable, "-c", _TF_PROGRAM], capture_output=True, text=True, timeout=120)
    except Exception as error:
        return f"does not work: {error}"
    if done.returncode != 0:
        return f"does not work: {(done.stderr.splitlines() or ['no message'])[-1].removeprefix('ImportError: ')}"
    numbers = (done.stdout.splitlines() or ["nothing"])[-1]
    return "works" if numbers == "[[5.0], [2.0]]" else f"does not work: expected [[5.0], [2.0]], got {numbers}"
