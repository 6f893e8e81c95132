"""Memory of batching calls: arrays live as long as a piece needs them, and no longer."""

from __future__ import annotations

import gc
import sys
import time
import weakref

import numpy as np
import pytest
from raggrad import errors
from raggrad.batching import Cancellation, Limits, Runtime

from .calls import GRAD, batch_arguments, bring, index_of, own, owner_arguments


class Array(np.ndarray):
    """An array that can have weak references."""


def watched(rows: int = 4) -> tuple[np.ndarray, weakref.ref]:
    array = np.ones((rows, 2), np.float32).view(Array)
    return array, weakref.ref(array)


@pytest.mark.parametrize("end", ["joined", "cancelled", "expired", "closed", "dropped"])
def test_a_piece_keeps_its_array_until_it_goes(end: str) -> None:
    runtime = Runtime()
    array, alive = watched()
    address = array.__array_interface__["data"][0]
    bring(runtime, 2, array)
    del array
    gc.collect()
    assert alive() is not None
    assert alive().__array_interface__["data"][0] == address
    if end == "joined":
        assert own(runtime, 1, GRAD, 1, 2).shape == (5, 2)
    elif end == "cancelled":
        runtime.unbatch_grad_future(**owner_arguments()).cancel()
        future = runtime.unbatch_grad_future(**owner_arguments(batch_index=index_of(1, 2, 3)))
        future.cancel()
    elif end == "expired":
        runtime.resource("UnbatchGrad").limits = Limits(max_piece_age_micros=1000)
        while alive() is not None:  # the timer's thread gives it back
            time.sleep(0.001)
    elif end == "closed":
        runtime.close()
    else:
        del runtime
    gc.collect()
    assert alive() is None


def test_no_references_are_left(runtime: Runtime) -> None:
    array = np.ones((3, 2), np.float32)
    words = np.array([b"a" * 50, b"b"], object)
    token = Cancellation()
    objects = (array, words, token, words[0])
    before = [sys.getrefcount(item) for item in objects]
    for key in range(20):
        bring(runtime, key, array, cancellation=token)
        bring(runtime, key, words, shared_name="words")
        own(runtime, -1 - key, array, -1 - key, key)
        own(runtime, -1 - key, words, -1 - key, key, shared_name="words")
        runtime.batch(**batch_arguments(array, size=3))
        runtime.unbatch(batched_tensor=array, batch_index=[[key, 0, 3]], id=key)
        with pytest.raises(errors.DeadlineExceededError):
            own(runtime, -1 - key, array, 1000, timeout_micros=0, cancellation=token)
        runtime.unbatch_grad_future(**owner_arguments(grad=array, cancellation=token)).cancel()
        runtime.close()
    assert [sys.getrefcount(item) for item in objects] == before


def test_operands_may_be_gone_when_the_call_waits(runtime: Runtime) -> None:
    array, alive = watched(1)
    future = runtime.unbatch_grad_future(original_input=GRAD, batch_index=index_of(1, 2), grad=array, id=1)
    del array
    bring(runtime, 2, np.float32([[7, 7]]))
    assert future.result().tolist() == [[1, 1], [7, 7]]
    del future
    gc.collect()
    assert alive() is None
