"""Fixtures of the tests of raggrad.jax."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture
def x64() -> Iterator[None]:
    """64-bit types, which JAX does not have by default."""
    import jax

    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", False)
