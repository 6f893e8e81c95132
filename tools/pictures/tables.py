"""Tables of docs/measurements/ in pages.

A page names the file, and the tables of it that it shows (all, if it names none):

    <!-- measurement: accumulation_x86_64 costs -->
    <!-- end of measurement -->

What is between these lines is written here.
"""

from __future__ import annotations

import re
from pathlib import Path

from raggrad.bench.measurement import Measurement

BLOCK = re.compile(
    r"^(<!-- measurement: (\w+)(?: ([^\n]+))? -->\n).*?(^<!-- end of measurement -->$)", re.M | re.DOTALL
)


def pages(root: Path) -> list[Path]:
    """Files that may show measurements: all that people read."""
    folders = ("", "docs", "raggrad/ops/*", "raggrad/capi", "examples/*", "fuzz", "goldens")
    return sorted(page for folder in folders for page in root.glob(f"{folder}/*.md".lstrip("/")))


def filled(page: str, root: Path) -> str:
    """The page with the tables that its marks name."""

    def block(found: re.Match[str]) -> str:
        begin, name, tables, end = found.groups()
        measured = Measurement.read(root / "docs" / "measurements" / f"{name}.json")
        return f"{begin}{measured.markdown(*(tables.split(', ') if tables else []))}\n{end}"

    return BLOCK.sub(block, page)
