"""FBGEMM's table-batched embeddings on the CPU. Its backward updates the table by SGD and keeps no gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import fbgemm_gpu
import numpy as np
import torch
from fbgemm_gpu.split_embedding_configs import EmbOptimType
from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation, PoolingMode
from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
    ComputeDevice,
    SplitTableBatchedEmbeddingBagsCodegen,
)

from ..workload import FUSED_SGD
from . import Inputs, Way, rows_in_use
from .torch import offsets, tensor, use_threads

__all__ = ["WAYS", "about", "use_threads"]


def about() -> dict[str, str]:
    return {"fbgemm": fbgemm_gpu.__version__, "torch": torch.__version__, "numpy": np.__version__}


def _backward(inputs: Inputs) -> Callable[[], Any]:
    """The table starts as zeros and the learning rate is 1, so that after one call it is the negated gradient."""
    grad = tensor(inputs["grad"])
    if grad.dtype != torch.float32:
        raise NotImplementedError("float32 only")
    tables = SplitTableBatchedEmbeddingBagsCodegen(
        [(int(inputs["dense_output_dim0"]), grad.shape[1], EmbeddingLocation.HOST, ComputeDevice.CPU)],
        optimizer=EmbOptimType.EXACT_SGD,
        learning_rate=1.0,
        pooling_mode=PoolingMode.MEAN,
    )
    table = tables.split_embedding_weights()[0]
    table.zero_()
    pooled = tables(tensor(inputs["indices"]).long(), offsets(inputs).long())

    def call() -> tuple[Inputs, torch.Tensor]:
        pooled.backward(grad, retain_graph=True)
        return inputs, table

    return call


def _gradient(result: tuple[Inputs, torch.Tensor]) -> list[np.ndarray]:
    return rows_in_use(result[0], -_table(result)[0])


def _table(result: tuple[Inputs, torch.Tensor]) -> list[np.ndarray]:
    return [result[1].detach().numpy()]


WAYS = {
    "SparseSegmentMeanGradV2": [Way("TBE backward with fused SGD", _backward, _gradient)],
    FUSED_SGD: [Way("TBE backward with fused SGD", _backward, _table)],
}
