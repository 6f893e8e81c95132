"""Scenarios of the batching operators, recorded from TensorFlow, and the player itself."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import raggrad
import raggrad.conformance
from conftest import ROOT
from raggrad.conformance import find_files, read_cases, scenarios


def test_recorded_scenarios(capsys: pytest.CaptureFixture[str]) -> None:
    assert raggrad.conformance.run_files([str(ROOT / "goldens" / "batching")], skip_unknown=False) == 0
    assert "407 passed, 0 failed" in capsys.readouterr().out
    assert threading.active_count() < 50


def test_a_wrong_result_of_a_scenario_is_found(tmp_path: Any) -> None:
    """Tests the player: a result that differs from the recorded one, a call that should wait, a wish not fulfilled."""
    tensor = {"dtype": "float32", "shape": [1], "data": "AACAPw=="}
    other = {**tensor, "data": "AAAAQA=="}
    key = {"dtype": "int64", "shape": [], "data": "AQAAAAAAAAA="}
    index = {"dtype": "int64", "shape": [1, 3], "data": "AQAAAAAAAAAAAAAAAAAAAAEAAAAAAAAA"}
    step = {
        "call": "UnbatchGrad",
        "id_of_call": 0,
        "inputs": {"original_input": tensor, "batch_index": index, "grad": tensor, "id": key},
        "attrs": {"container": "", "shared_name": "s"},
        "expect": "returns_now",
        "completes": [],
    }
    right = {"name": "right", "steps": [step], "results": {"0": {"output": tensor}}}
    error = {"error": {"code": "INTERNAL", "message": "x"}}
    cases = [
        (right, None),
        ({**right, "results": {"0": {"output": other}}}, "1 of 1 elements differ"),
        ({**right, "results": {"0": error}}, "expected INTERNAL x, got a result"),
        ({**right, "results": {"0": {"pending": True}}}, "expected a call that waits"),
        ({"name": "wanted", "steps": [step], "want": {"0": "ok"}}, None),
        ({"name": "wanted", "steps": [step], "want": {"0": "ok_empty"}}, "wanted 'ok_empty', got a result"),
        ({"name": "wanted", "steps": [step], "want": {"0": "INTERNAL"}}, "wanted 'INTERNAL', got a result"),
        ({"name": "wanted", "steps": [step], "want": {"0": "keeps waiting"}}, "wanted 'keeps waiting'"),
    ]
    for case, expected in cases:
        difference = scenarios.play(case)
        assert difference is None if expected is None else expected in difference
    (tmp_path / "broken.jsonl").write_text('{"steps": []}\n')
    with pytest.raises(raggrad.conformance.BrokenFile, match="a scenario needs a name"):
        list(read_cases(find_files([str(tmp_path)])[0]))
