"""Shared by the tests: names of operators and dtypes, plain NumPy forms of operators, fixtures."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import raggrad
from raggrad.batching import Runtime

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

ROOT = Path(__file__).parents[2]

FLOATS = ["half", "bfloat16", "float32", "float64"]
INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
NUMBERS = [*FLOATS, *INTEGERS, "complex64", "complex128"]
QUANTIZED = ["qint8", "quint8", "qint16", "quint16", "qint32"]
RAGGED_TYPES = [*NUMBERS, "bool", "string", *QUANTIZED]
SMALL_TYPES = ["float8_e4m3fn", "float8_e5m2", "int4", "uint4"]

SEGMENT_GRADS = [f"SparseSegment{c}Grad{v}" for c in ("Sum", "Mean", "SqrtN") for v in ("", "V2")]
SEGMENT_FORWARDS = [f"SparseSegment{c}{n}" for c in ("Sum", "Mean", "SqrtN") for n in ("", "WithNumSegments")]
FILLS = ["SparseFillEmptyRows", "RaggedFillEmptyRows"]
FILL_GRADS = ["SparseFillEmptyRowsGrad", "RaggedFillEmptyRowsGrad"]
BATCHING = ["Batch", "Unbatch", "UnbatchGrad"]  # they wait; batching/ has their tests
VARIANTS = ["RaggedTensorToVariant", "RaggedTensorFromVariant", "RaggedTensorToVariantGradient"]
OPERATORS = [
    *SEGMENT_FORWARDS, *SEGMENT_GRADS, *FILLS, *FILL_GRADS, "SparseSlice", "SparseSliceGrad", *VARIANTS,
]  # fmt: skip


def numpy_dtype(name: str) -> np.dtype:
    if name in QUANTIZED:
        name = name[1:]
    special = {"half": np.float16, "string": object}
    return np.dtype(special.get(name) or getattr(ml_dtypes, name, name))


def values_of(name: str, count: int) -> np.ndarray:
    """Small numbers that every dtype has, or strings of several lengths that end in a zero byte."""
    if name == "string":
        strings = np.empty(count, object)
        strings[:] = [b"x" * i + b"\0" for i in range(count)]
        return strings
    return (np.arange(count) % 7).astype(numpy_dtype(name))


def segment_grad(op: str, grad: np.ndarray, indices: np.ndarray, segment_ids: np.ndarray, dim0: int) -> np.ndarray:
    """The dense gradient, summed in float64: exact for the small numbers of the tests."""
    counts = np.bincount(segment_ids, minlength=len(grad))
    power = {"Sum": 0.0, "Mean": 1.0, "SqrtN": 0.5}[op.removeprefix("SparseSegment").split("Grad")[0]]
    out = np.zeros((dim0, *grad.shape[1:]))
    for i, s in zip(indices, segment_ids, strict=True):
        out[i] += grad[s].astype(np.float64) / counts[s] ** power
    return out.astype(grad.dtype)


def call_segment_grad(op: str, grad: Any, indices: Any, segment_ids: Any, dim0: Any, **attributes: Any) -> Any:
    dim0_name = "dense_output_dim0" if op.endswith("V2") else "output_dim0"
    inputs = {"grad": grad, "indices": indices, "segment_ids": segment_ids, dim0_name: dim0}
    return getattr(raggrad.raw_ops, op)(**inputs, **attributes)


def same_bits(a: Any, b: Any) -> bool:
    a, b = np.asarray(a), np.asarray(b)
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    return a.tolist() == b.tolist() if a.dtype == object else a.tobytes() == b.tobytes()


def address(array: Any) -> int:
    return np.asarray(array).ctypes.data


@pytest.fixture
def pa() -> Any:
    return pytest.importorskip("pyarrow")


@pytest.fixture
def ak() -> Any:
    return pytest.importorskip("awkward")


@pytest.fixture
def sparse() -> Any:
    return pytest.importorskip("scipy.sparse")


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch")


@pytest.fixture
def tf() -> Any:
    return pytest.importorskip("tensorflow")


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    with Runtime() as runtime:
        yield runtime


@pytest.fixture
def restore_threads() -> Iterator[None]:
    before = raggrad.get_num_threads()
    yield
    raggrad.set_num_threads(before)


@pytest.fixture
def restore_memory_limit() -> Iterator[None]:
    yield
    raggrad.set_memory_limit(None)


@contextmanager
def no_switching() -> Iterator[None]:
    """Inside, the interpreter does not switch threads by itself: a thread runs only when another releases the GIL."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1000.0)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def lets_others_run(call: Callable[[], Any], times: int) -> bool:
    """Whether the main thread runs during one of so many calls of another thread."""
    seen_by_main = threading.Event()
    overlapped = []

    def work() -> None:
        for _ in range(times):
            call()
            if seen_by_main.is_set():
                overlapped.append(True)
                return

    with no_switching():
        worker = threading.Thread(target=work)
        worker.start()
        seen_by_main.set()
        worker.join()
    return bool(overlapped)
