"""The libraries that are timed: one module each, loaded in that library's own environment.

A module has
  about()            what it is: {"package": "version", ...}
  use_threads(n)     so many threads for everything that follows
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
    """One way to do a task: `prepare` turns the inputs into the library's own arrays and gives what is timed.

    That takes no argument; for workloads with threads it takes the number of a piece, counted over all batches, and
    waits if that piece owns its batch. `arrays` turns what it returned into the operator's outputs.
    """

    name: str
    prepare: Callable[[Inputs], Callable[..., Any]]
    arrays: Callable[[Any], list[np.ndarray]]


def rows_in_use(inputs: Inputs, dense: np.ndarray) -> list[np.ndarray]:
    """The outputs of a sparse gradient, for libraries that made a dense one."""
    used = np.unique(inputs["indices"])
    return [dense[used], used]


def bringer(inputs: Inputs, unbatch_grad: Callable[..., Any], own: Callable[[Any], Any]) -> Callable[[int], Any]:
    """Gives what calls `unbatch_grad` with the piece of a number, counted over all batches. `own` makes an array the
    library's own. The last piece of a batch owns it and brings along the key, first row and end of each piece."""
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
