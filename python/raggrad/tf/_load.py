"""Loads the kernels' library, or says in one line why it cannot. Kernels are registered by install() only."""

from __future__ import annotations

import ctypes
from pathlib import Path

_OLDEST = (2, 20)
_LIBRARY = Path(__file__).with_name("libraggrad_tf.so")

try:
    import tensorflow as tf
except ImportError as error:
    raise ImportError("raggrad.tf needs TensorFlow 2.20 or newer, and no TensorFlow can be imported") from error

_found = tuple(int(number) for number in tf.__version__.split(".")[:2])
if _found < _OLDEST:
    raise ImportError(f"raggrad.tf needs TensorFlow 2.20 or newer, and this is TensorFlow {tf.__version__}")
if not _LIBRARY.exists():
    raise ImportError(
        "this raggrad was built without raggrad.tf, because TensorFlow's headers were not there; "
        "docs/packaging.md says how to build it"
    )

library = ctypes.CDLL(str(_LIBRARY))
library.raggrad_tf_register.restype = ctypes.c_char_p
library.raggrad_tf_operator.restype = ctypes.c_char_p
library.raggrad_tf_operator.argtypes = [ctypes.c_int]
library.raggrad_tf_calls.restype = ctypes.c_int64
library.raggrad_tf_calls.argtypes = [ctypes.c_char_p]
library.raggrad_tf_set_threads.restype = None
library.raggrad_tf_set_threads.argtypes = [ctypes.c_int]


def operators() -> list[str]:
    """The operators that the library has kernels for."""
    names: list[str] = []
    while (name := library.raggrad_tf_operator(len(names))) is not None:
        names.append(name.decode())
    return names


def calls(operator: str) -> int:
    """How many calls of the operator raggrad answered in this process."""
    return int(library.raggrad_tf_calls(operator.encode()))
