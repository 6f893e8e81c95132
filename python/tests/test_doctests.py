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
for package in (raw_ops, raggrad.ops, raggrad.ragged, raggrad.batching, raggrad.conformance):
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


def _public() -> list[tuple[str, str]]:
    modules = (raggrad, raw_ops, raggrad.ops, raggrad.optimizers, raggrad.batching)
    return [(module.__name__, name) for module in modules for name in module.__all__]


@pytest.mark.parametrize("module, name", _public())
def test_everything_public_has_a_docstring_of_its_own(module: str, name: str) -> None:
    thing = getattr(importlib.import_module(module), name)
    if inspect.isclass(thing) or inspect.isfunction(thing):
        assert thing.__doc__
        assert not thing.__doc__.startswith(f"{name}(")  # as those that dataclasses and named tuples get by themselves
    if inspect.isfunction(thing) and not name.startswith("get_"):  # the example is that of the setter
        assert ">>>" in thing.__doc__
