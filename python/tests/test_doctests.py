"""Doctests of all modules, and the signatures of all operators."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil

import pytest
import raggrad
import raggrad.conformance
from conftest import (
    BATCHING,
    OPERATORS,
)
from raggrad import raw_ops

# The libraries are no Python modules: the engine, and the kernels for GPUs that some wheels have. Doors need their
# frameworks; their own tests run their doctests, where they have any.
NOT_IMPORTED = ("__main__", "dist", "jax", "libraggrad", "libraggrad_cuda", "tf", "torch")
names = [module.name for module in pkgutil.iter_modules(raggrad.__path__)]
MODULES = ["raggrad", *(f"raggrad.{name}" for name in names if name not in NOT_IMPORTED)]
for package in (raw_ops, raggrad.ops, raggrad.ragged, raggrad.conformance):
    MODULES += [f"{package.__name__}.{m.name}" for m in pkgutil.iter_modules(package.__path__)]


@pytest.mark.parametrize("module", MODULES)
def test_doctests(module: str) -> None:
    result = doctest.testmod(importlib.import_module(module))
    assert result.failed == 0


def test_all_operators_are_there_with_a_doctest_each() -> None:
    functions = [name for name in raw_ops.__all__ if inspect.isfunction(getattr(raw_ops, name))]
    assert sorted(functions) == sorted([*OPERATORS, *BATCHING])
    for name in functions:
        function = getattr(raw_ops, name)
        assert f"raw_ops.{name}(" in function.__doc__
        parameters = inspect.signature(function).parameters.values()
        assert all(p.kind is p.KEYWORD_ONLY for p in parameters)
        assert inspect.signature(function).parameters["name"].default is None
