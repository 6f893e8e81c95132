"""Batch, Unbatch and UnbatchGrad through tf.raw_ops: recorded scenarios, and endings that TensorFlow's kernels lack."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from raggrad.conformance.files import read_cases
from raggrad.conformance.scenarios import is_playable
from raggrad.tf import on_demand

from .door import ROOT, calls, run, tf

sys.path.insert(0, str(ROOT / "tools"))
from goldens.batching import recorder

pytestmark = pytest.mark.skipif(not on_demand.loaded(), reason="no C++ compiler")

FOLDER = ROOT / "goldens/batching"
AT_ONCE = 8  # most of a scenario's time is spent in waiting


def _play(scenarios: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    monkeypatch.setattr(recorder, "QUIET", 0.2)  # less than the deadlines of scenarios
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(recorder._play, scenarios))


def _different(
    scenarios: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, is_same: Callable[[Any, Any], bool]
) -> list[str]:
    """Scenarios that end differently. On a busy machine a call may return late and look as if it waited: suspects are
    played again, one at a time, and with more patience where no deadline forbids it.
    """
    played = zip(scenarios, _play(scenarios, monkeypatch), strict=True)
    suspects = [case for case, got in played if not is_same(case, got)]
    found = []
    for case in suspects:
        monkeypatch.setattr(recorder, "QUIET", min(2.0, 0.8 * _shortest_deadline(case)))
        if not is_same(case, recorder._play(case)):
            found.append(case["name"])
    return found


def _shortest_deadline(case: dict[str, Any]) -> float:
    """In seconds."""
    settings = [(step.get("attrs") or step).items() for step in case["steps"]]
    micros = [value for items in settings for name, value in items if name.endswith("timeout_micros") and value > 0]
    return min(micros, default=10_000_000) / 1e6


@pytest.mark.parametrize("operator", ["Batch", "Unbatch", "UnbatchGrad"])
def test_recorded_scenarios(operator: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those without an error: after one, TensorFlow's kernels leave things behind and raggrad's do not."""
    name = {"Batch": "batch", "Unbatch": "unbatch", "UnbatchGrad": "unbatch_grad"}[operator]
    before = calls(operator)
    scenarios = [case for _, case in read_cases(FOLDER / f"{name}.jsonl")]
    scenarios = [case for case in scenarios if not any("error" in end for end in case["results"].values())]
    assert _different(scenarios, monkeypatch, lambda case, got: got == case) == []
    steps = sum(step["call"] == operator for case in scenarios for step in case["steps"])
    assert calls(operator) - before >= steps > 50


def test_calls_that_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scenarios of one call that TensorFlow refuses: the same code, and its text within ours."""
    files = [FOLDER / f"{name}.jsonl" for name in ("batch", "unbatch", "unbatch_grad")]
    scenarios = [case for file in files for _, case in read_cases(file)]
    scenarios = [case for case in scenarios if len(case["steps"]) == 1 and "error" in case["results"]["0"]]
    scenarios = [case for case in scenarios if not case["name"].endswith("-unsupported")]  # other kernels' types

    def fails_alike(case: dict[str, Any], got: dict[str, Any]) -> bool:
        want, end = case["results"]["0"]["error"], got["results"]["0"].get("error", {})
        return want["code"] == end.get("code") and want["message"] in end["message"]

    assert _different(scenarios, monkeypatch, fails_alike) == []
    assert len(scenarios) > 20


def test_scenarios_that_tensorflow_does_not_survive(monkeypatch: pytest.MonkeyPatch) -> None:
    scenarios = [case for _, case in read_cases(FOLDER / "crashes.jsonl") if is_playable(case)]

    def ends_as_wanted(case: dict[str, Any], got: dict[str, Any]) -> bool:
        return all(_is_wanted(words, got["results"][call]) for call, words in case["want"].items())

    assert _different(scenarios, monkeypatch, ends_as_wanted) == []
    assert len(scenarios) > 20


def _is_wanted(words: str, end: dict[str, Any]) -> bool:
    if words.startswith("keeps waiting") or words == "DEADLINE_EXCEEDED or CANCELLED":
        return "pending" in end
    return end["error"]["code"] in words if "error" in end else "ok" in words or words.startswith("completed by")


def test_a_waiting_call_can_be_cancelled() -> None:
    """TensorFlow's kernel ignores it, and the call sleeps for ever."""
    from tensorflow.python.eager import cancellation

    @tf.function
    def wait(gradient: Any) -> Any:
        """UnbatchGrad of an owner whose other piece does not come."""
        return tf.raw_ops.UnbatchGrad(
            original_input=gradient, batch_index=tf.constant([[1, 0, 1], [2, 1, 2]], tf.int64), grad=gradient,
            id=tf.constant(1, tf.int64), shared_name="cancelled",
        )  # fmt: skip

    manager = cancellation.CancellationManager()
    waiting = manager.get_cancelable_function(wait.get_concrete_function(tf.TensorSpec([1, 1], tf.float32)))
    errors = []

    def call() -> None:
        try:
            waiting(tf.ones([1, 1]))
        except tf.errors.CancelledError as error:
            errors.append(error)

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(0.3)
    assert thread.is_alive()
    manager.start_cancel()
    thread.join(60)
    assert not thread.is_alive()
    assert len(errors) == 1


