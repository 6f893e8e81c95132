"""Calls of the batching operators that several tests make."""

from __future__ import annotations

import concurrent.futures
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from raggrad import _core
from raggrad.batching import Runtime

NO_INDEX = np.zeros((0, 3), np.int64)
GRAD = np.float32([[1, 2]])


def index_of(*keys: int) -> np.ndarray:
    """The index of a batch with one row for each key."""
    return np.array([[key, i, i + 1] for i, key in enumerate(keys)])


def bring(runtime: Runtime, key: int, grad: Any, **more: Any) -> Any:
    """UnbatchGrad of a call that owns no batch: it leaves its piece and returns at once."""
    return runtime.unbatch_grad(original_input=grad[:0], batch_index=NO_INDEX, grad=grad, id=key, **more)


def own(runtime: Runtime, key: int, grad: Any, *keys: int, **more: Any) -> Any:
    """UnbatchGrad of the owner of a batch: it waits for the pieces of all keys."""
    return runtime.unbatch_grad(original_input=grad, batch_index=index_of(*keys), grad=grad, id=key, **more)


def batch_arguments(*tensors: Any, size: int = 2, **more: Any) -> dict[str, Any]:
    return {
        "in_tensors": list(tensors),
        "num_batch_threads": 1,
        "max_batch_size": size,
        "batch_timeout_micros": 10_000_000,
        "grad_timeout_micros": 0,
        **more,
    }


def owner_arguments(**more: Any) -> dict[str, Any]:
    """The arguments of an owner, key 1, that waits for key 2."""
    return {"original_input": GRAD, "batch_index": index_of(1, 2), "grad": GRAD, "id": 1, **more}


def in_thread(call: Callable[[], Any]) -> concurrent.futures.Future:
    """Starts the call in a thread and returns when it waits."""
    result: concurrent.futures.Future = concurrent.futures.Future()

    def run() -> None:
        try:
            result.set_result(call())
        except BaseException as error:
            result.set_exception(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    while thread.is_alive() and thread.ident not in _core.sleeping_threads():
        time.sleep(0.0002)
    return result
