"""Tensors in golden files, read, written and compared bit by bit.

    VALUE    TENSOR, VARIANT or a list of TENSOR
    TENSOR   {"dtype": "float32", "shape": [2], "data": base64 of little-endian elements, or a list of base64 strings}
    VARIANT  {"dtype": "variant", "shape": [...], "elements": [RAGGED or null, ...]}
    RAGGED   {"nested_splits": [TENSOR, ...], "values": TENSOR}
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np

from .._core import Tensor
from ..ragged import Ragged, VariantArray, variant_parts

# Dtypes that recorders call by another name.
_SHORT_NAMES = {"float16": "half"}


def numpy_dtype(name: str) -> np.dtype:
    """NumPy's dtype for a name in a golden file. Quantized types are stored as their integers."""
    if name[0] == "q":
        name = name[1:]
    return np.dtype("float16" if name == "half" else getattr(ml_dtypes, name, name))


def _numpy(tensor: dict[str, Any]) -> np.ndarray:
    if tensor["dtype"] == "string":
        strings = np.empty(len(tensor["data"]), object)
        strings[:] = [base64.b64decode(text) for text in tensor["data"]]
        return strings.reshape(tensor["shape"])
    return np.frombuffer(base64.b64decode(tensor["data"]), numpy_dtype(tensor["dtype"])).reshape(tensor["shape"])


def decode(value: Any) -> Any:
    """The argument of an operator that a VALUE stands for."""
    if isinstance(value, list):
        return [decode(item) for item in value]
    if value["dtype"] == "variant":
        elements = [
            None if e is None else Ragged([decode(s) for s in e["nested_splits"]], decode(e["values"]))
            for e in value["elements"]
        ]
        return VariantArray(elements, value["shape"])
    array = _numpy(value)
    return Tensor(array, value["dtype"]) if value["dtype"][0] == "q" else array


def encode(value: Any) -> Any:
    """The VALUE of an operator's output."""
    if isinstance(value, list):
        return [encode(item) for item in value]
    if isinstance(value, VariantArray):
        elements, shape = variant_parts(value, "")
        encoded = [None if elements[i] is None else encode(elements[i]) for i in range(len(elements))]
        return {"dtype": "variant", "shape": list(shape), "elements": encoded}
    if isinstance(value, Ragged):
        return {"nested_splits": encode(value.nested_splits), "values": encode(value.values)}
    array = value.numpy() if isinstance(value, Tensor) else value
    dtype = value.dtype if isinstance(value, Tensor) else Tensor(value).dtype
    if dtype == "string":
        data: Any = [base64.b64encode(item).decode() for item in array.ravel()]
    else:
        data = base64.b64encode(array.tobytes()).decode()
    return {"dtype": dtype, "shape": list(array.shape), "data": data}


def compare_outputs(expected: dict[str, Any], got: dict[str, Any]) -> str | None:
    """How two dictionaries of outputs differ; None if they are the same bits."""
    if list(expected) != list(got):
        return f"expected the outputs {list(expected)}, got {list(got)}"
    wanted, given = dict(_tensors(expected)), dict(_tensors(got))
    if list(wanted) != list(given):
        return f"expected the tensors {list(wanted)}, got {list(given)}"
    for name, want in wanted.items():
        have = given[name]
        for what in ("dtype", "shape"):
            if _SHORT_NAMES.get(str(want[what]), want[what]) != have[what]:
                return f"{name}: expected {what} {want[what]}, got {have[what]}"
        if want["data"] != have["data"] and (difference := _first_difference(want, have)):
            return f"{name}: {difference}"
    return None


def _tensors(value: Any, name: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """The tensors in a dict of outputs, in a list, in the elements of a variant, each with its path."""
    if isinstance(value, list):
        for i, item in enumerate(value):
            yield from _tensors(item, f"{name}[{i}]")
    elif value is None:
        yield name, {"dtype": "missing", "shape": [], "data": ""}
    elif value.get("dtype") == "variant":
        yield name, {"dtype": "variant", "shape": value["shape"], "data": ""}
        yield from _tensors(value["elements"], f"{name}.elements")
    elif "data" in value:
        yield name, value
    else:
        for key, item in value.items():
            yield from _tensors(item, f"{name}.{key}" if name else key)


def _first_difference(want: dict[str, Any], have: dict[str, Any]) -> str | None:
    """Where two tensors of the same dtype and shape differ in bits, any NaN being equal to any NaN."""
    expected, got = (np.ravel(_numpy(tensor)) for tensor in (want, have))
    if expected.dtype.kind == "c":  # real and imaginary parts count as elements of their own
        expected, got = expected.view(expected.real.dtype), got.view(got.real.dtype)
    if expected.dtype == object:
        differs = expected != got
    else:
        bits = np.dtype(f"u{expected.dtype.itemsize}")
        differs = expected.view(bits) != got.view(bits)
        if expected.dtype.kind == "f" or want["dtype"] == "bfloat16":
            differs &= ~(np.isnan(expected) & np.isnan(got))
    if not differs.any():
        return None
    first = int(np.argmax(differs))
    return (
        f"{int(differs.sum())} of {len(differs)} elements differ, "
        f"first [{first}]: expected {expected[first]}, got {got[first]}"
    )
