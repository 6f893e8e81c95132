"""The libraries that are measured: one module each, loaded in that library's own environment.

A module has
  about()            versions of its packages: {"package": "version", ...}
  use_threads(n)     sets the number of threads for all later calls
  WAYS               {task of a workload: the ways this library has for it}
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Inputs = dict[str, Any]


@dataclass(frozen=True)
class Way:
    """One way to do a task.

    `prepare` turns the inputs into the library's own arrays and returns the function to measure. That function takes no
    argument. For workloads with threads it takes the number of a piece, counted over all batches, and waits if that
    piece owns its batch. `arrays` turns its result into the operator's outputs.
    """

    name: str
    prepare: Callable[[Inputs], Callable[..., Any]]
    arrays: Callable[[Any], list[np.ndarray]]


def rows_in_use(inputs: Inputs, dense: np.ndarray) -> list[np.ndarray]:
    """The outputs of a sparse gradient, from the dense gradient that some libraries make."""
    used = np.unique(inputs["indices"])
    return [dense[used], used]


def bringer(inputs: Inputs, unbatch_grad: Callable[..., Any], own: Callable[[Any], Any]) -> Callable[[int], Any]:
    """A function that calls `unbatch_grad` with one piece, by its number over all batches.

    `own` converts an array to the library's own. The last piece of a batch is its owner and brings the index: id, first
    row and end of each piece.
    """
    pieces, batches, rows = int(inputs["pieces"]), int(inputs["batches"]), len(inputs["grad"])
    first = np.arange(pieces) * rows
    indices = [
        own(np.stack([np.arange(pieces) + batch * pieces, first, first + rows], axis=1)) for batch in range(batches)
    ]
    ids = [own(np.int64(number)) for number in range(pieces * batches)]
    grad, empty, no_index = own(inputs["grad"]), own(inputs["grad"][:0]), own(np.empty((0, 3), np.int64))

    def bring(number: int) -> Any:
        batch, piece = divmod(number, pieces)
        owns = piece == pieces - 1
        return unbatch_grad(
            original_input=grad if owns else empty,
            batch_index=indices[batch] if owns else no_index,
            grad=grad,
            id=ids[number],
            shared_name="bench",
        )

    return bring
