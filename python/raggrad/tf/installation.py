"""install: TensorFlow's operators run raggrad's kernels, in programs that do not know of it.

Kernels are registered with priority 1, and TensorFlow takes the one of the highest priority when it makes a kernel. It
keeps those that it made: for eager calls one of each operator and types, for a tf.function those of its graph. So
install() belongs before the first use.
"""

from __future__ import annotations

import threading
import warnings

import tensorflow as tf

from . import _eager_use, on_demand
from ._load import library, operators

_OPERATORS = operators()

_lock = threading.Lock()
_installed = False
_used_before: dict[str, list[str]] = {}


def install() -> None:
    """From now on TensorFlow's operators run raggrad's kernels on the CPU, where raggrad has them. Nothing undoes it.

    This holds for eager calls, tf.function, tf.GradientTape and tf.data alike. Results have the bits of TensorFlow's
    kernels; inputs that crash those raise tf.errors.InvalidArgumentError. Inputs are read where they lie, and outputs
    are written into TensorFlow's memory. A second call changes nothing.

    Call it before the operators are used. TensorFlow keeps the kernels that it has made: an operator that was called
    eagerly before stays with TensorFlow's for the same types, and a warning names it; a tf.function that was called
    before stays, too, without one. Looking for such operators takes half a second, and no time if TensorFlow has not
    run yet.

    The variant operators, Batch, Unbatch and UnbatchGrad come with it if raggrad.tf.build() has compiled their kernels
    for this TensorFlow.

    Calls use as many threads as tf.config.threading.set_intra_op_parallelism_threads said before; otherwise one per
    processor, or RAGGRAD_NUM_THREADS.

    >>> import raggrad.tf
    >>> raggrad.tf.install()
    """
    global _installed
    with _lock:
        if _installed:
            return
        library.raggrad_tf_set_threads(tf.config.threading.get_intra_op_parallelism_threads())
        refused = library.raggrad_tf_register()
        if refused is not None:
            raise RuntimeError(f"raggrad.tf.install: TensorFlow refused a kernel: {refused.decode()}")
        on_demand.load()
        _installed = True
        _used_before.update(_eager_use.find())
    if _used_before:
        used = ", ".join(f"{name} ({', '.join(types)})" for name, types in _used_before.items())
        warnings.warn(
            f"raggrad.tf.install: these operators were called eagerly before, and TensorFlow keeps its own kernels for "
            f"such calls: {used}. Call install() first.",
            RuntimeWarning,
            stacklevel=2,
        )


def status() -> dict[str, str]:
    """Who answers calls of each operator that raggrad has: "raggrad", or "stock: " and the reason.

    >>> import raggrad.tf
    >>> raggrad.tf.install()
    >>> raggrad.tf.status()["SparseSegmentSum"]
    'raggrad'
    """
    with _lock:
        return {name: _answer(name) for name in (*_OPERATORS, *on_demand.OPERATORS)}


def _answer(name: str) -> str:
    if not _installed:
        return "stock: install() was not called"
    if name in on_demand.OPERATORS and not on_demand.loaded():
        return f"stock: {on_demand.why_not()}"
    if name in _used_before:
        return f"stock: called eagerly with {', '.join(_used_before[name])} before install(); raggrad otherwise"
    return "raggrad"
