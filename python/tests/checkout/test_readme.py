"""The Python code of README.md and docs/ prints what its comments say; the commands there exist."""

from __future__ import annotations

import re
import runpy
import sys
from types import SimpleNamespace

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


def test_the_promises_about_bits_name_tests_that_exist() -> None:
    page = (ROOT / "docs" / "determinism.md").read_text()
    tests = {file.stem: file.read_text() for file in ROOT.glob("raggrad/**/test/*_test.cc")}
    files = set(re.findall(r"`(\w+_test)`", page)) - {"x_test"}  # which stands for all of them
    assert files and files <= tests.keys()
    for file, names in re.findall(r"`(\w+_test)` ((?:…?[A-Z][\w.]*…?(?:, )?)+)", page):
        assert [name for name in re.findall(r"[\w.]+", names) if name.split(".")[-1] not in tests[file]] == [], file
    python = "".join(f"{file.stem}\n{file.read_text()}" for file in (ROOT / "python" / "tests").rglob("*.py"))
    assert [name for name in re.findall(r"\btest_\w+", page) if name not in python] == []


def test_doctests_on_the_site_keep_their_whole_output(monkeypatch: pytest.MonkeyPatch) -> None:
    # A package that only `make docs` installs.
    monkeypatch.setitem(sys.modules, "griffe", SimpleNamespace(Extension=object, Object=object))
    fence = runpy.run_path(str(ROOT / "tools" / "site" / "doctests.py"))["fence"]
    doctest = "    >>> ragged\n    Ragged([[1.],\n            []], dtype='float32')\n    >>> 1\n    1"
    assert fence(f"Words.\n\n{doctest}\n\n    More.") == f"Words.\n\n    ```pycon\n{doctest}\n    ```\n\n    More."
