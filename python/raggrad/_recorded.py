"""Warnings for arrays that torch or TensorFlow record for their gradients: calls of raggrad are not recorded."""

from __future__ import annotations

import os
import sys
import warnings
from typing import Any

_PACKAGE = os.path.dirname(__file__) + os.sep
_warned: set[tuple[str, str]] = set()


def warn_if_recorded(array: Any, op: str, name: str) -> None:
    """Warns once per argument that no gradient will flow back to an array that torch or TensorFlow records."""
    if (op, name) in _warned:
        return
    framework = _recorder(array)
    if not framework:
        return
    _warned.add((op, name))
    warnings.warn(
        f"{op}: {name} is recorded by {framework}, but raggrad's functions are not: no gradient will flow back to it. "
        "Call the gradient function, whose name ends in grad. To silence this warning, pass a detached tensor or call "
        "under torch.no_grad() or tape.stop_recording()",
        stacklevel=_level_of_caller(),
    )


def _recorder(array: Any) -> str:
    """The framework that records operations on the array; empty if none does."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        return "torch" if array.requires_grad and torch.is_grad_enabled() else ""
    tf = sys.modules.get("tensorflow")
    if tf is None or not isinstance(array, (tf.Tensor, tf.Variable)):
        return ""
    tapes = sys.modules.get("tensorflow.python.eager.record")
    if tapes is None or not tapes.could_possibly_record():
        return ""
    # A tape watches a variable from its first read on.
    tensor = array.read_value() if hasattr(array, "read_value") else array
    return "a tf.GradientTape" if tapes.should_record_backprop([tensor]) else ""


def _level_of_caller() -> int:
    """The stacklevel of the first frame outside the package."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    return level
