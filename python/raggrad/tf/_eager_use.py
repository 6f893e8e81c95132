"""Finds operators that were called eagerly before raggrad's kernels were there.

TensorFlow cannot be asked which kernels it keeps. So each operator is called with tiny operands, once for every
combination of its types: a call that does not reach raggrad went to a kernel that TensorFlow had made before.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

try:  # TensorFlow promises nothing about these; without them, no call is found
    from tensorflow.python.eager import context
    from tensorflow.python.framework import kernels, op_def_registry
except ImportError:
    context = None

from . import on_demand
from ._load import calls, operators

_TINY: dict[str, dict[str, Any]] = {
    "SparseSegment": {
        "data": [[0]], "grad": [[0]], "indices": [0], "segment_ids": [0], "num_segments": 1, "output_dim0": 1,
        "dense_output_dim0": 1,
    },
    "SparseFillEmptyRows": {
        "indices": [[0]], "values": [0], "dense_shape": [1], "default_value": 0, "reverse_index_map": [0],
        "grad_values": [0],
    },
    "RaggedFillEmptyRows": {
        "value_rowids": [0], "values": [0], "nrows": 1, "default_value": 0, "reverse_index_map": [0],
        "grad_values": [0],
    },
    "SparseSlice": {
        "indices": [[0]], "values": [0], "shape": [1], "start": [0], "size": [1], "backprop_val_grad": [0],
        "input_indices": [[0]], "input_start": [0], "output_indices": [[0]],
    },
}  # fmt: skip


def find() -> dict[str, list[str]]:
    """The operators, each with the types whose calls TensorFlow's kernels answer. Empty if TensorFlow has not run."""
    if context is None or context.context_safe() is None or not context.context()._initialized:
        return {}
    found: dict[str, list[str]] = {}
    with tf.init_scope():
        for operator in operators():
            tiny = next(values for prefix, values in _TINY.items() if operator.startswith(prefix))
            for types, arguments in _calls(operator, tiny):
                if _is_kept(operator, arguments, calls):
                    found.setdefault(operator, []).append(types)
        if on_demand.loaded():
            for operator, types, arguments in _variant_calls():
                if _is_kept(operator, arguments, on_demand.calls):
                    found.setdefault(operator, []).append(types)
    return {operator: list(dict.fromkeys(types)) for operator, types in found.items()}


def _is_kept(operator: str, arguments: dict[str, Any], count: Callable[[str], int]) -> bool:
    before = count(operator)
    getattr(tf.raw_ops, operator)(**arguments)
    return count(operator) == before


def _calls(operator: str, tiny: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Names of types, and arguments with which TensorFlow makes or takes the kernel for them."""
    definition = op_def_registry.get(operator)
    ours = [kernel for kernel in kernels.get_registered_kernels_for_op(operator).kernel if kernel.priority == 1]
    choices: dict[str, list[Any]] = {}
    for attribute in definition.attr:
        if attribute.name == "T":
            choices["T"] = [tf.as_dtype(kernel.constraint[0].allowed_values.list.type[0]) for kernel in ours]
        elif attribute.type == "type":
            choices[attribute.name] = [tf.as_dtype(number) for number in attribute.allowed_values.list.type]
        else:
            choices[attribute.name] = [False, True]
    for chosen in itertools.product(*choices.values()):
        attributes = dict(zip(choices, chosen, strict=True))
        arguments = {
            operand.name: _constant(tiny[operand.name], attributes.get(operand.type_attr) or tf.as_dtype(operand.type))
            for operand in definition.input_arg
        }
        flags = {name: value for name, value in attributes.items() if isinstance(value, bool)}
        types = " ".join(value.name for value in chosen if isinstance(value, tf.DType))
        yield types, arguments | flags


def _variant_calls() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Operators, names of types, and arguments: up to three levels of splits, since each number has its own kernel."""
    kernels_of_values = kernels.get_registered_kernels_for_op("RaggedTensorToVariantGradient").kernel
    ours = next(kernel for kernel in kernels_of_values if kernel.priority == 1)
    value_types = [tf.as_dtype(number) for number in ours.constraint[0].allowed_values.list.type]
    for dtype, splits_dtype in itertools.product(value_types, (tf.int32, tf.int64)):
        types = f"{dtype.name} {splits_dtype.name}"
        values, splits = _constant([0], dtype), tf.constant([0, 1], splits_dtype)
        array = None
        for levels, batched in itertools.product((1, 2, 3), (False, True)):
            cut = {"rt_nested_splits": [splits] * levels, "rt_dense_values": values, "batched_input": batched}
            yield "RaggedTensorToVariant", types, cut
            array = tf.raw_ops.RaggedTensorToVariant(**cut)
            for rank in (levels - batched, -1):
                join = {"encoded_ragged": array, "input_ragged_rank": rank, "output_ragged_rank": levels}
                yield "RaggedTensorFromVariant", types, join | {"Tvalues": dtype, "Tsplits": splits_dtype}
        yield "RaggedTensorToVariantGradient", types, {
            "encoded_ragged_grad": array, "row_splits": splits, "dense_values_shape": [1], "Tvalues": dtype,
        }  # fmt: skip


def _constant(value: Any, dtype: tf.DType) -> tf.Tensor:
    if dtype == tf.string:
        return tf.constant(np.full(np.shape(value), b"", object), tf.string)
    return tf.constant(np.array(value).astype(dtype.as_numpy_dtype))
