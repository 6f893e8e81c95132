"""raggrad in torch: embedding bags and segments with deterministic gradients, as functions, modules and operators.

>>> import torch, raggrad.torch as rt
>>> bag = rt.EmbeddingBag(10, 4, sparse=True)
>>> bag(torch.tensor([[1, 2], [2, 3]])).sum().backward()
>>> bag.weight.grad.indices()
tensor([[1, 2, 3]])

All operators are under torch.ops.raggrad.
"""

# Torch is looked at before anything imports it.
from . import _load as _load

# isort: split
import inspect as _inspect

from torch import fx as _fx

from . import optim
from ._pooling.waiting import check, without_waiting
from .bags import embedding, embedding_bag
from .batching import unbatch_grad
from .collection import EmbeddingBagCollection
from .installation import install, status, uninstall
from .modules import Embedding, EmbeddingBag
from .segments import (
    segment_mean,
    segment_sqrtn,
    segment_sum,
    sparse_segment_mean,
    sparse_segment_sqrtn,
    sparse_segment_sum,
)
from .sparse import coalesce, fill_empty_rows, index_add, sparse_slice

__all__ = [
    "Embedding",
    "EmbeddingBag",
    "EmbeddingBagCollection",
    "check",
    "coalesce",
    "embedding",
    "embedding_bag",
    "fill_empty_rows",
    "index_add",
    "install",
    "optim",
    "segment_mean",
    "segment_sqrtn",
    "segment_sum",
    "sparse_segment_mean",
    "sparse_segment_sqrtn",
    "sparse_segment_sum",
    "sparse_slice",
    "status",
    "unbatch_grad",
    "uninstall",
    "without_waiting",
]

# torch.fx.symbolic_trace records calls of these functions, as it does those of torch's.
for _name in __all__:
    if _inspect.isfunction(globals()[_name]):
        _fx.wrap(_name)
