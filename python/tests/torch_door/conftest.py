"""Fixtures of the tests of raggrad.torch."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def forget_compiled_code() -> Iterator[None]:
    """torch.compile compiles one function for at most eight kinds of arguments, over all tests of a process."""
    yield
    if "torch._dynamo" in sys.modules:
        sys.modules["torch._dynamo"].reset()


@pytest.fixture
def threads() -> Iterator[None]:
    """Puts back the number of threads that a test sets."""
    import torch

    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)
