"""The ledger: replays public reports of faults in other libraries. golden_test replays its calls in C++."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import raggrad
from conftest import ROOT, same_bits
from raggrad.conformance import compare, run_case

sys.path.insert(0, str(ROOT / "tools"))

from ledger import write
from ledger.entry import Call, Entry, Refusal, Result, Script

ENTRIES = [entry for project in write.PROJECTS for entry in project.entries]


@pytest.mark.parametrize("threads", [1, 2, 7])
@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.link.removeprefix("https://github.com/"))
def test_replay(entry: Entry, threads: int, restore_threads: None) -> None:
    raggrad.set_num_threads(threads)
    for replay in entry.replays:
        if isinstance(replay, Call):
            case = replay.to_json(entry.report, entry.link)
            assert compare(case, run_case(case)) is None
        else:
            check_script(replay)


def check_script(script: Script) -> None:
    if isinstance(script.answer, Refusal):
        with pytest.raises(raggrad.errors.OpError) as raised:
            script.play()
        assert raised.value.code.title().replace("_", "") == script.answer.code
        assert script.answer.text in raised.value.message
        return
    outputs = script.play()
    assert list(outputs) == list(script.answer.outputs)
    for name, expected in script.answer.outputs.items():
        assert same_bits(outputs[name], expected), f"{name}: expected {expected}, got {outputs[name]}"


def test_what_is_made_from_the_ledger_is_up_to_date() -> None:
    """`make ledger` writes both files."""
    assert write.CASES.read_text() == write.cases_text()
    assert write.PAGE.read_text() == write.page_text()


def test_entries_are_complete() -> None:
    links = [entry.link for entry in ENTRIES]
    assert len(set(links)) == len(links)
    for entry in ENTRIES:
        assert entry.replays, entry.report
        for replay in entry.replays:
            if isinstance(replay.answer, Result):
                assert entry.answer, f"{entry.report}: a result needs words for the page"
                assert replay.answer.outputs
            else:
                assert replay.answer.text, f"{entry.report}: a refusal needs a part of its text"


def test_a_wrong_answer_is_noticed() -> None:
    zeros = Result({"output": np.zeros(2)})
    check_script(Script(lambda: {"output": np.zeros(2)}, zeros))
    for outputs in ({"output": np.float64([0, -0.0])}, {"output": np.zeros(2, np.float32)}, {"other": np.zeros(2)}):
        with pytest.raises(AssertionError):
            check_script(Script(lambda outputs=outputs: outputs, zeros))
    with pytest.raises(pytest.fail.Exception):
        check_script(Script(dict, Refusal("no")))


def test_names_of_golden_cases_are_unique() -> None:
    names = [case["name"] for case in write.cases()]
    assert len(set(names)) == len(names)
