"""Plays scenarios of the batching operators: calls of several threads, recorded from TensorFlow.

    {"name", "note", "tags": [...], "steps": [STEP], "results": {call: OUTCOME}}

    STEP     {"call": operator, "id_of_call": number, "inputs": {name: TENSOR or [TENSOR]}, "attrs": {...},
              "expect": "returns_now", "waits" or "error", "completes": [calls that were waiting]}
             {"call": "Await", "target": number, "also_returned": [numbers]}, {"call": "Sleep", "micros": n}
    OUTCOME  {"output": TENSOR}, {"outputs": {name: TENSOR or [TENSOR]}}, {"error": {"code_int", "message"}} or
             {"pending": true}

Scenarios that TensorFlow does not survive have "want", {call: words}, instead of "results". Two kinds are not played:
those without steps, which describe a procedure, and those with shapes that NumPy lacks, a huge dimension beside a 0.

Every call is made by a thread of its own. The next call begins when all threads have returned or sleep.

raggrad does not repeat TensorFlow's mistakes: a failed call leaves no trace, and a piece belongs to one batch only. So
after an error, or a refusal for one of these reasons, results may differ from the recorded ones. They must then be
those of the same scenario without the failed calls.
"""

from __future__ import annotations

import math
import threading
import time
from typing import Any

import numpy as np

from .. import _core, errors
from ..batching import Runtime
from .tensors import compare_outputs, decode, encode

# Texts of refusals where TensorFlow accepts a call that it cannot serve.
_CORRECTIONS = ("Missing tensor wanted by more than one batch.", "is listed more than once")

_METHODS = {"UnbatchGrad": Runtime.unbatch_grad, "Unbatch": Runtime.unbatch, "Batch": Runtime.batch}
_PENDING: dict[str, Any] = {"pending": True}


def is_scenario(case: Any) -> bool:
    return isinstance(case, dict) and "op" not in case and ("steps" in case or "want" in case)


def is_playable(case: dict[str, Any]) -> bool:
    return bool(case.get("steps")) and all(
        math.prod(max(size, 1) for size in tensor["shape"]) < 1 << 59
        for step in case["steps"]
        for value in step.get("inputs", {}).values()
        for tensor in (value if isinstance(value, list) else [value])
    )


class _Player:
    """The calls of one scenario, in a runtime of their own."""

    def __init__(self) -> None:
        self._runtime = Runtime()
        self._threads: dict[int, threading.Thread] = {}
        self._ended: dict[int, Any] = {}
        self._ids: dict[int, int] = {}
        self.ended_at: dict[int, int] = {}  # call -> the call that ended it

    def play(self, step: dict[str, Any]) -> None:
        if step["call"] == "Sleep":
            time.sleep(step["micros"] / 1e6)
        elif step["call"] == "Await":
            self.await_calls([step["target"], *step.get("also_returned", [])])
        else:
            number = step["id_of_call"]
            inputs = {name: decode(value) for name, value in step["inputs"].items()}
            arguments = {**inputs, **step["attrs"]}
            thread = threading.Thread(target=self._call, args=(number, step["call"], arguments), daemon=True)
            self._threads[number] = thread
            thread.start()
            self._settle()
            for ended in self._ended:
                self.ended_at.setdefault(ended, number)

    def await_calls(self, numbers: list[int]) -> None:
        for number in numbers:
            self._threads[number].join(60)

    def close(self) -> None:
        self._runtime.close()
        self.await_calls(list(self._threads))

    def outcome(self, number: int) -> dict[str, Any]:
        """The OUTCOME of a call. Ids that Batch drew are replaced by the numbers of the calls that got them."""
        if number not in self._ended:
            return _PENDING
        ended = self._ended[number]
        if isinstance(ended, errors.OpError):
            return {"error": {"code": ended.code, "message": ended.message}}
        if isinstance(ended, Exception):
            raise ended
        if not hasattr(ended, "_fields"):
            return {"output": encode(ended)}
        return {
            "outputs": {
                "batched_tensors": [encode(tensor) for tensor in ended.batched_tensors],
                "batch_index": encode(self._symbolic(ended.batch_index)),
                "id": encode(self._symbolic(ended.id)),
            }
        }

    def held(self) -> list[tuple[int, int]]:
        """How many pieces and waiting calls each resource holds."""
        held = []
        for kind, container, name in sorted(self._resources):
            try:
                statistics = self._runtime.resource(kind, name, container).statistics()
                held.append((statistics.pieces, statistics.waiters))
            except errors.NotFoundError:
                held.append((0, 0))
        return held

    def know(self, steps: list[dict[str, Any]]) -> None:
        self._resources = {
            (s["call"], s["attrs"]["container"], s["attrs"]["shared_name"]) for s in steps if "attrs" in s
        }

    def _call(self, number: int, op: str, arguments: dict[str, Any]) -> None:
        try:
            result = _METHODS[op](self._runtime, **arguments)
            if op == "Batch" and result.id.ndim == 0:
                self._ids[int(result.id)] = number
            self._ended[number] = result
        except Exception as error:
            self._ended[number] = error

    def _settle(self) -> None:
        """Returns when every call is over or waits. From then on only a deadline can end one."""
        while True:
            asleep = set(_core.sleeping_threads())
            if all(t.ident in asleep for t in self._threads.values() if t.is_alive()):
                return
            time.sleep(0.00005)

    def _symbolic(self, array: np.ndarray) -> np.ndarray:
        array = array.copy()
        ids = array[..., :1] if array.ndim == 2 else array
        for at, value in np.ndenumerate(ids):
            ids[at] = self._ids.get(int(value), -1)
        return array


