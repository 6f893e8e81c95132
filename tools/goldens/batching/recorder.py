"""Plays scenarios through TensorFlow and records how every call ended."""

from __future__ import annotations

import itertools
import re
import threading
import time
from typing import Any

import numpy as np
import tensorflow as tf

from .. import tf_runner
from ..encoding import Tensor, decode, encode

QUIET = 0.1  # seconds; a call waits if it has not returned while nothing happened for this long

_OUTPUTS = ("batched_tensors", "batch_index", "id")
_numbers = itertools.count()


def record(scenario: dict[str, Any]) -> dict[str, Any]:
    """The scenario with TensorFlow's outcomes, which must be the same twice."""
    recorded = _play(scenario)
    if recorded != _play(scenario):
        raise SystemExit(f"{scenario['name']}: TensorFlow does not do the same twice; not a golden scenario")
    return recorded


def _play(scenario: dict[str, Any]) -> dict[str, Any]:
    player = _Player()
    steps = [player.play(step) for step in scenario["steps"]]
    return {**scenario, "steps": steps, "results": player.results()}


class _Player:
    """The calls of one scenario, in containers of their own because resources live as long as the process."""

    def __init__(self) -> None:
        self._containers = f"scenario {next(_numbers)}: "
        self._threads: dict[int, threading.Thread] = {}
        self._ended: dict[int, Any] = {}

    def play(self, step: dict[str, Any]) -> dict[str, Any]:
        before = len(self._ended)
        if step["call"] == "Sleep":
            time.sleep(step["micros"] / 1e6)
            return step
        if step["call"] == "Await":
            number, others = step["target"], "also_returned"
            self._threads[number].join()
        else:
            number, others = step["id_of_call"], "completes"
            self._threads[number] = threading.Thread(target=self._call, args=(step,), daemon=True)
            self._threads[number].start()
        self._settle()
        new = sorted(call for call in [*self._ended][before:] if call != number)
        return {**step, **({} if step["call"] == "Await" else {"expect": self._what_became_of(number)}), others: new}

    def results(self) -> dict[str, Any]:
        batches = {call: ended for call, ended in self._ended.items() if hasattr(ended, "batch_index")}
        ids = {int(ended.id): call for call, ended in batches.items() if ended.id.ndim == 0}
        return {str(call): self._result(call, ids) for call in self._threads}

    def _call(self, step: dict[str, Any]) -> None:
        attrs = step["attrs"] | {"container": self._containers + step["attrs"]["container"]}
        inputs = {name: tf_runner.to_tf(decode(value)) for name, value in step["inputs"].items()}
        try:
            ended = getattr(tf.raw_ops, step["call"])(**inputs, **attrs)
        except tf.errors.OpError as error:
            ended = error
        self._ended[step["id_of_call"]] = ended

    def _settle(self) -> None:
        """Returns when every call is over or waits."""
        seen, since = -1, 0.0
        while any(thread.is_alive() for thread in self._threads.values()):
            if len(self._ended) != seen:
                seen, since = len(self._ended), time.monotonic()
            elif time.monotonic() - since > QUIET:
                return
            time.sleep(QUIET / 50)

    def _what_became_of(self, call: int) -> str:
        if call not in self._ended:
            return "waits"
        return "error" if isinstance(self._ended[call], tf.errors.OpError) else "returns_now"

    def _result(self, call: int, ids: dict[int, int]) -> dict[str, Any]:
        if call not in self._ended:
            return {"pending": True}
        ended = self._ended[call]
        if isinstance(ended, tf.errors.OpError):
            code = re.sub(r"(?<!^)(?=[A-Z])", "_", type(ended).__name__.removesuffix("Error")).upper()
            return {"error": {"code": code, "code_int": ended.error_code, "message": tf_runner.kernel_text(ended)}}
        if not hasattr(ended, "batch_index"):
            return {"output": tf_runner.from_tf(ended)}
        return {"outputs": dict(zip(_OUTPUTS, (
            [tf_runner.from_tf(tensor) for tensor in ended.batched_tensors],
            _symbolic(ended.batch_index, ids), _symbolic(ended.id, ids)), strict=True))}


def _symbolic(value: tf.Tensor, ids: dict[int, int]) -> dict[str, Any]:
    """An id or a batch_index, with call numbers in place of the ids that TensorFlow drew."""
    array = np.array(value.numpy(), np.int64)
    cells = array[..., :1] if array.ndim == 2 else array
    for at, drawn in np.ndenumerate(cells):
        cells[at] = ids[int(drawn)]
    return encode(Tensor("int64", array))
