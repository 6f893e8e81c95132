"""Tensors, ragged variants and cases, and their JSON form in golden files."""

from __future__ import annotations

import base64
import zlib
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

FLOATS = ("half", "bfloat16", "float32", "float64")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
COMPLEX = ("complex64", "complex128")
NUMBERS = FLOATS + INTEGERS + COMPLEX
QUANTIZED = ("qint8", "quint8", "qint16", "quint16", "qint32")
SMALL = ("float8_e4m3fn", "float8_e5m2", "int4", "uint4")  # no operator here takes them

_RENAMED = {"half": np.float16, "string": np.object_}


def numpy_dtype(name: str) -> np.dtype:
    """The NumPy type that stores a TensorFlow type; quantized types are stored as integers."""
    if name in QUANTIZED:
        name = name[1:]
    if name in _RENAMED:
        return np.dtype(_RENAMED[name])
    return np.dtype(getattr(ml_dtypes, name, None) or name)


@dataclass
class Tensor:
    dtype: str
    array: np.ndarray


def tensor(dtype: str, data: Any) -> Tensor:
    """A tensor of the named type, with a copy of the data."""
    return Tensor(dtype, np.array(data, numpy_dtype(dtype)))


@dataclass
class Ragged:
    splits: list[Tensor]
    values: Tensor


@dataclass
class Variant:
    """An array of ragged elements; None stands for a missing one."""

    shape: tuple[int, ...]
    elements: list[Ragged | None]


Inputs = dict[str, Any]  # name -> Tensor | Variant | list[Tensor]


@dataclass
class Case:
    op: str
    label: str
    inputs: Inputs
    attrs: dict[str, Any] = field(default_factory=dict)
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        inputs = {name: encode(value) for name, value in self.inputs.items()}
        return {
            "name": f"{self.op}/{self.label}",
            "op": self.op,
            "attrs": self.attrs,
            "inputs": inputs,
            "note": self.note,
        }


def encode(value: Tensor | Variant | list[Tensor]) -> Any:
    if isinstance(value, list):
        return [encode(item) for item in value]
    if isinstance(value, Variant):
        elements = [None if e is None else _encode_ragged(e) for e in value.elements]
        return {"dtype": "variant", "shape": list(value.shape), "elements": elements}
    shape = list(value.array.shape)
    if value.dtype == "string":
        data: Any = [base64.b64encode(s).decode() for s in value.array.ravel()]
    else:
        data = base64.b64encode(value.array.tobytes()).decode()
    return {"dtype": value.dtype, "shape": shape, "data": data}


def _encode_ragged(element: Ragged) -> dict[str, Any]:
    return {
        "nested_splits": [encode(s) for s in element.splits],
        "values": encode(element.values),
    }


def decode(encoded: Any) -> Any:
    """A Tensor, a Variant, or a list of Tensor."""
    if isinstance(encoded, list):
        return [decode(item) for item in encoded]
    if encoded["dtype"] != "variant":
        return decode_tensor(encoded)
    elements = [None if e is None else _decode_ragged(e) for e in encoded["elements"]]
    return Variant(tuple(encoded["shape"]), elements)


def decode_tensor(encoded: dict[str, Any]) -> Tensor:
    if encoded["dtype"] == "string":
        array = np.empty(len(encoded["data"]), object)
        array[:] = [base64.b64decode(s) for s in encoded["data"]]
    else:
        raw = base64.b64decode(encoded["data"])
        array = np.frombuffer(raw, numpy_dtype(encoded["dtype"]))
    return Tensor(encoded["dtype"], array.reshape(encoded["shape"]))


def _decode_ragged(encoded: dict[str, Any]) -> Ragged:
    splits = [decode_tensor(s) for s in encoded["nested_splits"]]
    return Ragged(splits, decode_tensor(encoded["values"]))


def rng_for(*words: str) -> np.random.Generator:
    """A generator that depends on the words alone, so that a new case does not change the others."""
    return np.random.default_rng(zlib.crc32("/".join(words).encode()))
