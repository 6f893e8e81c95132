"""What belongs to a table, without an attribute of it, which would be pickled and copied with the table."""

from __future__ import annotations

import weakref
from typing import Any, Generic, TypeVar

from torch import Tensor

Value = TypeVar("Value")


class ByTable(Generic[Value]):
    """Values of tables, each until its table is gone.

    Looks up 10 times as fast as torch's WeakIdKeyDictionary, whose keys have their hash and equality in Python.
    """

    def __init__(self) -> None:
        self._values: dict[int, Value] = {}
        self.by_id = self._values.get  # for callers to whom the call of a function in Python matters
        self._tables: dict[int, weakref.ref[Any]] = {}

    def __setitem__(self, table: Tensor, value: Value) -> None:
        key = id(table)

        def forget(_: Any) -> None:
            del self._values[key], self._tables[key]

        self._values[key] = value
        self._tables[key] = weakref.ref(table, forget)  # an earlier one of the same table goes, and forgets nothing

    def get(self, table: Tensor) -> Value | None:
        return self._values.get(id(table))
