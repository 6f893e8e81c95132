"""The Python code of README.md, docs/ and notebooks, for the tests that run it.

Blocks marked `python` are programs: all blocks of a page run one after the other and share their names. A line
`print(...)  # text` prints its comment. Blocks marked `diff` show a change, and both sides of it run. A page or a block
that imports a framework belongs to the tests of that framework's door. docs/ragged.md is a doctest, which
ragged/test_interop.py runs.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
NOTEBOOKS = ROOT / "examples" / "notebooks"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

_BLOCK = re.compile(r"^```(python|diff)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_DOORS = {"torch": "torch", "scale": "dist", "jax": "jax", "tensorflow": "tf", "ragged": "ragged"}  # by page
_IMPORTED = re.compile(r"^\+?import raggrad\.(torch|jax|tf)\b", re.MULTILINE)  # by block


def programs(door: str = "") -> dict[str, list[str]]:
    """By page: the code that needs this door, or none; before and after of a diff are two of them."""
    found: dict[str, list[str]] = {}
    for page in PAGES:
        for language, code in _BLOCK.findall(page.read_text()):
            imported = _IMPORTED.search(code)
            if door == _DOORS.get(page.stem, imported[1] if imported else ""):
                sides = [code] if language == "python" else [_side(code, "-"), _side(code, "+")]
                found.setdefault(str(page.relative_to(ROOT)), []).extend(sides)
    return found


def notebook(name: str) -> list[str]:
    """The code of a notebook of examples/notebooks, cell by cell."""
    cells = json.loads((NOTEBOOKS / f"{name}.ipynb").read_text())["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


def _side(diff: str, sign: str) -> str:
    return "".join(f"{line[1:]}\n" for line in diff.splitlines() if line[:1] in ("", " ", sign))


def run(page: str, codes: list[str], names: dict[str, Any]) -> None:
    """Runs the blocks of a page with these names, and compares what they print."""
    for code in codes:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, page, "exec"), names)
        promised = re.findall(r"^ *print\(.*\)  # (.*)$", code, re.MULTILINE)
        if page == "docs/start.md":  # says once what all its programs print
            promised = re.findall(r"^    (row .*)$", (ROOT / page).read_text(), re.MULTILINE)
        assert not promised or printed.getvalue().splitlines() == promised, code
