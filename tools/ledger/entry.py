"""The parts of the ledger: a report, the input it is about, and the right answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from goldens.encoding import Inputs, Ragged, Tensor, Variant, encode

# Where calls are replayed. "C++" is golden_test, with 1, 2 and 7 threads and every instruction set.
ON_CPU, IN_PYTHON, ON_GPU = "C++", "Python", "GPU"


@dataclass(frozen=True)
class Refusal:
    """The expected error: its code and a part of its text."""

    text: str
    code: str = "InvalidArgument"


@dataclass(frozen=True)
class Result:
    """The expected outputs, bit for bit. They come from a calculation by hand or by NumPy, never from raggrad."""

    outputs: dict[str, Any]


@dataclass(frozen=True)
class Call:
    """One call of an operator. It becomes a case of goldens/ledger.jsonl, which C++, the GPU and Python replay."""

    op: str
    inputs: Inputs
    answer: Refusal | Result
    attrs: dict[str, Any] = field(default_factory=dict)

    def places(self) -> tuple[str, ...]:
        strings = any(tensor.dtype == "string" for tensor in _tensors(list(self.inputs.values())))
        return (ON_CPU, IN_PYTHON) if strings else (ON_CPU, IN_PYTHON, ON_GPU)

    def to_json(self, name: str, link: str) -> dict[str, Any]:
        case = {
            "name": name,
            "op": self.op,
            "attrs": self.attrs,
            "inputs": {key: encode(value) for key, value in self.inputs.items()},
            "note": "",
            "report": link,
        }
        if isinstance(self.answer, Result):
            return case | {"outputs": {key: encode(value) for key, value in self.answer.outputs.items()}}
        if self.answer.code == "ResourceExhausted":  # this note makes replays limit the memory and ignore the text
            case["note"] = "oom"
        return case | {"error": {"code": self.answer.code, "message": self.answer.text}}


@dataclass(frozen=True)
class Script:
    """A few lines of Python, for replays without a golden format. `play` returns the outputs by name, or raises."""

    play: Callable[[], dict[str, Any]]
    answer: Refusal | Result

    def places(self) -> tuple[str, ...]:
        return (IN_PYTHON,)


@dataclass(frozen=True)
class Entry:
    report: str  # its name in its project: "CVE-2020-15194", "issue 57765"
    link: str
    happened: str  # in the other library, in one or two sentences
    replays: tuple[Call | Script, ...]
    answer: str = ""  # of raggrad, in words; needed where a replay has a result

    @property
    def answers(self) -> str:
        refusals = [replay.answer for replay in self.replays if isinstance(replay.answer, Refusal)]
        texts = dict.fromkeys(f"`{refusal.code}`: {refusal.text.rstrip('.')}" for refusal in refusals)
        return ". ".join([*([self.answer] if self.answer else []), *texts])

    @property
    def places(self) -> list[str]:
        found = {place for replay in self.replays for place in replay.places()}
        return [place for place in (ON_CPU, IN_PYTHON, ON_GPU) if place in found]


@dataclass(frozen=True)
class Project:
    name: str
    entries: tuple[Entry, ...]


def issue(repository: str, number: int) -> tuple[str, str]:
    """The name of a report, and its link."""
    return f"issue {number}", f"https://github.com/{repository}/issues/{number}"


def pull(repository: str, number: int) -> tuple[str, str]:
    return f"pull request {number}", f"https://github.com/{repository}/pull/{number}"


def _tensors(values: Any) -> list[Tensor]:
    if isinstance(values, list):
        return [tensor for value in values for tensor in _tensors(value)]
    if isinstance(values, Variant):
        return _tensors(list(values.elements))
    if isinstance(values, Ragged):
        return _tensors([*values.splits, values.values])
    return [values] if isinstance(values, Tensor) else []
