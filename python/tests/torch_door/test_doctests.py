"""Doctests of raggrad.torch, whose functions all have a docstring."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

from .door import rt

MODULES = [m.name for m in pkgutil.iter_modules(rt.__path__) if not m.name.startswith("lib")]


@pytest.mark.parametrize("module", ["", *MODULES])
def test_doctests(module: str) -> None:
    assert doctest.testmod(importlib.import_module(f"raggrad.torch.{module}".rstrip("."))).failed == 0


def test_everything_public_has_a_docstring() -> None:
    assert all(getattr(rt, name).__doc__ for name in rt.__all__)
