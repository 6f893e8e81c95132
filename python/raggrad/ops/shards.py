"""Tables of lookups that are cut into several arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import _arrays
from .._namespaces import Namespace
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
            _arrays.check_one_device(op, f"{params.name}[0]", first, **{f"{params.name}[{i}]": array})
            if array.dtype != first.dtype or array.shape[1:] != first.shape[1:]:
                raise InvalidArgumentError(
                    f"{op}: shards differ [{params.name}[{i}]: expected {_rows(first)}, as {params.name}[0] has, "
                    f"got {_rows(array)}]"
                )
        per_shard, more = divmod(self.num_rows, len(sizes))
        expected = [per_shard + (i < more) for i in range(len(sizes))]
        if sizes != expected:
            raise InvalidArgumentError(
                f"{op}: shards have the wrong sizes [{params.name}: expected {expected} rows, got {sizes}]"
            )
        self.starts = np.cumsum([0, *sizes])

    def _places(self, rows: Any, xp: Namespace) -> tuple[Any, Any]:
        """The shard of each row, and its place there."""
        if self.strategy == "mod":
            return rows % len(self.arrays), rows // len(self.arrays)
        dtype = xp.dtype(rows)
        starts = xp.asarray(np.minimum(self.starts, np.iinfo(dtype).max).astype(dtype))
        shards = xp.searchsorted(starts, rows, "right") - 1
        return shards, rows - starts[shards]

    def gather(self, rows: Any, xp: Namespace) -> Any:
        shards, places = self._places(rows, xp)
        if xp is not _arrays.NUMPY:
            return self._gather_on_device(shards, places, xp)
        first = self.arrays[0]
        table = np.empty((len(rows), *first.shape[1:]), first.dtype)
        for i, array in enumerate(self.arrays):
            table[shards == i] = array[places[shards == i]]
        return table

    def _gather_on_device(self, shards: Any, places: Any, xp: Namespace) -> Any:
        """Reads a row of every shard for every place: nothing waits for the number of rows in a shard."""
        table = self.arrays[0][:0]
        for i, array in enumerate(self.arrays):
            if not len(array):
                break  # the first shards are the largest
            here = shards == i
            found = array[xp.where(here, places, 0)]
            table = found if i == 0 else xp.where(here.reshape(-1, *[1] * (found.ndim - 1)), found, table)
        return table

    def scatter(self, values: Any, rows: Any, xp: Namespace) -> list[IndexedSlices]:
        """The slices of each shard; `rows` ascend."""
        shards, places = self._places(rows, xp)
        return [
            IndexedSlices(
                _arrays.in_kind_of(values[shards == i], kind),
                _arrays.in_kind_of(places[shards == i], kind),
                tuple(array.shape),
            )
            for i, (array, kind) in enumerate(zip(self.arrays, self.kinds, strict=True))
        ]


def _rows(array: Any) -> str:
    return f"{_arrays.of(array).dtype(array)} rows of shape {tuple(array.shape[1:])}"


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
