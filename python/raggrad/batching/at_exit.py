"""Ends the waits of batching calls when the interpreter ends."""

from __future__ import annotations

import atexit
import os
import threading
from concurrent.futures import thread as _pools  # noqa: F401 (registers its exit handler before ours, which runs first)

from .. import _core


def _let_threads_end() -> bool:
    """Cancels the waiting calls if only waiting threads are left. Python would wait for these threads for ever.

    Returns whether any threads are left to watch.
    """
    threads = [t for t in threading.enumerate() if not t.daemon and t is not threading.main_thread()]
    if threads and {t.ident for t in threads} <= set(_core.sleeping_threads()):
        _core.close_all_runtimes()
    return bool(threads)


def _main_thread_ends() -> None:
    if _core.sleeping_threads():
        _core.repeat_in_background(_let_threads_end)  # not a Python thread: 3.12.0 and 3.12.1 start none this late


# Futures, tasks and daemon threads that still wait get their error before the interpreter ends.
atexit.register(_core.end_batching)
os.register_at_fork(after_in_child=_core.forget_calls)
if hasattr(threading, "_register_atexit"):
    threading._register_atexit(_main_thread_ends)  # runs before concurrent.futures waits for its threads
