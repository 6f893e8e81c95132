"""Tables of docs/measurements/ in pages.

A page names the file, and the tables of it that it shows (all, if it names none), or some of their rows:

    <!-- measurement: accumulation_x86_64 costs -->
    <!-- measurement: bench_aarch64 workloads of fill-* slice-*, targets -->
    <!-- end of measurement -->

What is between these lines is written here.
"""

from __future__ import annotations

import fnmatch
import re
from pathlib import Path

from raggrad.bench.measurement import Measurement, Table

from . import compared

BLOCK = re.compile(
    r"^(<!-- measurement: (\w+)(?: ([^\n]+))? -->\n).*?(^<!-- end of measurement -->$)", re.M | re.DOTALL
)


def pages(root: Path) -> list[Path]:
    """Files that may show measurements: all that people read."""
    folders = ("", "docs", "docs/performance", "raggrad/ops/*", "raggrad/capi", "examples/*", "fuzz", "goldens")
    return sorted(page for folder in folders for page in root.glob(f"{folder}/*.md".lstrip("/")))


def filled(page: str, root: Path) -> str:
    """The page with the tables that its marks name."""

    def block(found: re.Match[str]) -> str:
        begin, name, tables, end = found.groups()
        measured = compared.for_pages(Measurement.read(root / "docs" / "measurements" / f"{name}.json"))
        names = [_select(measured, words) for words in tables.split(", ")] if tables else []
        return f"{begin}{measured.markdown(*names)}\n{end}"

    return BLOCK.sub(block, page)


def _select(measured: Measurement, words: str) -> str:
    """The name of the table that `workloads`, or `workloads of fill-* slice-*`, stands for."""
    name, _, patterns = words.partition(" of ")
    if patterns:
        table = measured.tables[name]
        found = {p: [row for row in table.rows if fnmatch.fnmatchcase(str(row[0]), p)] for p in patterns.split()}
        if empty := [pattern for pattern, rows in found.items() if not rows]:
            raise ValueError(f"{measured.title}: no row of {name} is like {empty[0]}")
        chosen = [row for row in table.rows if any(row in rows for rows in found.values())]
        measured.tables[words] = _without_empty_columns(Table(table.columns, chosen))
    return words


def _without_empty_columns(table: Table) -> Table:
    kept = [i for i in range(len(table.columns)) if any(row[i] not in ("", "-") for row in table.rows)]
    return Table([table.columns[i] for i in kept], [[row[i] for i in kept] for row in table.rows])
