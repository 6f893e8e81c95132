"""Operands of lookups: ids in any ragged or sparse form, weights of the same form, the table."""

from __future__ import annotations

import operator
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from .._recorded import warn_if_recorded
from ..errors import InvalidArgumentError
from ..ragged import Ragged
from ..ragged.arrays import numpy_of, numpy_parts
from .checks import integers, up_to

_COMBINERS = ("sum", "mean", "sqrtn")
_FLOATS = (np.float16, ml_dtypes.bfloat16, np.float32, np.float64)


class Given(NamedTuple):
    """An argument and the name under which it was passed."""

    name: str
    value: Any


class Ids(NamedTuple):
    """The ids of a lookup: the row of the table and the example of each, and its weight."""

    name: str
    ids: np.ndarray
    examples: np.ndarray
    num_examples: int
    weights: np.ndarray | None


def given(op: str, name: str, value: Any, other_name: str, other: Any) -> Given:
    """The argument that was passed under one of its two names."""
    if other is None:
        return Given(name, value)
    if value is not None:
        raise InvalidArgumentError(
            f"{op}: {other_name} is another name of {name} [{other_name}: expected only one of them, got both]"
        )
    return Given(other_name, other)


def floats(op: str, name: str, array: Any) -> np.ndarray:
    numbers = numpy_of(array, op, name, "float32")
    if numbers.dtype not in _FLOATS:
        raise InvalidArgumentError(
            f"{op}: {name} must be floats [{name}: expected half, bfloat16, float32 or float64, got {numbers.dtype}]"
        )
    return numbers


def table_of(op: str, params: Given) -> np.ndarray:
    table = floats(op, params.name, params.value)
    if table.ndim == 0:
        raise InvalidArgumentError(
            f"{op}: {params.name} must have rows [{params.name}: expected at least rank 1, got a scalar]"
        )
    return table


def read(op: str, ids: Given, weights: Given, combiner: str | None) -> tuple[Ids, str]:
    """Reads the ids with their weights, and checks the combiner."""
    combiner = "mean" if combiner is None else combiner
    if combiner not in _COMBINERS:
        raise InvalidArgumentError(f"{op}: no such combiner [combiner: expected one of {_COMBINERS}, got {combiner!r}]")
    if _is_sparse(ids.value):
        places, shape, numbers = _read_sparse(op, ids)
        examples, num_examples = np.ascontiguousarray(places[:, 0]), int(shape[0])
    else:
        places, numbers = _read_ragged(op, ids, "int64")
        numbers = integers(op, f"{ids.name}.values", numbers, 1)
        lengths = np.diff(places)
        examples, num_examples = np.repeat(np.arange(len(lengths)), lengths), len(lengths)
    found = None if weights.value is None else _read_weights(op, weights, ids.name, places, numbers.shape)
    return Ids(ids.name, numbers, examples, num_examples, found), combiner


def _is_sparse(ids: Any) -> bool:
    return all(hasattr(ids, part) for part in ("indices", "values", "dense_shape"))


def _read_sparse(op: str, ids: Given) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    name, value = ids
    shape = integers(op, f"{name}.dense_shape", value.dense_shape, 1)
    indices = integers(op, f"{name}.indices", value.indices, 2)
    numbers = integers(op, f"{name}.values", value.values, 1)
    if len(shape) != 2 or (shape < 0).any():
        raise InvalidArgumentError(
            f"{op}: {name} must be a matrix [{name}.dense_shape: expected two sizes >= 0, got {shape}]"
        )
    if indices.shape != (len(numbers), 2):
        raise InvalidArgumentError(
            f"{op}: every id needs a place [{name}.indices: expected shape {(len(numbers), 2)}, got {indices.shape}]"
        )
    return indices, shape, numbers


def _read_ragged(op: str, ids: Given, literals: str) -> tuple[np.ndarray, np.ndarray]:
    """Splits and values of a ragged array of one level."""
    ragged = ids.value if isinstance(ids.value, Ragged) else _as_ragged(op, ids, literals)
    if ragged.ragged_rank != 1:
        raise InvalidArgumentError(
            f"{op}: {ids.name} must be a matrix [{ids.name}: expected one level of splits, got {ragged.ragged_rank}]"
        )
    (splits,), values = numpy_parts(ragged.nested_splits, ragged.values, f"{op}: {ids.name}")
    if isinstance(ragged.values, (list, tuple)) and not len(values):
        values = values.astype(literals)
    return splits, values


