"""Doctests of raggrad.torch, whose functions all have a docstring."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

from .door import rt

FOUND = pkgutil.walk_packages(rt.__path__, "raggrad.torch.")
MODULES = [m.name for m in FOUND if not m.name.startswith("raggrad.torch.lib")]


@pytest.mark.parametrize("module", ["raggrad.torch", *MODULES])
def test_doctests(module: str) -> None:
    assert doctest.testmod(importlib.import_module(module)).failed == 0


def test_everything_public_has_a_docstring() -> None:
    assert all(getattr(rt, name).__doc__ for name in rt.__all__)
