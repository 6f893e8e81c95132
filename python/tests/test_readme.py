"""The Python examples of README.md print what their comments say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[2] / "README.md"


def python_blocks() -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", README.read_text(), re.DOTALL | re.MULTILINE)


def promised_output(code: str) -> list[str]:
    """The comments behind the prints."""
    return re.findall(r"^print\(.*\)  # (.*)$", code, re.MULTILINE)


@pytest.mark.parametrize("code", python_blocks())
def test_an_example_prints_what_it_says(code: str, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(code, str(README), "exec"), {})
    assert capsys.readouterr().out.splitlines() == promised_output(code)


def test_there_is_an_example() -> None:
    assert any(promised_output(code) for code in python_blocks())
