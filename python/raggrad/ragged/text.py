"""repr and HTML of ragged data. Long data is cut in the middle, as NumPy does it."""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np

from .. import _arrays
from ..errors import OpError
from .arrays import numpy_of, numpy_parts

_EDGE = 3  # rows shown at both ends when the middle is cut
_NUMBERS = 20  # longest row that is shown in full
_WIDTH = 100  # of lines


def ragged(value: Any) -> str:
    """`Ragged([[1., 2.], ...], dtype='float32', shape=[3, (None)])`."""
    prefix = "Ragged("
    try:
        device = _arrays.device_of(value.values)
        rows = _rows(value, len(prefix)) if device == _arrays.HOST else f"<on {device}>"
    except (OpError, TypeError, ValueError):  # invalid splits, or no arrays: __init__ does not check them
        splits = ", ".join(_short(s) for s in value.nested_splits)
        return f"Ragged(nested_splits=[{splits}], values={_short(value.values)})"
    dtype = _dtype(value.values)
    return f"{prefix}{rows}, {f'dtype={dtype!r}, ' if dtype else ''}shape={_shape(value)})"


def html(value: Any) -> str:
    """A table with one line for every row that `ragged` shows."""
    try:
        splits, values = numpy_parts(value.nested_splits, value.values, "Ragged")
        count = len(value)
    except (OpError, TypeError, ValueError):  # invalid, or a scalar: there are no rows
        return f"<pre>{escape(ragged(value))}</pre>"
    edge = _EDGE if len(splits) + values.ndim <= 2 else 1
    lines = []
    for i in _ends(count, _EDGE):
        shown = _level(splits, values, i, i + 1, edge, 0)[1:-1] if splits else _block(values[i], edge, 0)
        lines.append(f"<tr><th>{i}</th><td style='text-align: left'><pre>{escape(shown)}</pre></td></tr>")
    if len(lines) < count:
        lines.insert(_EDGE, "<tr><th>...</th><td></td></tr>")
    dtype = _dtype(value.values)
    caption = escape(f"Ragged, {f'dtype={dtype!r}, ' if dtype else ''}shape={_shape(value)}")
    return f"<table><caption>{caption}</caption>{''.join(lines)}</table>"


def variant_array(elements: Any, shape: tuple[int, ...]) -> str:
    """One element per line, without the middle if there are many."""
    if not shape:
        return f"VariantArray({elements[0]!r}, shape=())"
    count = len(elements)
    shown = [f"    {_one_line(elements[i])},\n" for i in _ends(count, _EDGE)]
    if len(shown) < count:
        shown.insert(_EDGE, f"    ... {count - len(shown)} more ...\n")
    lines = "\n" + "".join(shown) if shown else ""
    return f"VariantArray([{lines}], shape={shape})"


def _ends(count: int, edge: int) -> list[int]:
    """The places at both ends, or all if fewer than two would be left out."""
    if count <= 2 * edge + 1:
        return list(range(count))
    return [*range(edge), *range(count - edge, count)]


def _one_line(element: Any) -> str:
    return " ".join(repr(element).split())


def _shape(value: Any) -> str:
    return f"[{', '.join('(None)' if dim is None else str(dim) for dim in value.shape)}]"


def _dtype(values: Any) -> str:
    """The name of the dtype of an array; lists have none."""
    dtype = getattr(values, "dtype", None)
    if dtype is None:
        return ""
    if getattr(dtype, "hasobject", False):
        return "string"
    return getattr(dtype, "name", None) or str(dtype).removeprefix("torch.")


def _rows(value: Any, indent: int) -> str:
    splits, values = numpy_parts(value.nested_splits, value.values, "Ragged")
    edge = _EDGE if len(splits) + values.ndim <= 2 else 1  # rows of rows take much room
    if not splits:
        return _block(values, edge, indent)
    return _level(splits, values, 0, len(splits[0]) - 1, edge, indent)


def _level(splits: list[np.ndarray], values: np.ndarray, begin: int, end: int, edge: int, indent: int) -> str:
    """The rows [begin, end) of the outermost splits."""
    shown = []
    for i in _ends(end - begin, edge):
        first, last = int(splits[0][begin + i]), int(splits[0][begin + i + 1])
        if len(splits) > 1:
            shown.append(_level(splits[1:], values, first, last, edge, indent + 1))
        else:
            shown.append(_block(values[first:last], edge, indent + 1))
    if len(shown) < end - begin:
        shown.insert(edge, "...")
    separator = ",\n" + " " * (indent + 1)
    return f"[{separator.join(shown)}]"


def _block(array: np.ndarray, edge: int, indent: int) -> str:
    if array.size == 0:
        return "[]"
    looks = {"threshold": _NUMBERS, "edgeitems": edge, "precision": 4, "max_line_width": _WIDTH}
    return np.array2string(array, separator=", ", prefix=" " * indent, **looks)


def _short(array: Any) -> str:
    try:
        data = numpy_of(array, "Ragged", "an array")
    except (OpError, TypeError):
        return f"<{type(array).__name__}>"
    shown = np.array2string(data, separator=", ", threshold=8, edgeitems=_EDGE).replace("\n", "")
    return " ".join(shown.split())
