"""Tables of lookups that are cut into several arrays."""

from __future__ import annotations

import numpy as np

from .. import _core
from ..errors import InvalidArgumentError
from ..indexed_slices import IndexedSlices
from .lookup_inputs import Given, table_of


class Shards:
    """A table in several arrays, cut as TensorFlow does it.

    "div" puts the rows of one shard after those of the other. "mod" puts row i into shard i % n, at i // n. If the
    number of rows is not a multiple of n, the first shards have one row more.
    """

    def __init__(self, op: str, params: Given, strategy: str) -> None:
        self.arrays = [table_of(op, Given(f"{params.name}[{i}]", shard)) for i, shard in enumerate(params.value)]
        self.kinds = params.value
        self.strategy = strategy
        sizes = [len(array) for array in self.arrays]
        self.num_rows = sum(sizes)
        first = self.arrays[0]
        for i, array in enumerate(self.arrays):
            if array.dtype != first.dtype or array.shape[1:] != first.shape[1:]:
                raise InvalidArgumentError(
                    f"{op}: shards differ [{params.name}[{i}]: expected {first.dtype} rows of shape {first.shape[1:]}, "
                    f"as {params.name}[0] has, got {array.dtype} rows of shape {array.shape[1:]}]"
                )
        per_shard, more = divmod(self.num_rows, len(sizes))
        expected = [per_shard + (i < more) for i in range(len(sizes))]
        if sizes != expected:
            raise InvalidArgumentError(
                f"{op}: shards have the wrong sizes [{params.name}: expected {expected} rows, got {sizes}]"
            )
        self.starts = np.cumsum([0, *sizes])

    def _places(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The shard of each row, and its place there."""
        if self.strategy == "mod":
            return rows % len(self.arrays), rows // len(self.arrays)
        shards = np.searchsorted(self.starts, rows, side="right") - 1
        return shards, rows - self.starts[shards]

    def gather(self, rows: np.ndarray) -> np.ndarray:
        first = self.arrays[0]
        table = np.empty((len(rows), *first.shape[1:]), first.dtype)
        shards, places = self._places(rows)
        for i, array in enumerate(self.arrays):
            table[shards == i] = array[places[shards == i]]
        return table

    def scatter(self, values: np.ndarray, rows: np.ndarray) -> list[IndexedSlices]:
        """The slices of each shard; `rows` ascend."""
        shards, places = self._places(rows)
        return [
            IndexedSlices(
                _core.in_kind_of(values[shards == i], kind), _core.in_kind_of(places[shards == i], kind), array.shape
            )
            for i, (array, kind) in enumerate(zip(self.arrays, self.kinds, strict=True))
        ]


def shards_of(op: str, params: Given, strategy: str) -> Shards | None:
    """The shards of a table that is a list of arrays. None for other tables, lists of numbers among them."""
    if strategy not in ("div", "mod"):
        raise InvalidArgumentError(
            f"{op}: no such strategy [partition_strategy: expected 'div' or 'mod', got {strategy!r}]"
        )
    value = params.value
    if not isinstance(value, (list, tuple)) or not any(getattr(shard, "shape", ()) for shard in value):
        return None
    return Shards(op, params, strategy)
