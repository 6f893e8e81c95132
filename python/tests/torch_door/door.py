"""torch, raggrad.torch, and data for both. Tests that import it are skipped where there is no raggrad.torch."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
rt = pytest.importorskip("raggrad.torch", reason="raggrad was built without raggrad.torch", exc_type=ImportError)

ROWS, WIDTH = 50, 6
FLOATS = [torch.float64, torch.float32, torch.bfloat16, torch.float16]


class Bags(NamedTuple):
    ids: Any
    offsets: Any
    count: int

    @property
    def segment_ids(self) -> Any:
        return torch.searchsorted(self.offsets, torch.arange(len(self.ids), dtype=self.offsets.dtype), right=True) - 1


def random_bags(dtype: Any = torch.int64, bags: int = 12, rows: int = ROWS, seed: int = 0) -> Bags:
    """Bags of 0 to 5 ids. The first and the last are empty."""
    generator = torch.Generator().manual_seed(seed)
    sizes = torch.randint(0, 6, (bags,), generator=generator)
    sizes[0] = sizes[-1] = 0
    offsets = torch.cumsum(sizes, 0) - sizes
    ids = torch.randint(0, rows, (int(sizes.sum()),), generator=generator)
    return Bags(ids.to(dtype), offsets.to(dtype), bags)


def random_table(dtype: Any = torch.float64, rows: int = ROWS, width: int = WIDTH, seed: int = 1) -> Any:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, width, generator=generator, dtype=torch.float64).to(dtype)


def tolerance(dtype: Any) -> dict[str, float]:
    """Sums of a few numbers around 1, in another order than torch's, which also rounds halves more often."""
    eps = torch.finfo(dtype).eps
    return {"rtol": 8 * eps, "atol": 8 * eps}
