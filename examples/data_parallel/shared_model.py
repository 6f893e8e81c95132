"""One training step of several workers that share a forward pass and a backward pass.

Each worker has rows of its own. They meet three times, each time in one call:

    Batch        joins all rows in one batch; the last worker to come owns it and runs the model on it, once
    Unbatch      gives every worker the outputs of its own rows; it computes its loss and the gradient of it
    UnbatchGrad  takes the gradient of every worker; the owner gets all of them, in the order of the batch's rows,
                 and runs the gradient of the model, once

In every step the worker that comes last is the owner. The others return from UnbatchGrad at once.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from raggrad.batching import Cancellation, Runtime

from network import Activations, Parameters, forward, gradients, loss_and_gradient

TIMEOUT_MICROS = 60_000_000  # a worker that died must not stop the others for ever


class StepResult(NamedTuple):
    loss: float  # of the worker's own rows
    gradients: Parameters | None  # of all rows; None if another worker owns the batch


class SharedModel:
    """The model as a worker sees it: it gives its own rows and gets its own outputs."""

    def __init__(self, parameters: Parameters, rows_per_batch: int, runtime: Runtime | None = None) -> None:
        self.parameters = parameters
        self.rows_per_batch = rows_per_batch
        self.runtime = runtime or Runtime()
        self.cancellation = Cancellation()

    def step(self, rows: np.ndarray, target: np.ndarray) -> StepResult:
        """Called by every worker, once per step, with a share of the batch."""
        batch = self.runtime.batch(
            in_tensors=[rows],
            num_batch_threads=1,
            max_batch_size=self.rows_per_batch,  # the batch is complete when all workers have come
            batch_timeout_micros=TIMEOUT_MICROS,
            cancellation=self.cancellation,
        )
        activations = self._forward(batch.batched_tensors[0])
        output = self.runtime.unbatch(
            batched_tensor=activations.output,
            batch_index=batch.batch_index,
            id=batch.id,
            timeout_micros=TIMEOUT_MICROS,
            cancellation=self.cancellation,
        )
        loss, d_output = loss_and_gradient(output, target)
        d_outputs = self.runtime.unbatch_grad(
            original_input=activations.output,
            batch_index=batch.batch_index,
            grad=d_output,
            id=batch.id,
            timeout_micros=TIMEOUT_MICROS,
            cancellation=self.cancellation,
            strict=True,
        )
        if len(d_outputs) == 0:
            return StepResult(loss, None)
        return StepResult(loss, gradients(self.parameters, activations, d_outputs))

    def _forward(self, rows: np.ndarray) -> Activations:
        # All but the owner have no rows here: that costs next to nothing and keeps types and shapes.
        return forward(self.parameters, rows)
