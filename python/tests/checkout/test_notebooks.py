"""The notebooks of examples/ are clean, and run. Those that need torch run beside it: torch_door/, dist/."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pages import NOTEBOOKS, notebook, run

NAMES = sorted(path.stem for path in NOTEBOOKS.glob("*.ipynb"))


def test_the_notebook_on_ragged_data_runs(pa: Any) -> None:
    run("ragged.ipynb", notebook("ragged"), {})


def test_all_notebooks_are_known() -> None:
    assert NAMES == ["ragged", "recommender", "reproducibility"]


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_has_no_traces_of_a_run(name: str) -> None:
    book = json.loads((NOTEBOOKS / f"{name}.ipynb").read_text())
    assert (book["nbformat"], book["nbformat_minor"]) == (4, 5)
    ids = [cell["id"] for cell in book["cells"]]
    assert len(set(ids)) == len(ids)
    for cell in book["cells"]:
        assert cell["metadata"] == {}
        if cell["cell_type"] == "code":
            assert (cell["outputs"], cell["execution_count"]) == ([], None)
