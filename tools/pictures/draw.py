#!/usr/bin/env python3
"""Draws docs/pictures/, and writes the tables of docs/measurements/ into the pages. `make pictures` runs it.

Every number in a picture is computed here, by raggrad or NumPy, or was measured and is in docs/measurements/.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))

from pictures import calls, charts, ragged, segments, sparse, sums, tables  # noqa: E402

_PICTURES = [
    segments.sparse_segment,
    segments.bags,
    sparse.sparse_fill_empty_rows,
    sparse.sparse_slice,
    ragged.ragged_variant,
    ragged.batching,
    calls.five_hops,
    sums.order_free_sums,
    charts.speed,
    charts.gradients_on_a_cpu,
    charts.torch_step,
    charts.torch_step_on_a_cpu,
    charts.torch_memory,
    charts.exchange,
    charts.growth,
]


def files() -> dict[str, str]:
    """Path in the tree: content."""
    pictures = {f"docs/pictures/{draw.__name__}.svg": draw().svg() for draw in _PICTURES}
    pages = {str(page.relative_to(ROOT)): page.read_text() for page in tables.pages(ROOT)}
    return pictures | {name: tables.filled(page, ROOT) for name, page in pages.items() if tables.BLOCK.search(page)}


def main() -> None:
    for name, content in files().items():
        path = ROOT / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        print(name)


if __name__ == "__main__":
    main()
