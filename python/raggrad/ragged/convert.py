"""Ragged data of Python, awkward, torch, TensorFlow and SciPy as (splits, values), and back."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from .._core import Tensor
from ..errors import InvalidArgumentError
from .arrays import lengths_of, needed, numpy_of, of_one_type, strings, uniform_splits

Parts = tuple[list[Any], Any]


def from_lists(rows: Any, dtype: Any, ragged_rank: int | None, splits_dtype: str) -> Parts:
    splits: list[np.ndarray] = []
    level = rows
    limit = _depth(rows) - 1 if ragged_rank is None else ragged_rank
    while len(splits) < limit:
        odd = next((item for item in level if not isinstance(item, (list, tuple))), None)
        if odd is not None:
            raise InvalidArgumentError(
                f"Ragged.from_lists: expected lists at depth {len(splits) + 1}, got {type(odd).__name__}"
            )
        splits.append(np.cumsum([0, *map(len, level)], dtype=splits_dtype))
        level = [item for row in level for item in row]
    return splits, numpy_of(Tensor(level, dtype)) if _is_plain(dtype) else Tensor(level, dtype)


def _depth(rows: Any) -> int:
    """How deep lists are nested; empty ones do not hide what lies beside them."""
    depth, level = 0, [rows]
    while any(isinstance(item, (list, tuple)) for item in level):
        level = [leaf for item in level if isinstance(item, (list, tuple)) for leaf in item]
        depth += 1
    return depth


def _is_plain(dtype: Any) -> bool:
    """Whether NumPy has the dtype; quantized ones live in a Tensor."""
    return not (isinstance(dtype, str) and dtype.startswith("q"))


def to_lists(nested_splits: list[Any], values: Any) -> list[Any]:
    splits = [numpy_of(s) for s in nested_splits]
    data = numpy_of(values)
    lengths_of(splits, data, "Ragged.to_lists")
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
    splits = [numpy_of(s) for s in nested_splits]
    data = numpy_of(values)
    lengths_of(splits, data, "Ragged.to_awkward")
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
    parts = (*nested_splits, values)
    splits, data = (x if isinstance(x, torch.Tensor) else torch.from_dlpack(Tensor(x)) for x in parts)
    lengths_of([numpy_of(splits)], data, "Ragged.to_torch")
    return torch.nested.nested_tensor_from_jagged(data, splits)


def from_tf(ragged: Any) -> Parts:
    tf = needed("tensorflow", "Ragged.from_tf")
    if isinstance(ragged, tf.RaggedTensor):
        return list(ragged.nested_row_splits), ragged.flat_values
    if isinstance(ragged, tf.Tensor):
        return [], ragged
    raise InvalidArgumentError(f"Ragged.from_tf: expected a tf.RaggedTensor, got {type(ragged).__name__}")


def to_tf(nested_splits: list[Any], values: Any) -> Any:
    tf = needed("tensorflow", "Ragged.to_tf")

    def tensor(x: Any) -> Any:
        if isinstance(x, tf.Tensor):
            return x
        array = tf.constant(numpy_of(x))
        name = x.dtype if isinstance(x, Tensor) else ""
        return tf.bitcast(array, name) if name.startswith("q") else array

    splits = [tensor(s) for s in nested_splits]
    if not splits:
        return tensor(values)
    lengths_of([s.numpy() for s in splits], numpy_of(values), "Ragged.to_tf")
    return tf.RaggedTensor.from_nested_row_splits(tensor(values), splits, validate=False)


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
    splits, data = [numpy_of(s) for s in nested_splits], numpy_of(values)
    if len(splits) != 1 or data.ndim != 1:
        raise InvalidArgumentError(
            f"Ragged.to_scipy: expected one level of splits over a vector, got {len(splits)} over shape {data.shape}"
        )
    lengths_of(splits, data, "Ragged.to_scipy")
    indices = numpy_of(getattr(columns, "values", columns))
    if indices.shape != data.shape:
        raise InvalidArgumentError(f"Ragged.to_scipy: columns: expected shape {data.shape}, got {indices.shape}")
    return sparse.csr_array((data, indices, splits[0]), shape=(len(splits[0]) - 1, num_columns))
