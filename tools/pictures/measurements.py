"""Figures of docs/performance.md as JSON, with machine, date and command, for charts and for other programs."""

from __future__ import annotations

import re
from typing import Any

_UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
_RATIO = re.compile(r"  ([\d.]+)x")
_TIME = re.compile(r"^([\d.]+) (ns|us|ms|s)\b")


def from_page(page: str) -> dict[str, Any]:
    """The block between the bench marks: by workload and library, seconds, and how many times as long as raggrad's."""
    block = page.split("<!-- bench: begin -->")[1].split("<!-- bench: end -->")[0]
    facts = dict(re.findall(r"^- ([a-z ]+): (.*)$", block, re.MULTILINE))
    when, settings = facts["run"].split(", ", 1)
    table = [[cell.strip() for cell in line.strip("|").split("|")] for line in _first_table(block)]
    libraries = [(column, name) for column, name in enumerate(table[0]) if name in facts]
    workloads = {
        row[0]: {name: _figures(row[column]) for column, name in libraries if _TIME.match(row[column])}
        for row in table[2:]
    }
    return {
        "source": "docs/performance.md",
        "command": "make bench BENCH='--markdown docs/performance.md'",
        "date": when[:10],
        "machine": facts["machine"],
        "settings": settings,
        "versions": {name: facts[name] for _, name in libraries},
        "workloads": workloads,
    }


def _first_table(block: str) -> list[str]:
    lines = block.splitlines()
    begin = next(i for i, line in enumerate(lines) if line.startswith("| workload"))
    end = next(i for i in range(begin, len(lines)) if not lines[i].startswith("|"))
    return lines[begin:end]


def _figures(cell: str) -> dict[str, float]:
    value, unit = _TIME.findall(cell)[0]
    ratio = _RATIO.search(cell)
    return {"seconds": float(f"{float(value) * _UNITS[unit]:.6g}"), **({"times": float(ratio[1])} if ratio else {})}
