"""Batches of bags that can be divided among any number of ranks."""

from __future__ import annotations

from typing import Any, NamedTuple

from .worlds import torch


class Batch(NamedTuple):
    ids: Any
    sizes: Any  # of bags
    weights: Any  # of ids
    grad: Any  # of pooled bags

    @property
    def offsets(self) -> Any:
        return torch.cumsum(self.sizes, 0) - self.sizes

    def part(self, begin: int, end: int) -> Batch:
        """Bags [begin, end)."""
        first, last = int(self.sizes[:begin].sum()), int(self.sizes[:end].sum())
        return Batch(self.ids[first:last], self.sizes[begin:end], self.weights[first:last], self.grad[begin:end])


def random_batch(generator: Any, rows: int, width: int, bags: int, kind: str, dtype: Any = torch.float32) -> Batch:
    """Bags of 0 to 6 ids. `kind` is how ids are drawn: "uniform", "hot", "equal" or "first"."""
    sizes = torch.randint(0, 7, (bags,), generator=generator)
    n = int(sizes.sum())
    ids = {
        "uniform": lambda: torch.randint(0, rows, (n,), generator=generator),
        "hot": lambda: (rows * torch.rand(n, generator=generator) ** 8).long(),
        "equal": lambda: torch.full((n,), rows // 2),
        "first": lambda: torch.randint(0, max(rows // 10, 1), (n,), generator=generator),
    }[kind]()
    # Magnitudes that differ, so that sums depend on their order.
    scale = torch.exp2(torch.randint(-12, 13, (bags, 1), generator=generator).double())
    grad = (torch.randn(bags, width, generator=generator, dtype=torch.float64) * scale).to(dtype)
    weights = torch.randn(n, generator=generator, dtype=torch.float64).to(dtype)
    return Batch(ids, sizes, weights, grad)


def random_table(generator: Any, rows: int, width: int, dtype: Any = torch.float32) -> Any:
    scale = torch.exp2(torch.randint(-12, 13, (rows, 1), generator=generator).double())
    return (torch.randn(rows, width, generator=generator, dtype=torch.float64) * scale).to(dtype)


def random_cuts(generator: Any, bags: int, ranks: int) -> list[int]:
    """Where a batch is cut: rank r has the bags cuts[r] to cuts[r + 1], often none."""
    inner = torch.randint(0, bags + 1, (ranks - 1,), generator=generator).sort().values.tolist()
    return [0, *inner, bags]