def test_sessions_do_not_share_resources() -> None:
    with tf.Graph().as_default():
        index = tf.constant([[5, 0, 1]], tf.int64)
        gradient = tf.compat.v1.placeholder(tf.float32, [1, 1])
        joined = tf.raw_ops.UnbatchGrad(
            original_input=[[1.0]], batch_index=index, grad=gradient, id=tf.constant(5, tf.int64), shared_name="same"
        )
        lonely = tf.raw_ops.UnbatchGrad(
            original_input=tf.zeros([0, 1]), batch_index=tf.zeros([0, 3], tf.int64), grad=gradient,
            id=tf.constant(5, tf.int64), shared_name="same",
        )  # fmt: skip
        with tf.compat.v1.Session() as one, tf.compat.v1.Session() as other:
            assert one.run(lonely, {gradient: [[3.0]]}).shape == (0, 1)
            with pytest.raises(tf.errors.InvalidArgumentError, match="Two runs with the same batch key"):
                one.run(lonely, {gradient: [[3.0]]})
            np.testing.assert_array_equal(other.run(joined, {gradient: [[4.0]]}), [[4.0]])


# A call leaves its gradient behind, so that a second one with the same id is refused: by that the program sees which
# resources are still there.
_RESET = """
import os, sys, threading, time
import numpy as np
import tensorflow as tf
{install}
v1 = tf.compat.v1
server = tf.distribute.Server.create_local_server()

def leave(container, gradient):
    return tf.raw_ops.UnbatchGrad(
        original_input=tf.zeros([0, 1]), batch_index=tf.zeros([0, 3], tf.int64), grad=gradient,
        id=tf.constant(5, tf.int64), container=container, shared_name="same")

def kept():
    answers = []
    with v1.Session(server.target) as session:
        for operator in operators:
            try:
                session.run(operator, {{gradient: [[1.0]]}})
                answers.append(False)
            except tf.errors.InvalidArgumentError:
                answers.append(True)
    return answers

with tf.Graph().as_default():
    gradient = v1.placeholder(tf.float32, [1, 1])
    operators = [leave(container, gradient) for container in ("box", "other", "")]
    print(kept(), kept())
    for containers in (["box"], ["other", ""], [], ["absent"]):
        v1.Session.reset(server.target, containers)
        print(containers, kept())
    {then}
sys.stdout.flush()
os._exit(0)  # servers have no end
"""

_WAIT = """
    asked = v1.placeholder(tf.float32, [0, 1])
    waiting = tf.raw_ops.Unbatch(
        batched_tensor=asked, batch_index=tf.zeros([0, 3], tf.int64), id=tf.constant(7, tf.int64),
        timeout_micros=600_000_000, container="box", shared_name="same")
    def wait():
        try:
            v1.Session(server.target, graph=waiting.graph).run(waiting, {asked: np.zeros([0, 1])})
        except (tf.errors.CancelledError, tf.errors.AbortedError):
            print("ended")
    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    while thread.is_alive() and not raggrad.tf.on_demand.calls("Unbatch"):
        time.sleep(0.05)
    v1.Session.reset(server.target, ["box"])
    thread.join(60)
    print(thread.is_alive())
"""


def test_resources_end_with_their_container() -> None:
    """As TensorFlow's do; calls that wait in one end, too."""
    stock = run(_RESET.format(install="", then="")).splitlines()
    assert stock[0] == f"{[False] * 3} {[True] * 3}"
    assert stock[1] == "['box'] [False, True, True]"
    ours = run(_RESET.format(install="import raggrad.tf; raggrad.tf.install()", then=_WAIT)).splitlines()
    assert ours == [*stock, "ended", "False"]
