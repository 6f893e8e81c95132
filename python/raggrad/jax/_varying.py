"""Which axes of a shard_map arrays vary over. A handler needs all of its arrays to vary over the same ones.

JAX has changed the names of all of this: 0.7 says pvary and vma, newer versions pcast and manual_axis_type.
"""

from __future__ import annotations

from typing import Any

import jax
from jax.sharding import NamedSharding, PartitionSpec


def _axes(array: jax.Array) -> frozenset[Any]:
    kind = jax.typeof(array)
    return kind.manual_axis_type.varying if hasattr(kind, "manual_axis_type") else kind.vma


def _vary_over(array: jax.Array, axes: frozenset[Any]) -> jax.Array:
    missing = tuple(axes - _axes(array))
    if not missing:
        return array
    return jax.lax.pcast(array, missing, to="varying") if hasattr(jax.lax, "pcast") else jax.lax.pvary(array, missing)


def alike(*arrays: Any) -> tuple[Any, ...]:
    """The arrays, each varying over all axes that any of them varies over. None stays None."""
    axes = frozenset().union(*(_axes(array) for array in arrays if array is not None))
    return tuple(array if array is None else _vary_over(array, axes) for array in arrays)


def shaped_like(result: jax.ShapeDtypeStruct, array: jax.Array) -> jax.ShapeDtypeStruct:
    """The result, varying over the axes of the array."""
    if not _axes(array):
        return result
    kind = jax.typeof(array)
    if not hasattr(kind, "manual_axis_type"):
        return jax.ShapeDtypeStruct(result.shape, result.dtype, vma=kind.vma)
    sharding = NamedSharding(kind.sharding.mesh, PartitionSpec(*[None] * len(result.shape)))
    return jax.ShapeDtypeStruct(
        result.shape, result.dtype, sharding=sharding, manual_axis_type=kind.manual_axis_type
    )
