"""Bags of several tables as bags of one: on a GPU all are placed together, with the result of one by one."""

from __future__ import annotations

from typing import Any

import pytest

from .door import random_bags, rt, torch

stacked = rt._pooling.stacked


@pytest.mark.parametrize("padding_idx", [None, 2])
@pytest.mark.parametrize("kinds", [(torch.int32,) * 3, (torch.int64, torch.int32, torch.int64)])
@pytest.mark.parametrize("fault", ["none", "low", "high", "offset"])
def test_together_as_one_by_one(padding_idx: int | None, kinds: Any, fault: str) -> None:
    tables, bags, first = [], [], 0
    for number, (kind, count) in enumerate(zip(kinds, (7, 0, 12), strict=True)):
        rows = 20 + number
        found = random_bags(kind, bags=max(count, 2), rows=rows, seed=number)
        ids, offsets = found.ids, found.offsets[:count]
        if number == 2 and fault == "offset":
            offsets = offsets + 1
        elif number == 2 and fault != "none":
            ids[3] = -1 if fault == "low" else rows
        tables.append(stacked.Table(first, rows, padding_idx))
        bags.append(stacked.Bags(ids, offsets, False, None))
        first += rows
    expected = stacked.stack(tables, bags, marks=True)
    dtype = torch.int32 if set(kinds) == {torch.int32} else torch.int64
    got = stacked._placed_together(tables, bags, expected.padding_idx, dtype)
    assert torch.equal(got.ids, expected.ids)
    assert got.ids.dtype == dtype
    assert torch.equal(got.offsets.clamp(min=-1), expected.offsets.clamp(min=-1))
    assert (int(got.ids.min()) < 0 or int(got.offsets.min()) < 0) == (fault != "none")
