"""Runs golden cases through TensorFlow.

As a program it is a worker: it reads one JSON case per line from stdin and writes one JSON answer per line to stdout.
It needs an environment with TensorFlow, NumPy and ml_dtypes, and nothing of raggrad.
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
from tensorflow.core.framework import tensor_pb2
from tensorflow.python.framework import op_def_registry

from goldens.encoding import (
    QUANTIZED,
    Ragged,
    Tensor,
    Variant,
    decode,
    encode,
)

# Limits memory so that allocations that must fail do so, even where the machine would grant them.
ADDRESS_SPACE = 64 << 30

_TYPE_NAMES = {"float16": "half"}


def run(case: dict[str, Any]) -> dict[str, Any]:
    """The outputs of a case, or the error it ends in, both as golden files spell them."""
    inputs = {name: to_tf(decode(value)) for name, value in case["inputs"].items()}
    attrs = {name: tf.as_dtype(value) if name.startswith("T") else value
             for name, value in case["attrs"].items()}
    try:
        result = getattr(tf.raw_ops, case["op"])(**inputs, **attrs)
    except tf.errors.OpError as error:
        return {"error": {"code": type(error).__name__.removesuffix("Error"),
                          "message": kernel_text(error)}}
    names = [output.name for output in op_def_registry.get(case["op"]).output_arg]
    results = [result] if len(names) == 1 else list(result)
    outputs = zip(names, results, strict=True)
    return {"outputs": {name: _any_from_tf(value, case) for name, value in outputs}}


def kernel_text(error: tf.errors.OpError) -> str:
    """The first line of a message, without the words that TensorFlow's Python layer adds."""
    line = error.message.split("\n", 1)[0]
    line = re.sub(r"^\{\{function_node .*?\}\} ", "", line)
    return re.sub(r" \[Op:\w+\].*$", "", line)


def to_tf(value: Any) -> Any:
    if isinstance(value, list):
        return [to_tf(item) for item in value]
    return _variant_to_tf(value) if isinstance(value, Variant) else _tensor_to_tf(value)


def _tensor_to_tf(value: Tensor) -> tf.Tensor:
    if value.dtype in QUANTIZED:
        return tf.bitcast(tf.constant(value.array), tf.as_dtype(value.dtype))
    return tf.constant(value.array, tf.as_dtype(value.dtype))


def _variant_to_tf(value: Variant) -> tf.Tensor:
    if not value.elements:
        return tf.reshape(_missing(0), value.shape)
    elements = [_missing(1)[0] if e is None else _ragged_to_tf(e) for e in value.elements]
    return tf.reshape(tf.stack(elements), value.shape)


def _ragged_to_tf(value: Ragged) -> tf.Tensor:
    splits, values = [_tensor_to_tf(s) for s in value.splits], _tensor_to_tf(value.values)
    try:
        return tf.raw_ops.RaggedTensorToVariant(
            rt_nested_splits=splits, rt_dense_values=values, batched_input=False
        )
    except tf.errors.InvalidArgumentError:
        return _unchecked_ragged(splits, values)


def _unchecked_ragged(splits: list[tf.Tensor], values: tf.Tensor) -> tf.Tensor:
    """A variant with splits that TensorFlow would not encode. It does not check serialized variants."""
    proto = tensor_pb2.TensorProto(dtype=tf.variant.as_datatype_enum)
    proto.tensor_shape.SetInParent()
    variant = proto.variant_val.add(type_name="RaggedTensorVariant")
    for part in (*splits, values):
        kind = part.dtype
        stored = tf.bitcast(part, kind.name[1:]) if kind.name in QUANTIZED else part
        variant.tensors.add().ParseFromString(tf.io.serialize_tensor(stored).numpy())
        variant.tensors[-1].dtype = kind.as_datatype_enum
    return tf.io.parse_tensor(proto.SerializeToString(), tf.variant)


@functools.cache
def _missing(count: int) -> tf.Tensor:
    """Variants that hold nothing."""
    proto = tensor_pb2.TensorProto(dtype=tf.variant.as_datatype_enum)
    proto.tensor_shape.dim.add(size=count)
    return tf.io.parse_tensor(proto.SerializeToString(), tf.variant)


def _any_from_tf(value: Any, case: dict[str, Any]) -> Any:
    if isinstance(value, list):
        return [from_tf(item) for item in value]
    return _variant_from_tf(value, case) if value.dtype == tf.variant else from_tf(value)


def _variant_from_tf(value: tf.Tensor, case: dict[str, Any]) -> dict[str, Any]:
    """The result of RaggedTensorToVariant. Each element is decoded by itself, so that it comes out unchanged."""
    splits = case["inputs"]["rt_nested_splits"]
    rank = max(len(splits) - case["attrs"]["batched_input"], 0)
    elements = []
    for element in tf.unstack(tf.reshape(value, [-1])):
        parts = tf.raw_ops.RaggedTensorFromVariant(
            encoded_ragged=element, input_ragged_rank=rank, output_ragged_rank=rank,
            Tvalues=tf.as_dtype(case["inputs"]["rt_dense_values"]["dtype"]),
            Tsplits=tf.as_dtype(splits[0]["dtype"] if splits else "int64"),
        )
        elements.append({"nested_splits": [from_tf(s) for s in parts[0]], "values": from_tf(parts[1])})
    return {"dtype": "variant", "shape": value.shape.as_list(), "elements": elements}


def from_tf(value: tf.Tensor) -> dict[str, Any]:
    name = _TYPE_NAMES.get(value.dtype.name, value.dtype.name)
    if name in QUANTIZED:
        value = tf.bitcast(value, tf.as_dtype(name[1:]))
    array = np.array(value.numpy(), object if name == "string" else None)
    return encode(Tensor(name, array))


def prepare() -> None:
    """Makes the settings that must precede the first case."""
    tf.config.threading.set_inter_op_parallelism_threads(1)
    tf.config.threading.set_intra_op_parallelism_threads(1)
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))


def main() -> None:
    prepare()
    for line in sys.stdin:
        print(json.dumps(run(json.loads(line)), separators=(",", ":")), flush=True)


if __name__ == "__main__":
    main()