def play(case: dict[str, Any]) -> str | None:
    """How the scenario differs from what was recorded or is wanted. None if it does not."""
    player = _Player()
    try:
        return _play_wanted(case, player) if "want" in case else _play_recorded(case, player)
    finally:
        player.close()


def _difference(want: dict[str, Any], got: dict[str, Any]) -> str | None:
    if want.get("pending") or got.get("pending"):
        return None if want == got else f"expected {_words(want)}, got {_words(got)}"
    if "error" in want or "error" in got:
        if "error" not in got or "error" not in want:
            return f"expected {_words(want)}, got {_words(got)}"
        same = want["error"]["code"] == got["error"]["code"] and want["error"]["message"] in got["error"]["message"]
        return None if same else f"expected {_words(want)}, got {_words(got)}"
    if "output" in want:
        return compare_outputs({"output": want["output"]}, {"output": got["output"]})
    return compare_outputs(_flat(want["outputs"]), _flat(got["outputs"]))


def _words(outcome: dict[str, Any]) -> str:
    if outcome.get("pending"):
        return "a call that waits"
    return f"{outcome['error']['code']} {outcome['error']['message']}" if "error" in outcome else "a result"


def _flat(outputs: dict[str, Any]) -> dict[str, Any]:
    tensors = {f"batched_tensors[{i}]": tensor for i, tensor in enumerate(outputs["batched_tensors"])}
    return {**tensors, "batch_index": outputs["batch_index"], "id": outputs["id"]}


def _play_recorded(case: dict[str, Any], player: _Player) -> str | None:
    steps, results = case["steps"], {int(call): outcome for call, outcome in case["results"].items()}
    player.know(steps)
    over: set[int] = set()
    may_differ = False
    for step in steps:
        player.play(step)
        number = step.get("id_of_call", step.get("target"))
        if step.get("expect") == "error" and "timeout" in case.get("tags", ()):
            player.await_calls([number])  # the deadline is over at once
        if step.get("expect") in ("returns_now", "error") or step["call"] == "Await":
            over |= {number, *step.get("also_returned", [])}
        over |= set(step.get("completes", []))
        may_differ |= _is_correction(player.outcome(number))
        for call in player.ended_at.keys() | over:
            want = results[call] if call in over else _PENDING
            if difference := _difference(want, player.outcome(call)):
                return _play_without_failures(case) if may_differ else f"call {call}: {difference}"
        may_differ |= "error" in player.outcome(number)
    for call, want in results.items():
        if difference := _difference(want, player.outcome(call)):
            return f"call {call}: {difference}"
    return None


def _is_correction(outcome: dict[str, Any]) -> bool:
    return any(text in outcome.get("error", {}).get("message", "") for text in _CORRECTIONS)


def _play_without_failures(case: dict[str, Any]) -> str | None:
    """Plays the steps twice, the second time without calls that failed and changed nothing, and compares the two."""
    all_steps, some_steps = _Player(), _Player()
    for player in (all_steps, some_steps):
        player.know(case["steps"])
    try:
        for step in case["steps"]:
            before = all_steps.held()
            all_steps.play(step)
            number = step.get("id_of_call")
            if "error" in all_steps.outcome(number) and all_steps.held() == before:
                continue
            some_steps.play(step)
            for call in some_steps.ended_at.keys() | all_steps.ended_at.keys():
                if "error" in all_steps.outcome(call) and call not in some_steps.ended_at:
                    continue
                if difference := _difference(some_steps.outcome(call), all_steps.outcome(call)):
                    return f"call {call}, compared with the scenario without failed calls: {difference}"
        return None
    finally:
        all_steps.close()
        some_steps.close()


def _play_wanted(case: dict[str, Any], player: _Player) -> str | None:
    for step in case["steps"]:
        player.play(step)
    for call, words in case["want"].items():
        if problem := _unwanted(words, int(call), player):
            return f"call {call}: {problem}"
    return None


def _unwanted(words: str, call: int, player: _Player) -> str | None:
    outcome = player.outcome(call)
    got = f"wanted {words!r}, got {_words(outcome)}"
    if words.startswith("keeps waiting") or words == "DEADLINE_EXCEEDED or CANCELLED":
        if outcome is not _PENDING:
            return got
        player.close()
        return None if player.outcome(call)["error"]["code"] == "CANCELLED" else "closing did not end it"
    if outcome is _PENDING:
        return got
    _, completed, by = words.partition("completed by ")
    if completed:
        return None if "output" in outcome and player.ended_at[call] == int(by) else got
    if words in ("ok", "ok_empty"):
        if "error" in outcome or player.ended_at[call] != call:
            return got
        return None if (outcome["output"]["shape"][0] == 0) == (words == "ok_empty") else got
    code = outcome["error"]["code"] if "error" in outcome else "ok or"
    return None if code in words and ("(at once)" not in words or player.ended_at[call] == call) else got
