"""The GPUs that frameworks find, and whether an operator works with their arrays there."""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Callable
from typing import Any

from . import ops


def rows() -> list[tuple[str, str]]:
    """A name and a verdict for every GPU of every framework. Never raises."""
    installed = [name for name in _FIND if _is_installed(name)]
    if not installed:
        return [("GPU", "not tried: torch, CuPy and JAX are not installed")]
    return [row for name in installed for row in _rows_of(name)]


def _is_installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def _rows_of(name: str) -> list[tuple[str, str]]:
    try:
        arrays = _FIND[name](importlib.import_module(name))
    except Exception as error:  # frameworks fail in many ways
        return [(f"{name} GPU", f"none found: {_one_line(error)}")]
    if not arrays:
        return [(f"{name} GPU", "none found")]
    return [(f"{name} GPU {number}", _verdict(make)) for number, make in enumerate(arrays)]


def _verdict(make: Callable[[list[Any], str], Any]) -> str:
    """Whether a sum of three rows came out right."""
    try:
        data, ids = make([[1.0], [2.0], [4.0]], "float32"), make([0, 1, 2], "int32")
        pooled = ops.sparse_segment_sum(data, ids, make([0, 0, 1], "int32"))
        numbers = pooled.tolist()
    except Exception as error:
        return f"does not work: {_one_line(error)}"
    return "works" if numbers == [[3.0], [4.0]] else f"does not work: expected [[3.0], [4.0]], got {numbers}"


def _one_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


# For each GPU, a function that makes an array there.


def _find_torch(torch: Any) -> list[Callable[[list[Any], str], Any]]:
    def maker(number: int) -> Callable[[list[Any], str], Any]:
        return lambda values, dtype: torch.tensor(values, dtype=getattr(torch, dtype), device=f"cuda:{number}")

    return [maker(number) for number in range(torch.cuda.device_count())]


def _find_cupy(cupy: Any) -> list[Callable[[list[Any], str], Any]]:
    def maker(number: int) -> Callable[[list[Any], str], Any]:
        def make(values: list[Any], dtype: str) -> Any:
            with cupy.cuda.Device(number):
                return cupy.array(values, dtype)

        return make

    return [maker(number) for number in range(cupy.cuda.runtime.getDeviceCount())]


def _find_jax(jax: Any) -> list[Callable[[list[Any], str], Any]]:
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # else JAX takes most of the memory at once

    def maker(device: Any) -> Callable[[list[Any], str], Any]:
        import numpy as np

        return lambda values, dtype: jax.device_put(np.array(values, dtype), device)

    return [maker(device) for device in jax.devices() if device.platform in ("gpu", "cuda")]


_FIND = {"torch": _find_torch, "cupy": _find_cupy, "jax": _find_jax}