def _as_ragged(op: str, ids: Given, literals: str) -> Ragged:
    """Converts anything that a Ragged.from_... takes."""
    value = ids.value
    package = type(value).__module__.partition(".")[0]
    if isinstance(value, (list, tuple)):
        deep = any(isinstance(row, (list, tuple)) and any(map(_has_length, row)) for row in value)
        return Ragged.from_lists(value) if deep else Ragged.from_lists(value, literals, ragged_rank=1)
    if package == "torch" and value.is_nested:
        return Ragged.from_torch(value)
    if package == "tensorflow" and hasattr(value, "nested_row_splits"):
        return Ragged.from_tf(value)
    if package == "awkward":
        return Ragged.from_awkward(value)
    if package == "scipy":
        return Ragged.from_scipy(value)
    if hasattr(value, "__arrow_c_array__") or hasattr(value, "__arrow_c_stream__"):
        return Ragged.from_arrow(value)
    raise InvalidArgumentError(
        f"{op}: {ids.name} must say which ids each example has [{ids.name}: expected lists of ids, a raggrad.Ragged, "
        "what Ragged.from_... takes (torch, TensorFlow, Arrow, awkward, SciPy), or anything with indices, values and "
        f"dense_shape (tf.SparseTensor), got {type(value).__name__}]"
    )


def _has_length(item: Any) -> bool:
    return isinstance(item, (list, tuple)) or bool(getattr(item, "shape", ()))


def _read_weights(op: str, weights: Given, ids: str, places: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Reads one weight for each id: a vector, or the form of the ids with the same places."""
    name, value = weights
    if _is_sparse(value):
        indices = integers(op, f"{name}.indices", value.indices, 2)
        _check_places(op, f"{name}.indices", f"{ids}.indices", indices, places)
        value = value.values
    elif _is_ragged(value):
        splits, value = _read_ragged(op, weights, "float32")
        _check_places(op, f"{name}.nested_splits[0]", f"the splits of {ids}", splits, places)
    numbers = floats(op, name, value)
    if numbers.shape != shape:
        raise InvalidArgumentError(
            f"{op}: every id needs a weight [{name}: expected shape {shape}, got {numbers.shape}]"
        )
    return numbers


def warn_of_weights(op: str, weights: Given) -> None:
    """Warns that no gradient flows back to the weights, if a framework records them."""
    inside = isinstance(weights.value, Ragged) or _is_sparse(weights.value)
    warn_if_recorded(weights.value.values if inside else weights.value, op, weights.name)


def _is_ragged(weights: Any) -> bool:
    """Whether weights are grouped by example."""
    if isinstance(weights, (list, tuple)):
        return any(map(_has_length, weights))
    forms = ("nested_row_splits", "__arrow_c_array__", "__arrow_c_stream__")
    return (
        isinstance(weights, Ragged)
        or bool(getattr(weights, "is_nested", False))
        or type(weights).__module__.partition(".")[0] in ("awkward", "scipy")
        or any(hasattr(weights, form) for form in forms)
    )


def _check_places(op: str, name: str, expected_name: str, got: np.ndarray, expected: np.ndarray) -> None:
    if got.shape != expected.shape:
        difference = f"shape {expected.shape}, as {expected_name} has, got {got.shape}"
    elif (got != expected).any():
        place = int((got != expected).reshape(len(got), -1).any(axis=1).argmax())
        difference = f"{expected[place]} at [{place}], as {expected_name} has, got {got[place]}"
    else:
        return
    raise InvalidArgumentError(f"{op}: every id needs a weight at its place [{name}: expected {difference}]")


def check_rows(op: str, read: Ids, bad: np.ndarray, num_rows: int) -> None:
    if bad.any():
        place = int(bad.argmax())
        raise InvalidArgumentError(
            f"{op}: an id is out of range [{read.name}[{place}]: expected {up_to(num_rows, 'the table has no rows')}, "
            f"got {read.ids[place]}]"
        )


def check_examples(op: str, read: Ids) -> None:
    before = np.concatenate([[0], read.examples])[:-1]
    bad = (read.examples < before) | (read.examples >= read.num_examples)
    if bad.any():
        place = int(bad.argmax())
        last = read.num_examples - 1
        expected = f"{before[place]} to {last}" if read.num_examples else "none, as there are no examples"
        raise InvalidArgumentError(
            f"{op}: ids must be in the order of their examples [{read.name}.indices[{place}, 0]: expected {expected}, "
            f"got {read.examples[place]}]"
        )


def check(op: str, read: Ids, num_rows: int) -> None:
    """Checks the ids before NumPy reads rows by them. The operators check them, too, but cannot name the argument."""
    check_rows(op, read, (read.ids < 0) | (read.ids >= num_rows), num_rows)
    check_examples(op, read)


def default_row(op: str, default_id: Any, num_rows: int) -> int:
    try:
        row = operator.index(default_id)
    except TypeError:
        row = -1
    if not 0 <= row < num_rows:
        raise InvalidArgumentError(
            f"{op}: default_id is out of range [default_id: expected {up_to(num_rows, 'the table has no rows')}, "
            f"got {default_id!r}]"
        )
    return row
