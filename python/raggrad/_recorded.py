"""Arrays whose framework records what is done with them, to run it backwards. What is done here is not recorded."""

from __future__ import annotations

import os
import sys
import warnings
from typing import Any

_PACKAGE = os.path.dirname(__file__) + os.sep
_warned: set[tuple[str, str]] = set()


def warn_if_recorded(array: Any, op: str, name: str) -> None:
    """Warns, once per argument, that no gradient will come back for an array that torch or TensorFlow records."""
    if (op, name) in _warned:
        return
    framework = _recorder(array)
    if not framework:
        return
    _warned.add((op, name))
    warnings.warn(
        f"{op}: {name} is recorded by {framework}, but raggrad's functions are not: no gradient will flow back to it. "
        "Gradients have functions of their own here, whose names end in grad. Pass what is not recorded to make this "
        "warning go away: the detached tensor, or under torch.no_grad() or tape.stop_recording()",
        stacklevel=_level_of_caller(),
    )


def _recorder(array: Any) -> str:
    """The framework that records what is done with the array; empty if none does."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        return "torch" if array.requires_grad and torch.is_grad_enabled() else ""
    tf = sys.modules.get("tensorflow")
    if tf is None or not isinstance(array, (tf.Tensor, tf.Variable)):
        return ""
    tapes = sys.modules.get("tensorflow.python.eager.record")
    if tapes is None or not tapes.could_possibly_record():
        return ""
    tensor = array.read_value() if hasattr(array, "read_value") else array  # a variable is watched from its first use
    return "a tf.GradientTape" if tapes.should_record_backprop([tensor]) else ""


def _level_of_caller() -> int:
    """How many frames above warn_if_recorded the package was called from."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    return level
