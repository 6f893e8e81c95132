"""Operands of lookups: ids in any ragged or sparse form, weights of the same form, the table."""

from __future__ import annotations

import operator
from typing import Any, NamedTuple

import numpy as np

from .. import _arrays
from .._namespaces import Namespace
from .._recorded import warn_if_recorded
from ..errors import InvalidArgumentError
from ..ragged import Ragged
from ..ragged.arrays import parts_where_they_lie
from .checks import integers, up_to

_COMBINERS = ("sum", "mean", "sqrtn")
_FLOATS = ("float16", "bfloat16", "float32", "float64")


class Given(NamedTuple):
    """An argument and the name under which it was passed."""

    name: str
    value: Any


class Ids(NamedTuple):
    """The ids of a lookup: the row of the table and the example of each, and its weight. `xp` computes with them."""

    name: str
    ids: Any
    examples: Any
    num_examples: int
    weights: Any | None
    xp: Namespace


def given(op: str, name: str, value: Any, other_name: str, other: Any) -> Given:
    """The argument that was passed under one of its two names."""
    if other is None:
        return Given(name, value)
    if value is not None:
        raise InvalidArgumentError(
            f"{op}: {other_name} is another name of {name} [{other_name}: expected only one of them, got both]"
        )
    return Given(other_name, other)


def floats(op: str, name: str, array: Any) -> Any:
    """Floats where they lie: in NumPy if that is host memory, else as an array of their framework."""
    xp = _arrays.of(array)
    numbers = _arrays.values(op, name, array, xp, "float32")
    if xp.dtype(numbers) not in _FLOATS:
        raise InvalidArgumentError(
            f"{op}: {name} must be floats [{name}: expected half, bfloat16, float32 or float64, "
            f"got {xp.dtype(numbers)}]"
        )
    return numbers


def table_of(op: str, params: Given) -> Any:
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
        xp = _arrays.of(ids.value.values)
        with xp:
            places, shape, numbers = _read_sparse(op, ids, xp)
            examples, num_examples = xp.contiguous(places[:, 0]), int(shape[0])
    else:
        places, numbers = _read_ragged(op, ids, "int64")
        xp = _arrays.of(numbers)
        with xp:
            numbers = integers(op, f"{ids.name}.values", numbers, 1, xp)
            splits = xp.asarray(places) if isinstance(places, np.ndarray) else places
            examples, num_examples = xp.rows_of_splits(splits, len(numbers)), len(places) - 1
    found = None if weights.value is None else _read_weights(op, weights, ids.name, places, numbers)
    return Ids(ids.name, numbers, examples, num_examples, found, xp), combiner


def _is_sparse(ids: Any) -> bool:
    return all(hasattr(ids, part) for part in ("indices", "values", "dense_shape"))


def _read_sparse(op: str, ids: Given, xp: Namespace) -> tuple[Any, np.ndarray, Any]:
    name, value = ids
    sizes = _arrays.of(value.dense_shape)  # sizes may be in host memory
    shape = sizes.host(integers(op, f"{name}.dense_shape", value.dense_shape, 1, sizes))
    _arrays.check_one_device(op, f"{name}.values", value.values, **{f"{name}.indices": value.indices})
    indices = integers(op, f"{name}.indices", value.indices, 2, xp)
    numbers = integers(op, f"{name}.values", value.values, 1, xp)
    if len(shape) != 2 or (shape < 0).any():
        raise InvalidArgumentError(
            f"{op}: {name} must be a matrix [{name}.dense_shape: expected two sizes >= 0, got {shape}]"
        )
    if indices.shape != (len(numbers), 2):
        raise InvalidArgumentError(
            f"{op}: every id needs a place [{name}.indices: expected shape {(len(numbers), 2)}, "
            f"got {tuple(indices.shape)}]"
        )
    return indices, shape, numbers


def _read_ragged(op: str, ids: Given, literals: str) -> tuple[Any, Any]:
    """Splits and values of a ragged array of one level."""
    ragged = _as_ragged(op, ids, literals)
    if ragged.ragged_rank != 1:
        raise InvalidArgumentError(
            f"{op}: {ids.name} must be a matrix [{ids.name}: expected one level of splits, got {ragged.ragged_rank}]"
        )
    (splits,), values = parts_where_they_lie(ragged.nested_splits, ragged.values, f"{op}: {ids.name}")
    if isinstance(ragged.values, (list, tuple)) and not len(values):
        values = values.astype(literals)
    return splits, values


