#!/usr/bin/env python3
"""Draws docs/pictures/ and writes docs/measurements/. `make pictures` runs it.

Every number in a picture is computed here, by raggrad or NumPy, or was measured and is on a page of docs/.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))

from pictures import calls, charts, measurements, ragged, segments, sparse, sums  # noqa: E402


def files() -> dict[str, str]:
    """Path in the tree: content."""
    measured = measurements.from_page((ROOT / "docs" / "performance.md").read_text())
    pictures = [
        segments.sparse_segment,
        segments.bags,
        sparse.sparse_fill_empty_rows,
        sparse.sparse_slice,
        ragged.ragged_variant,
        ragged.batching,
        calls.five_hops,
        sums.order_free_sums,
    ]
    drawn = {f"docs/pictures/{draw.__name__}.svg": draw().svg() for draw in pictures}
    drawn["docs/pictures/gradients_on_a_cpu.svg"] = charts.gradients_on_a_cpu(measured).svg()
    return {**drawn, "docs/measurements/gradients_on_a_cpu.json": json.dumps(measured, indent=2) + "\n"}


def main() -> None:
    for name, content in files().items():
        path = ROOT / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        print(name)


if __name__ == "__main__":
    main()
