"""JAX: the code that its users would write, compiled once. int64 operands stay int64."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from . import Inputs, Way, rows_in_use

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_platforms", "cpu")


def about() -> dict[str, str]:
    return {"jax": jax.__version__, "numpy": np.__version__}


def use_threads(count: int) -> None:
    """Does nothing: XLA uses as many threads as the process has processors, which the worker limits."""


def _compiled(function: Callable[..., Any], *operands: Any) -> Callable[[], Any]:
    compiled = jax.jit(function)
    arrays = [jnp.asarray(operand) for operand in operands]
    return lambda: jax.block_until_ready(compiled(*arrays))


def _scatter_add(inputs: Inputs) -> Callable[[], Any]:
    """A dense gradient with all rows of the table."""
    rows = int(inputs["dense_output_dim0"])

    def dense(grad: jax.Array, indices: jax.Array, segment_ids: jax.Array) -> jax.Array:
        counts = jnp.maximum(jnp.bincount(segment_ids, length=grad.shape[0]), 1)
        scaled = grad / counts[:, None].astype(grad.dtype)
        return jnp.zeros((rows, grad.shape[1]), grad.dtype).at[indices].add(scaled[segment_ids])

    call = _compiled(dense, inputs["grad"], inputs["indices"], inputs["segment_ids"])
    return lambda: (inputs, call())


def _gather_and_mask(inputs: Inputs) -> Callable[[], Any]:
    def both(positions: jax.Array, grad: jax.Array) -> tuple[jax.Array, jax.Array]:
        return grad[positions], grad.at[positions].set(0).sum()

    return _compiled(both, inputs["reverse_index_map"], inputs["grad_values"])


def _window_mask(inputs: Inputs) -> Callable[[], Any]:
    """A prefix sum finds the gradient of each entry inside."""

    def window(grad: jax.Array, indices: jax.Array, start: jax.Array, end: jax.Array) -> jax.Array:
        inside = ((indices >= start) & (indices < end)).all(1)
        return jnp.where(inside, grad[jnp.cumsum(inside) - 1], 0)

    start = inputs["input_start"]
    return _compiled(window, inputs["backprop_val_grad"], inputs["input_indices"], start, start + inputs["size"])


def _arrays(result: Any) -> list[np.ndarray]:
    return [np.asarray(part) for part in (result if isinstance(result, tuple) else (result,))]


def _dense_arrays(result: tuple[Inputs, jax.Array]) -> list[np.ndarray]:
    return rows_in_use(result[0], np.asarray(result[1]))


_way = partial(Way, arrays=_arrays)

# No ragged gradients: joining 16,384 arrays takes JAX minutes to compile, so nobody does it.
WAYS = {
    "SparseSegmentMeanGradV2": [Way("dense scatter-add", _scatter_add, _dense_arrays)],
    "SparseFillEmptyRowsGrad": [_way("gather + mask", _gather_and_mask)],
    "SparseSliceGrad": [_way("mask", _window_mask)],
}
