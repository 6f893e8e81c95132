"""raggrad over processes: sparse gradients and embedding tables on the ranks of torch.distributed.

Torch moves the bytes (gloo between CPUs, NCCL between GPUs). raggrad sends few of them, and its sums are deterministic.

    torch.distributed.init_process_group("gloo")
    rd.register(model)               # gradients of raggrad.torch's modules are summed in backward
    model = DistributedDataParallel(model)
"""

from .cost import Cost, Costs, Network, explain
from .measurement import measure
from .reduce import all_reduce
from .registration import register
from .sharded import ShardedEmbeddingBag
from .traffic import Traffic, traffic

__all__ = [
    "Cost",
    "Costs",
    "Network",
    "ShardedEmbeddingBag",
    "Traffic",
    "all_reduce",
    "explain",
    "measure",
    "register",
    "traffic",
]