def _as_ragged(op: str, ids: Given, literals: str) -> Ragged:
    """Converts anything that a Ragged.from_... takes."""
    value = ids.value
    if isinstance(value, Ragged):
        return value
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


def _read_weights(op: str, weights: Given, ids: str, places: Any, of: Any) -> Any:
    """Reads one weight for each id: a vector, or the form of the ids with the same places."""
    name, value = weights
    if _is_sparse(value):
        _arrays.check_one_device(op, f"{ids}.indices", places, **{f"{name}.indices": value.indices})
        indices = integers(op, f"{name}.indices", value.indices, 2, _arrays.of(places))
        _check_places(op, f"{name}.indices", f"{ids}.indices", indices, places)
        value = value.values
    elif _is_ragged(value):
        ragged = _as_ragged(op, weights, "float32")
        if ragged.ragged_rank == 0:  # a vector of Arrow's
            value = ragged.values
        else:
            splits, value = _read_ragged(op, Given(name, ragged), "float32")
            _check_places(op, f"{name}.nested_splits[0]", f"the splits of {ids}", splits, places)
    _arrays.check_one_device(op, ids, of, **{name: value})
    numbers = floats(op, name, value)
    if numbers.shape != of.shape:
        raise InvalidArgumentError(
            f"{op}: every id needs a weight [{name}: expected shape {tuple(of.shape)}, got {tuple(numbers.shape)}]"
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


def _check_places(op: str, name: str, expected_name: str, got: Any, expected: Any) -> None:
    if got.shape != expected.shape:
        difference = f"shape {tuple(expected.shape)}, as {expected_name} has, got {tuple(got.shape)}"
    else:
        with _arrays.of(got, expected) as xp:
            got, expected = (xp.asarray(x) if isinstance(x, np.ndarray) else x for x in (got, expected))
            differs = got != expected
            if not differs.any():
                return
            place = xp.first(differs.reshape(len(got), -1).any(axis=1))
            wanted, found = xp.host(expected[place]), xp.host(got[place])
            difference = f"{wanted} at [{place}], as {expected_name} has, got {found}"
    raise InvalidArgumentError(f"{op}: every id needs a weight at its place [{name}: expected {difference}]")


def _row_error(op: str, read: Ids, outside: Any, num_rows: int) -> InvalidArgumentError:
    place = read.xp.first(outside)
    return InvalidArgumentError(
        f"{op}: an id is out of range [{read.name}[{place}]: expected {up_to(num_rows, 'the table has no rows')}, "
        f"got {int(read.ids[place])}]"
    )


def _example_error(op: str, read: Ids, misplaced: Any) -> InvalidArgumentError:
    place = read.xp.first(misplaced)
    least, last = int(read.examples[place - 1]) if place else 0, read.num_examples - 1
    expected = f"{least} to {last}" if read.num_examples else "none, as there are no examples"
    return InvalidArgumentError(
        f"{op}: ids must be in the order of their examples [{read.name}.indices[{place}, 0]: expected {expected}, "
        f"got {int(read.examples[place])}]"
    )


def _misplaced(read: Ids) -> Any:
    """Where the examples do not ascend from 0 to their number."""
    examples = read.examples
    before = read.xp.concatenate([examples[:1] * 0, examples[:-1]])
    return (examples < before) | read.xp.reaches(examples, read.num_examples)


def check(op: str, read: Ids, num_rows: int) -> None:
    """Checks the ids before rows are read by them. The operators check them, too, but cannot name the argument."""
    outside, misplaced = (read.ids < 0) | read.xp.reaches(read.ids, num_rows), _misplaced(read)
    any_outside, any_misplaced = read.xp.facts(outside.any(), misplaced.any())
    if any_outside:
        raise _row_error(op, read, outside, num_rows)
    if any_misplaced:
        raise _example_error(op, read, misplaced)


def check_kept(op: str, read: Ids, keep: Any, num_rows: int) -> None:
    """Checks the ids of which only some are kept."""
    outside, misplaced = keep & read.xp.reaches(read.ids, num_rows), _misplaced(read)
    any_outside, any_misplaced = read.xp.facts(outside.any(), misplaced.any())
    if any_misplaced:
        raise _example_error(op, read, misplaced)
    if any_outside:
        raise _row_error(op, read, outside, num_rows)


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
