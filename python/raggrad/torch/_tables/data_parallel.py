"""Tables that torch's DistributedDataParallel cannot sum."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel


def is_summed_by_data_parallel(table: Tensor) -> bool:
    """Whether DistributedDataParallel is calling its module, and waits for a gradient of this table.

    Outside of DistributedDataParallel it costs one attribute.
    """
    caller = DistributedDataParallel._active_ddp_module
    if caller is None or torch.compiler.is_compiling() or not (table.requires_grad and torch.is_grad_enabled()):
        return False
    return any(table is parameter for parameter in caller._module_parameters)


def refuse_data_parallel(name: str, table: Tensor, what: str) -> None:
    """An error if DistributedDataParallel waits for a gradient of this table.

    Torch itself would fail later, in backward or in the next step, and name neither table nor remedy.
    """
    if is_summed_by_data_parallel(table):
        raise RuntimeError(
            f"{name}: DistributedDataParallel cannot sum {what}: call raggrad.dist.register(model) with the model that "
            "it wraps, before it does"
        )
