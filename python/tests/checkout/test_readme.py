"""The Python code of README.md and docs/ prints what its comments say; the commands there exist."""

from __future__ import annotations

import re

import pytest
from pages import PAGES, ROOT, programs, run

PROGRAMS = programs()


@pytest.mark.parametrize("page", PROGRAMS)
def test_the_code_of_a_page_prints_what_it_says(page: str) -> None:
    run(page, PROGRAMS[page], {})


def test_the_pages_have_code() -> None:
    assert PROGRAMS.keys() >= {"README.md", "docs/start.md", "docs/training.md", "docs/batching.md"}
    assert all(programs(door) for door in ("torch", "jax", "tf", "dist"))


def test_the_targets_that_pages_name_exist() -> None:
    targets = set(re.findall(r"^([a-z][a-z-]*)(?: [a-z -]+)?:", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "ARCHITECTURE.md"]:
        named = set(re.findall(r"(?:`|^    )make ([a-z][a-z-]*)(?![a-z/-])", page.read_text(), re.MULTILINE))
        assert named <= targets, page
