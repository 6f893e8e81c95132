"""Ragged data of Python, awkward, torch, TensorFlow and SciPy as (splits, values), and back."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from .._core import Tensor, tensor_of
from .._literals import array
from ..errors import InvalidArgumentError
from .arrays import needed, numpy_of, numpy_parts, of_one_type, parts_where_they_lie, strings, uniform_splits

Parts = tuple[list[Any], Any]


def from_lists(rows: Any, dtype: Any, ragged_rank: int | None, splits_dtype: str) -> Parts:
    op = "Ragged.from_lists"
    if splits_dtype not in ("int32", "int64"):
        raise InvalidArgumentError(f"{op}: splits_dtype: expected 'int32' or 'int64', got {splits_dtype!r}")
    if ragged_rank is not None and (not isinstance(ragged_rank, int) or ragged_rank < 0):
        raise InvalidArgumentError(f"{op}: ragged_rank: expected a whole number of at least 0, got {ragged_rank!r}")
    if ragged_rank is None:
        ragged_rank = max(_depth(rows) - 1, 1 if _rank(rows) and not len(rows) else 0)
    if ragged_rank > 0 and _rank(rows) == 0:
        raise InvalidArgumentError(f"{op}: rows: expected a list, got {type(rows).__name__}")
    splits: list[np.ndarray] = []
    level = rows
    while len(splits) < ragged_rank:
        for place, item in enumerate(level):
            if _rank(item) == 0:
                _refuse_none(level, "inner " * len(splits) + "list")
                raise InvalidArgumentError(
                    f"{op}: expected lists at depth {len(splits) + 1}, got {type(item).__name__} at place {place}"
                )
        splits.append(np.cumsum([0, *map(len, level)], dtype=splits_dtype))
        is_last = len(splits) == ragged_rank
        level = _joined(level, op) if is_last else [item for row in level for item in row]
    return splits, _values(level, dtype, op)


def _joined(rows: Any, op: str) -> Any:
    """The items of all rows: an array if one of the rows is an array, otherwise a list."""
    if all(isinstance(row, (list, tuple)) for row in rows):
        return [item for row in rows for item in row]
    parts = [row for row in rows if len(row) or not isinstance(row, (list, tuple))]  # empty lists have no type
    try:
        return np.concatenate([numpy_of(part, op, "rows") for part in parts])
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(f"{op}: rows: the arrays do not fit together: {error}") from None


def _values(items: Any, dtype: Any, op: str) -> Any:
    """One array of all items; a Tensor if the dtype is quantized, as NumPy has no such types."""
    if dtype is None:
        if isinstance(items, list) and not _leaves(items):
            dtype = "int32"
        elif isinstance(items, list) and items and all(isinstance(item, np.generic) for item in items):
            items = np.asarray(items)
    try:
        values = tensor_of(items, op, "rows", dtype)
        name = values.dtype if dtype is None else tensor_of([], op, "dtype", dtype).dtype
        if values.dtype != name:  # an array keeps its dtype in tensor_of
            values = Tensor(array(items, name.removeprefix("q"), "", f"{op}: rows"), name)
    except InvalidArgumentError:
        _refuse_none(_leaves(items), "value")
        raise
    return values if values.dtype.startswith("q") else values.numpy()


def _refuse_none(items: list[Any], what: str) -> None:
    for place, item in enumerate(items):
        if item is None:
            raise InvalidArgumentError(f"Ragged.from_lists: {what} {place} is None; fill or drop it")


def _leaves(level: Any) -> list[Any]:
    """The items below all lists."""
    return [leaf for item in level for leaf in _leaves(item)] if isinstance(level, (list, tuple)) else [level]


def _depth(rows: Any) -> int:
    """How deep the deepest list is nested. Dimensions of arrays count."""
    deepest, depth, level = 0, 0, [rows]
    while level:
        deepest = max(deepest, depth + max(map(_rank, level)))
        level = [leaf for item in level if isinstance(item, (list, tuple)) for leaf in item]
        depth += 1
    return deepest


def _rank(item: Any) -> int:
    """The rank of an array. A list has rank 1, whatever is inside."""
    return 1 if isinstance(item, (list, tuple)) else len(getattr(item, "shape", ()))


def to_lists(nested_splits: list[Any], values: Any) -> list[Any]:
    splits, data = numpy_parts(nested_splits, values, "Ragged.to_lists")
    rows = data.tolist()
    for level in reversed(splits):
        ends = level.tolist()
        rows = [rows[begin:end] for begin, end in pairwise(ends)]
    return rows


def from_awkward(array: Any) -> Parts:
    ak = needed("awkward", "Ragged.from_awkward")
    splits, values = _read_layout(ak, ak.to_layout(array), "list")
    return of_one_type(splits), values


def _read_layout(ak: Any, layout: Any, what: str) -> Parts:
    contents = ak.contents
    if layout.is_option:
        missing = np.flatnonzero(np.asarray(layout.mask_as_bool(valid_when=False)))
        if len(missing):
            raise InvalidArgumentError(f"Ragged.from_awkward: {what} {missing[0]} is missing (None); fill or drop it")
        return _read_layout(ak, layout.project(), what)
    if layout.is_indexed:
        return _read_layout(ak, layout.project(), what)
    if layout.parameter("__array__") in ("string", "bytestring"):
        texts = ak.to_list(ak.without_parameters(layout, behavior=None)) if len(layout) else []
        return [], strings([bytes(text) for text in texts])
    if isinstance(layout, contents.EmptyArray):
        return [], np.empty(0, np.float64)
    if isinstance(layout, contents.NumpyArray):
        return [], np.asarray(layout.data)
    if layout.is_regular:
        size = layout.size
        inner, values = _read_layout(ak, layout.content[: len(layout) * size], f"inner {what}")
        if inner:
            return [uniform_splits(len(layout), size, inner[0].dtype), *inner], values
        return [], values.reshape(len(layout), size, *values.shape[1:])
    if layout.is_list:
        if not isinstance(layout, contents.ListOffsetArray) or layout.offsets.dtype == np.uint32:
            layout = layout.to_ListOffsetArray64(True)
        offsets = np.asarray(layout.offsets.data)
        first, last = int(offsets[0]), int(offsets[-1])
        inner, values = _read_layout(ak, layout.content[first:last], f"inner {what}")
        return [offsets if first == 0 else offsets - offsets[0], *inner], values
    raise InvalidArgumentError(f"Ragged.from_awkward: expected lists of numbers or strings, got {layout.form.type}")


def to_awkward(nested_splits: list[Any], values: Any) -> Any:
    ak = needed("awkward", "Ragged.to_awkward")
    splits, data = numpy_parts(nested_splits, values, "Ragged.to_awkward")
    if data.dtype == object:
        layout = ak.to_layout(ak.Array(data.reshape(-1).tolist() or [b""]))[: data.size]
        for size in reversed(data.shape[1:]):
            layout = ak.contents.RegularArray(layout, size, zeros_length=len(data))
    else:
        layout = ak.contents.NumpyArray(data)
    for level in reversed(splits):
        layout = ak.contents.ListOffsetArray(ak.index.Index(level), layout)
    return ak.Array(layout)


def from_torch(nested: Any) -> Parts:
    torch = needed("torch", "Ragged.from_torch")
    if not isinstance(nested, torch.Tensor) or not nested.is_nested:
        raise InvalidArgumentError(
            f"Ragged.from_torch: expected a nested tensor (torch.nested), got {type(nested).__name__}"
        )
    if nested.layout != torch.jagged:
        nested = torch.nested.as_nested_tensor(list(nested.unbind()), layout=torch.jagged)
    if nested.lengths() is not None:  # rows with gaps between them
        nested = nested.contiguous()
    if nested._ragged_idx != 1:
        raise InvalidArgumentError(
            "Ragged.from_torch: expected the ragged dimension to be the second, "
            f"got dimension {nested._ragged_idx}; transpose the nested tensor back first"
        )
    return [nested.offsets()], nested.values()


def to_torch(nested_splits: list[Any], values: Any) -> Any:
    torch = needed("torch", "Ragged.to_torch")
    if len(nested_splits) != 1:
        raise InvalidArgumentError(
            f"Ragged.to_torch: expected one level of splits, which is what torch has, got {len(nested_splits)}"
        )
    parts_where_they_lie(nested_splits, values, "Ragged.to_torch")
    parts = (*nested_splits, values)
    splits, data = (x if isinstance(x, torch.Tensor) else torch.from_dlpack(Tensor(x)) for x in parts)
    return torch.nested.nested_tensor_from_jagged(data, splits.to(data.device))  # torch wants both on one device


def from_tf(ragged: Any) -> Parts:
    tf = needed("tensorflow", "Ragged.from_tf")
    if isinstance(ragged, tf.RaggedTensor):
        return list(ragged.nested_row_splits), ragged.flat_values
    if isinstance(ragged, tf.Tensor):
        return [], ragged
    raise InvalidArgumentError(f"Ragged.from_tf: expected a tf.RaggedTensor, got {type(ragged).__name__}")


def to_tf(nested_splits: list[Any], values: Any) -> Any:
    tf = needed("tensorflow", "Ragged.to_tf")

    splits, data = numpy_parts(nested_splits, values, "Ragged.to_tf")

    def tensor(x: Any, array: np.ndarray) -> Any:
        if isinstance(x, tf.Tensor):
            return x
        name = x.dtype if isinstance(x, Tensor) else ""
        return tf.bitcast(tf.constant(array), name) if name.startswith("q") else tf.constant(array)

    flat = tensor(values, data)
    levels = [tensor(s, array) for s, array in zip(nested_splits, splits, strict=True)]
    return tf.RaggedTensor.from_nested_row_splits(flat, levels, validate=False) if levels else flat


def from_scipy(matrix: Any, part: str) -> Parts:
    sparse = needed("scipy.sparse", "Ragged.from_scipy")
    if not sparse.issparse(matrix):
        raise InvalidArgumentError(f"Ragged.from_scipy: expected a scipy.sparse matrix, got {type(matrix).__name__}")
    if part not in ("data", "indices"):
        raise InvalidArgumentError(f"Ragged.from_scipy: part: expected 'data' or 'indices', got {part!r}")
    rows = matrix.tocsr()
    return [rows.indptr], getattr(rows, part)


def to_scipy(nested_splits: list[Any], values: Any, columns: Any, num_columns: int) -> Any:
    sparse = needed("scipy.sparse", "Ragged.to_scipy")
    splits, data = numpy_parts(nested_splits, values, "Ragged.to_scipy")
    if len(splits) != 1 or data.ndim != 1:
        raise InvalidArgumentError(
            f"Ragged.to_scipy: expected one level of splits over a vector, got {len(splits)} over shape {data.shape}"
        )
    indices = numpy_of(getattr(columns, "values", columns), "Ragged.to_scipy", "columns")
    if indices.shape != data.shape:
        raise InvalidArgumentError(f"Ragged.to_scipy: columns: expected shape {data.shape}, got {indices.shape}")
    return sparse.csr_array((data, indices, splits[0]), shape=(len(splits[0]) - 1, num_columns))
