"""TensorFlow: the same operators, called eagerly."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import numpy as np
import tensorflow as tf

from ..workload import ONE_PIECE
from . import Inputs, Way, bringer


def about() -> dict[str, str]:
    return {"tensorflow": tf.__version__, "numpy": np.__version__}


def use_threads(count: int) -> None:
    tf.config.threading.set_intra_op_parallelism_threads(count)
    tf.config.threading.set_inter_op_parallelism_threads(count)


def _operator(name: str) -> Callable[[Inputs], Callable[[], Any]]:
    def prepare(inputs: Inputs) -> Callable[[], Any]:
        operator = getattr(tf.raw_ops, name)
        operands = {key: tf.constant(value) for key, value in inputs.items() if key != "size"}
        return lambda: operator(**operands)

    return prepare


def _ragged(inputs: Inputs) -> Callable[[], Any]:
    splits = tf.constant(inputs["row_splits"])
    encoded = tf.raw_ops.RaggedTensorToVariant(
        rt_nested_splits=[splits], rt_dense_values=tf.constant(inputs["values"]), batched_input=True
    )
    if len(inputs["missing"]):
        pieces = tf.unstack(encoded)
        for number in inputs["missing"]:
            pieces[number] = _missing()
        encoded = tf.stack(pieces)
    shape = tf.constant(inputs["values"].shape, tf.int32)
    operator = tf.raw_ops.RaggedTensorToVariantGradient
    return lambda: operator(
        encoded_ragged_grad=encoded, row_splits=splits, dense_values_shape=shape, Tvalues=tf.float32
    )


def _missing() -> tf.Tensor:
    """A variant without a value, as a gradient leaves it where it writes nothing."""
    one = tf.raw_ops.RaggedTensorToVariant(rt_nested_splits=[], rt_dense_values=tf.zeros([1]), batched_input=False)
    return tf.raw_ops.StridedSliceGrad(shape=[1], begin=[0], end=[0], strides=[1], dy=tf.stack([one])[:0])[0]


def _unbatch(inputs: Inputs) -> Callable[[int], Any]:
    return bringer(inputs, tf.raw_ops.UnbatchGrad, tf.constant)


def _arrays(result: Any) -> list[np.ndarray]:
    return [array.numpy() for array in (result if isinstance(result, tuple) else (result,))]


_OPERATORS = ("SparseSegmentMeanGradV2", "SparseFillEmptyRowsGrad", "SparseSliceGrad")

WAYS = {
    **{name: [Way(f"raw_ops.{name}", _operator(name), _arrays)] for name in _OPERATORS},
    "RaggedTensorToVariantGradient": [Way("raw_ops.RaggedTensorToVariantGradient", _ragged, _arrays)],
    "UnbatchGrad": [Way("raw_ops.UnbatchGrad", _unbatch, _arrays)],
    ONE_PIECE: [Way("raw_ops.UnbatchGrad", lambda inputs: partial(_unbatch(inputs), 0), _arrays)],
}
