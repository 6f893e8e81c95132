"""The command `doctor`: version, instruction set, threads, the frameworks it found, their doors and their GPUs."""

from __future__ import annotations

import os
import platform
from importlib import metadata

from . import __version__, _core, doctor_doors, doctor_gpu
from .errors import InvalidArgumentError

_FRAMEWORKS = ("torch", "jax", "tensorflow", "cupy")


def report() -> tuple[list[str], bool]:
    """The lines to print, and whether operators can be called."""
    healthy = True
    try:
        chosen = _core.instruction_set()
    except InvalidArgumentError as error:
        healthy = False
        chosen = f"none: {error}"
    limit = _core.get_memory_limit()
    rows = [
        ("raggrad", __version__),
        ("instruction set", chosen),
        ("available", ", ".join(_core.instruction_sets())),
        ("threads", _threads()),
        ("memory limit", "that of machine and container" if limit is None else f"{limit} bytes per request"),
        ("python", f"{platform.python_version()} ({platform.machine()} {platform.system()})"),
        ("numpy", metadata.version("numpy")),
        ("ml_dtypes", metadata.version("ml_dtypes")),
        *_framework_versions(),
        *doctor_doors.rows(),
        *doctor_gpu.rows(),
    ]
    return [f"{name + ':':17}{value}" for name, value in rows], healthy


def _threads() -> str:
    wanted = os.environ.get("RAGGRAD_NUM_THREADS")
    ignored = wanted is not None and not (wanted.isascii() and wanted.isdigit() and int(wanted) >= 1)
    remark = f" (RAGGRAD_NUM_THREADS={wanted!r} is not a positive number and is ignored)" if ignored else ""
    return f"{_core.get_num_threads()}{remark}"


def _framework_versions() -> list[tuple[str, str]]:
    # Looked up by what is imported: CuPy is installed as cupy-cuda13x and the like, TensorFlow also as tensorflow-cpu.
    installed = metadata.packages_distributions()
    return [
        (name, metadata.version(installed[name][0]) if name in installed else "not installed") for name in _FRAMEWORKS
    ]
