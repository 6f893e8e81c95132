"""Arrow arrays through the Arrow PyCapsule interface. No package is imported, and memory is shared."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from .. import _core
from ..errors import InvalidArgumentError
from .arrays import numpy_parts, of_one_type, strings, uniform_splits

Parts = tuple[list[np.ndarray], np.ndarray]

# Format strings of the interface.
_NUMBERS = {
    "c": np.int8, "C": np.uint8, "s": np.int16, "S": np.uint16, "i": np.int32, "I": np.uint32, "l": np.int64,
    "L": np.uint64, "e": np.float16, "f": np.float32, "g": np.float64,
}  # fmt: skip
_LISTS = {"+l": np.int32, "+L": np.int64}
_STRINGS = {"u": np.int32, "z": np.int32, "U": np.int64, "Z": np.int64}
_STRING_VIEWS = ("vu", "vz")
_FORMAT_OF = {np.dtype(dtype): format for format, dtype in _NUMBERS.items()}
_TAKEN = "(large) lists of numbers, booleans or strings, fixed-size lists included"


class _Memory:
    """Memory of Arrow, for NumPy to view. Keeps the capsule that owns it alive."""

    def __init__(self, address: int, size: int, owner: Any) -> None:
        self.__array_interface__ = {"version": 3, "shape": (size,), "typestr": "|u1", "data": (address, True)}
        self.owner = owner


@dataclass
class _Node:
    """One array in the tree of a nested type, and its rows [begin, end), counted from the start of its buffers."""

    schema: tuple[str, bool, list[Any]]
    array: tuple[int, int, int, list[int], list[Any]]
    owner: Any
    begin: int
    end: int

    @property
    def format(self) -> str:
        return self.schema[0]

    def buffer(self, index: int, dtype: Any, begin: int, end: int) -> np.ndarray:
        """Items [begin, end) of a buffer."""
        dtype = np.dtype(dtype)
        address = self.array[3][index]
        if begin == end or not address:
            return np.empty(0, dtype)
        memory = _Memory(address + begin * dtype.itemsize, (end - begin) * dtype.itemsize, self.owner)
        return np.asarray(memory).view(dtype)

    def child(self, begin: int, end: int) -> _Node:
        array = self.array[4][0]
        return _Node(self.schema[2][0], array, self.owner, array[1] + begin, array[1] + end)

    def refuse_nulls(self, what: str) -> None:
        if self.array[2] == 0 or not self.array[3] or not self.array[3][0]:
            return
        first = self.begin // 8
        bits = np.unpackbits(self.buffer(0, np.uint8, first, -(-self.end // 8)), bitorder="little")
        null = np.flatnonzero(bits[self.begin - 8 * first : self.end - 8 * first] == 0)
        if len(null):
            raise InvalidArgumentError(
                f"Ragged.from_arrow: {what} {null[0]} is null, which has no meaning in a ragged tensor; "
                "fill or drop nulls first"
            )


def read(source: Any) -> Parts:
    """Splits and values of anything that exports Arrow data."""
    if hasattr(source, "__arrow_c_array__"):
        schema, array = source.__arrow_c_array__()
        return _read_chunk(schema, array)
    if not hasattr(source, "__arrow_c_stream__"):
        raise InvalidArgumentError(
            "Ragged.from_arrow: expected an Arrow array (pyarrow, polars: anything with __arrow_c_array__ or "
            f"__arrow_c_stream__), got {type(source).__name__}"
        )
    schema, chunks = _core.arrow_read_stream(source.__arrow_c_stream__())
    return _join([_read_chunk(schema, chunk) for chunk in chunks or [None]])


def _read_chunk(schema: Any, array: Any | None) -> Parts:
    """Splits and values of one chunk. None stands for an array without rows."""
    described_schema = _core.arrow_describe_schema(schema)
    described_array = _no_rows(described_schema) if array is None else _core.arrow_describe_array(array)
    length, offset = described_array[:2]
    node = _Node(described_schema, described_array, (schema, array), offset, offset + length)
    splits, values = _read(node, "list")
    return of_one_type(splits), values


def _no_rows(schema: tuple[str, bool, list[Any]]) -> tuple[int, int, int, list[int], list[Any]]:
    return 0, 0, 0, [0, 0, 0], [_no_rows(child) for child in schema[2]]


def _join(chunks: list[Parts]) -> Parts:
    if len(chunks) == 1:
        return chunks[0]
    splits = []
    for levels in zip(*(chunk[0] for chunk in chunks), strict=True):
        ends = np.cumsum([0] + [int(level[-1]) for level in levels[:-1]])
        moved = [level[1:] + end for level, end in zip(levels, ends, strict=True)]
        splits.append(np.concatenate([levels[0][:1], *moved]).astype(np.int64))
    return splits, np.concatenate([chunk[1] for chunk in chunks])


def _read(node: _Node, what: str) -> Parts:
    """Splits, outermost first, and values. `what` names the items in errors."""
    if node.schema[1]:
        raise InvalidArgumentError(f"Ragged.from_arrow: expected {_TAKEN}, got dictionary-encoded values")
    is_list = node.format in _LISTS or node.format.startswith("+w:")
    node.refuse_nulls(what if is_list else "value")
    if node.format in _LISTS:
        return _read_lists(node, what)
    if is_list:
        return _read_fixed_lists(node, what)
    return [], _read_values(node)


def _read_lists(node: _Node, what: str) -> Parts:
    offsets = node.buffer(1, _LISTS[node.format], node.begin, node.end + 1)
    if node.begin == node.end:
        offsets = np.zeros(1, _LISTS[node.format])  # an empty array may have no offsets
    first, last = int(offsets[0]), int(offsets[-1])
    inner, values = _read(node.child(first, last), f"inner {what}")
    return [offsets if first == 0 else offsets - offsets[0], *inner], values


def _read_fixed_lists(node: _Node, what: str) -> Parts:
    size = int(node.format[3:])
    rows = node.end - node.begin
    inner, values = _read(node.child(node.begin * size, node.end * size), f"inner {what}")
    if inner:
        return [uniform_splits(rows, size, inner[0].dtype), *inner], values
    return [], values.reshape(rows, size, *values.shape[1:])


def _read_values(node: _Node) -> np.ndarray:
    if node.format in _NUMBERS:
        return node.buffer(1, _NUMBERS[node.format], node.begin, node.end)
    if node.format == "b":
        first = node.begin // 8
        bits = np.unpackbits(node.buffer(1, np.uint8, first, -(-node.end // 8)), bitorder="little")
        return bits[node.begin - 8 * first : node.end - 8 * first].astype(bool)
    if node.format in _STRINGS:
        return _read_strings(node)
    if node.format in _STRING_VIEWS:
        return _read_string_views(node)
    raise InvalidArgumentError(f"Ragged.from_arrow: expected {_TAKEN}, got Arrow's format {node.format!r}")


def _read_strings(node: _Node) -> np.ndarray:
    if node.begin == node.end:
        return strings([])
    offsets = node.buffer(1, _STRINGS[node.format], node.begin, node.end + 1).tolist()
    text = node.buffer(2, np.uint8, offsets[0], offsets[-1]).tobytes()
    ends = [offset - offsets[0] for offset in offsets]
    return strings([text[begin:end] for begin, end in pairwise(ends)])


def _read_string_views(node: _Node) -> np.ndarray:
    """A view has sixteen bytes: a length, then up to twelve characters, or a prefix, a buffer number and an offset."""
    views = node.buffer(1, np.int32, 4 * node.begin, 4 * node.end).reshape(-1, 4)
    sizes = node.buffer(len(node.array[3]) - 1, np.int64, 0, len(node.array[3]) - 3)
    texts = [node.buffer(2 + i, np.uint8, 0, int(size)).tobytes() for i, size in enumerate(sizes)]
    return strings([
        view[1:].tobytes()[: view[0]] if view[0] <= 12 else texts[view[2]][view[3] : view[3] + view[0]]
        for view in views
    ])


def export(nested_splits: list[Any], values: Any) -> tuple[Any, Any]:
    """The capsules of a (large) list array."""
    splits, data = numpy_parts(nested_splits, values, "Ragged.__arrow_c_array__")
    if data.ndim == 0:
        raise InvalidArgumentError("Ragged.__arrow_c_array__: a scalar is not an Arrow array")
    splits = of_one_type(splits)
    rows = [len(s) - 1 for s in splits]
    name = getattr(values, "dtype", data.dtype)
    owner: list[Any] = [splits, data]
    node = _leaf(np.ascontiguousarray(data).reshape(-1), str(name), owner)
    for axis in range(data.ndim - 1, 0, -1):
        node = (f"+w:{data.shape[axis]}", int(np.prod(data.shape[:axis])), [0], [node])
    for level in range(len(splits) - 1, -1, -1):
        offsets = np.ascontiguousarray(splits[level])
        owner.append(offsets)
        node = ("+L" if offsets.dtype == np.int64 else "+l", rows[level], [0, offsets.ctypes.data], [node])
    return _core.arrow_export(node, owner)


def _leaf(data: np.ndarray, name: str, owner: list[Any]) -> tuple[Any, ...]:
    """The node of the values. The arrays that it points to are added to `owner`."""
    if data.dtype == object:
        texts = data.tolist()
        offsets = np.cumsum([0, *map(len, texts)], dtype=np.int64)
        text = np.frombuffer(b"".join(texts), np.uint8)
        owner += [offsets, text]
        return ("Z", len(data), [0, offsets.ctypes.data, text.ctypes.data], [])
    if data.dtype == bool:
        bits = np.packbits(data, bitorder="little")
        owner.append(bits)
        return ("b", len(data), [0, bits.ctypes.data], [])
    if data.dtype not in _FORMAT_OF or name.startswith(("q", "'q")):
        raise InvalidArgumentError(f"Ragged.__arrow_c_array__: Arrow has no type for values of dtype {name}")
    owner.append(data)
    return (_FORMAT_OF[data.dtype], len(data), [0, data.ctypes.data], [])
