"""raggrad in JAX: segments, embedding bags and sparse gradients, deterministic, under jit, grad, vmap and shard_map.

>>> import jax.numpy as jnp, raggrad.jax as rj
>>> rj.segment_sum(jnp.array([1.0, 2.0, 4.0]), jnp.array([1, 0, 1]), num_segments=2).tolist()
[2.0, 5.0]
"""

# JAX is looked at before anything imports it.
from . import _load as _load

# isort: split
from ._calls import export_checks
from .bags import embedding_bag
from .optimizers import SGD, Adagrad, Adam, AdamState, apply_rows
from .rows import Rows, sparse_segment_grad
from .segments import segment_mean, segment_sqrtn, segment_sum
from .sparse import Entries, fill_empty_rows, sparse_slice

__all__ = [
    "SGD",
    "Adagrad",
    "Adam",
    "AdamState",
    "Entries",
    "Rows",
    "apply_rows",
    "embedding_bag",
    "export_checks",
    "fill_empty_rows",
    "segment_mean",
    "segment_sqrtn",
    "segment_sum",
    "sparse_segment_grad",
    "sparse_slice",
]
