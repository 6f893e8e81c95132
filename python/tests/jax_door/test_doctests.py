"""Doctests of raggrad.jax, whose functions all have a docstring."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

from .door import rj

MODULES = [m.name for m in pkgutil.iter_modules(rj.__path__) if not m.name.startswith("lib")]


@pytest.mark.parametrize("module", ["", *MODULES])
def test_doctests(module: str) -> None:
    assert doctest.testmod(importlib.import_module(f"raggrad.jax.{module}".rstrip("."))).failed == 0


def test_everything_public_has_a_docstring() -> None:
    assert all(getattr(rj, name).__doc__ for name in rj.__all__)
