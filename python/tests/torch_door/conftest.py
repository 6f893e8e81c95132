"""Fixtures of the tests of raggrad.torch."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture
def threads() -> Iterator[None]:
    """Puts back the number of threads that a test sets."""
    import torch

    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)
