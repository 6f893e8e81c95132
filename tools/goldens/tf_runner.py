"""Runs golden cases through TensorFlow.

As a program it is a worker: one JSON case per line on stdin, one JSON answer per line on stdout.
It needs an environment with TensorFlow, NumPy and ml_dtypes, and nothing of this library.
"""

from __future__ import annotations

import functools
import json
import os
import re
import resource
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import op_def_registry

from goldens.encoding import (
    QUANTIZED,
    Ragged,
    Tensor,
    Variant,
    decode,
    encode,
    tensor,
)

# Allocations that must fail have to fail here too, whatever the machine would promise.
ADDRESS_SPACE = 64 << 30

_TYPE_NAMES = {"float16": "half"}


def run(case: dict[str, Any]) -> dict[str, Any]:
    """The outputs of a case, or the error it ends in, both as golden files spell them."""
    inputs = {name: _any_to_tf(value) for name, value in case["inputs"].items()}
    attrs = {name: tf.as_dtype(value) if name.startswith("T") else value
             for name, value in case["attrs"].items()}
    try:
        result = getattr(tf.raw_ops, case["op"])(**inputs, **attrs)
    except tf.errors.OpError as error:
        return {"error": {"code": type(error).__name__.removesuffix("Error"),
                          "message": _kernel_text(error.message)}}
    names = [output.name for output in op_def_registry.get(case["op"]).output_arg]
    results = [result] if len(names) == 1 else list(result)
    outputs = zip(names, results, strict=True)
    return {"outputs": {name: _from_tf(value) for name, value in outputs}}


def _kernel_text(message: str) -> str:
    """The first line of a message, without what TensorFlow's Python layer puts around it."""
    line = message.split("\n", 1)[0]
    line = re.sub(r"^\{\{function_node .*?\}\} ", "", line)
    return re.sub(r" \[Op:\w+\].*$", "", line)


def _any_to_tf(encoded: Any) -> Any:
    if isinstance(encoded, list):
        return [_any_to_tf(item) for item in encoded]
    value = decode(encoded)
    return _variant_to_tf(value) if isinstance(value, Variant) else _to_tf(value)


def _to_tf(value: Tensor) -> tf.Tensor:
    if value.dtype in QUANTIZED:
        return tf.bitcast(tf.constant(value.array), tf.as_dtype(value.dtype))
    return tf.constant(value.array, tf.as_dtype(value.dtype))


def _variant_to_tf(value: Variant) -> tf.Tensor:
    if not value.elements:
        return tf.reshape(_missing(0), value.shape)
    elements = [_missing(1)[0] if e is None else _ragged_to_tf(e) for e in value.elements]
    return tf.reshape(tf.stack(elements), value.shape)


def _ragged_to_tf(value: Ragged) -> tf.Tensor:
    return tf.raw_ops.RaggedTensorToVariant(
        rt_nested_splits=[_to_tf(s) for s in value.splits],
        rt_dense_values=_to_tf(value.values),
        batched_input=False,
    )


@functools.cache
def _missing(count: int) -> tf.Tensor:
    """Variants without a ragged value: what the gradient of an untouched slice leaves behind."""
    nothing = tf.stack([_ragged_to_tf(Ragged([], tensor("float32", 0.0)))])[:0]
    return tf.raw_ops.StridedSliceGrad(
        shape=[count], begin=[0], end=[0], strides=[1], dy=nothing
    )


def _from_tf(value: tf.Tensor) -> dict[str, Any]:
    name = _TYPE_NAMES.get(value.dtype.name, value.dtype.name)
    if name in QUANTIZED:
        value = tf.bitcast(value, tf.as_dtype(name[1:]))
    array = np.array(value.numpy(), object if name == "string" else None)
    return encode(Tensor(name, array))


def prepare() -> None:
    """Settings that must be made before the first case runs."""
    tf.config.threading.set_inter_op_parallelism_threads(1)
    tf.config.threading.set_intra_op_parallelism_threads(1)
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))


def main() -> None:
    prepare()
    for line in sys.stdin:
        print(json.dumps(run(json.loads(line)), separators=(",", ":")), flush=True)


if __name__ == "__main__":
    main()
