"""Calls of handlers, and the checks that all functions share."""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import export

from ..settings import accumulation_or_current
from ._load import HANDLERS
from ._varying import alike, shaped_like

MOST = 2**31 - 1  # segments and rows that the engine counts
REPORT = jax.ShapeDtypeStruct((12,), np.uint32)  # six numbers of 64 bits (raggrad/ops/padded.h)

Shaped = jax.ShapeDtypeStruct
HALVES_AND_SINGLES = ("float32", "bfloat16", "float16")
FLOATS = (*HALVES_AND_SINGLES, "float64")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
OTHERS = ("bool", "complex64", "complex128")


class Settings(NamedTuple):
    """All that decides about a call but the arrays. Hashable, so that JAX compiles once for equal ones."""

    function: str  # that the user called
    combiner: str = ""
    num_segments: int = 0
    num_rows: int = 0
    size: int = 0
    sorted_ids: bool = False
    accumulation: str | None = None


def operands(*arrays: jax.Array | None) -> list[jax.Array]:
    """Those that are not None."""
    return [array for array in arrays if array is not None]


def call(
    name: str,
    results: Any,
    *arguments: Any,
    settings: Settings,
    attributes: Mapping[str, Any] | None = None,
    aliases: dict[int, int] | None = None,
) -> Any:
    """The results of a handler of doors/jax/handlers.cc."""
    arrays = alike(*arguments)
    shapes = jax.tree.map(lambda result: shaped_like(result, arrays[0]), results)
    call_handler = jax.ffi.ffi_call(name, shapes, vmap_method="sequential", input_output_aliases=aliases)
    return call_handler(
        *arrays, function=settings.function, accumulation=settings.accumulation or "", **(attributes or {})
    )


def call_in_command_buffers(name: str, results: Sequence[Any], *arguments: Any, scratch: Any, **others: Any) -> Any:
    """The same for a handler whose last result is so many bytes of scratch (_scratch.py). There are several results."""
    return call(name, (*results, Shaped((scratch,), np.uint8)), *arguments, **others)[:-1]


def on_platform(cpu: Callable[..., Any], cuda: Callable[..., Any], *arguments: Any) -> Any:
    """cpu(*arguments) or cuda(*arguments). JAX compiles only the one that the platform needs."""
    return jax.lax.platform_dependent(*arguments, cpu=cpu, cuda=cuda)


def differentiable(
    function: Callable[..., Any], arrays: int, forward: Callable[..., Any], backward: Callable[..., Any]
) -> Callable[..., Any]:
    """The function, compiled, with the derivative that forward and backward are (jax.custom_vjp).

    Its first arguments are `arrays` arrays, the last one are the Settings.
    """
    with_derivative = jax.custom_vjp(function, nondiff_argnums=(arrays,))
    with_derivative.defvjp(forward, backward)
    return jax.jit(with_derivative, static_argnums=arrays)


def export_checks() -> list[export.DisabledSafetyCheck]:
    """The `disabled_checks` of jax.export.export() for a function that calls raggrad.jax.

    JAX promises that exported code runs for years. It cannot promise that for the handlers of a library, so they are
    named one by one. Import raggrad.jax before the exported function is called.

    >>> import jax, jax.numpy as jnp, raggrad.jax as rj
    >>> from jax import export
    >>> ids = jnp.array([1, 0, 1])
    >>> function = jax.jit(lambda data: rj.segment_sum(data, ids, 2))
    >>> exported = export.export(function, disabled_checks=rj.export_checks())(jnp.ones((3, 1)))
    >>> exported.call(jnp.ones((3, 1))).tolist()
    [[1.0], [2.0]]
    """
    return [export.DisabledSafetyCheck.custom_call(name) for name in HANDLERS]


def exportable(kind: type[Any]) -> type[Any]:
    """Lets jax.export serialize functions with arguments or results of this dataclass, whose meta fields are shapes."""
    return export.register_pytree_node_serialization(
        kind,
        serialized_name=f"raggrad.jax.{kind.__name__}",
        serialize_auxdata=lambda shapes: json.dumps(shapes).encode(),
        deserialize_auxdata=lambda text: tuple(map(tuple, json.loads(text))),
    )


def mode_of(function: str, accumulation: str | None) -> str | None:
    """The word that the caller wrote, or that of raggrad.accumulation() when the function is traced."""
    return accumulation_or_current(accumulation, f"raggrad.jax.{function}")


def fail(function: str, text: str, kind: type[Exception] = ValueError) -> Any:
    raise kind(f"raggrad.jax.{function}: {text}")


def array_of(function: str, argument: str, value: Any, types: Sequence[str] = ()) -> jax.Array:
    """The argument as an array, of one of these types if there are any."""
    try:
        array = jnp.asarray(value)
    except (TypeError, ValueError, OverflowError) as error:
        fail(function, f"{argument}: expected an array, got {type(value).__name__}: {error}", TypeError)
    if types and array.dtype.name not in types:
        fail(function, f"{argument}: expected {', '.join(types)}, got {array.dtype.name}", TypeError)
    return array


def real_of(function: str, argument: str, value: Any) -> jax.Array:
    """An array of real numbers of any type."""
    array = array_of(function, argument, value)
    if not any(jnp.issubdtype(array.dtype, kind) for kind in (jnp.floating, jnp.integer, jnp.bool_)):
        fail(function, f"{argument}: expected real numbers, got {array.dtype.name}", TypeError)
    return array


def integers_of(function: str, argument: str, value: Any, types: Sequence[str] = ()) -> jax.Array:
    """As array_of. Integers of other frameworks that JAX has no type for end at the limits of its own.

    JAX would drop their upper halves, and numbers out of range could get into it.
    """
    if _is_on_host(value):
        value = np.asarray(value)
        kind = jax.dtypes.canonicalize_dtype(value.dtype) if value.dtype.kind in "iu" else value.dtype
        if kind != value.dtype:
            limits = np.iinfo(kind)
            value = np.clip(value, limits.min, limits.max).astype(kind)
    return array_of(function, argument, value, types)


def _is_on_host(value: Any) -> bool:
    """Whether it is an array of another framework in host memory."""
    others = hasattr(value, "__array__") and not isinstance(value, jax.Array)
    return others and not hasattr(value, "__cuda_array_interface__")


def number_of(function: str, argument: str, value: Any) -> jax.Array:
    """A whole number, int32, which may be traced. Others end at the limits of int32."""
    number = integers_of(function, argument, value, INTEGERS)
    if number.ndim != 0:
        fail(function, f"{argument}: expected a number, got shape {number.shape}")
    if number.dtype.name in ("int64", "uint64", "uint32"):
        number = number.clip(min=-MOST if number.dtype.name == "int64" else 0, max=MOST)
    return number.astype(np.int32)


def rows_of(function: str, argument: str, value: Any, types: Sequence[str] = FLOATS) -> jax.Array:
    """An array of at least one dimension, of one of these types if there are any."""
    rows = array_of(function, argument, value, types)
    if rows.ndim == 0:
        fail(function, f"{argument}: expected at least 1 dimension, got a scalar")
    return rows


def ids_of(function: str, argument: str, ids: Any, count: int | None = None) -> jax.Array:
    """Ids as int32 or int64; other types of integers are converted."""
    array = integers_of(function, argument, ids)
    if not jnp.issubdtype(array.dtype, jnp.integer):
        if array.size:
            fail(function, f"{argument}: expected integers, got {array.dtype.name}", TypeError)
        array = array.astype(np.int32)  # a list without elements says nothing about its type
    if array.ndim != 1:
        fail(function, f"{argument}: expected 1 dimension, got shape {array.shape}")
    if count is not None and array.shape[0] != count:
        fail(function, f"{argument}: expected {count} ids, one for every row or id, got {array.shape[0]}")
    if array.dtype.name in ("int32", "int64"):
        return array
    return array.astype(jnp.int64 if array.dtype.name == "uint64" else np.int32)


def size_of(function: str, argument: str, number: Any) -> int:
    """A number that is known when the function is traced."""
    try:
        size = operator.index(number)
    except TypeError:
        fail(function, f"{argument}: expected an int, known when the function is traced, got {number!r}", TypeError)
    if not 0 <= size <= MOST:
        fail(function, f"{argument}: expected 0 to {MOST}, got {size}")
    return size


def dimension_of(function: str, argument: str, number: Any) -> int:
    """The same for a dimension of a result, which may be a symbolic one of jax.export."""
    return number if export.is_symbolic_dim(number) else size_of(function, argument, number)


def flag_of(function: str, argument: str, value: Any) -> bool:
    try:
        return bool(value)
    except (TypeError, ValueError):
        text = f"{argument}: expected True or False, known when the function is traced, got {value!r}"
        return fail(function, text, TypeError)


def scalar_of(function: str, argument: str, value: Any, like: jax.Array) -> jax.Array:
    """A scalar of the type that `like` has, of a value that this type can hold."""
    scalar = array_of(function, argument, value)
    if scalar.ndim:
        fail(function, f"{argument}: expected a scalar, got shape {scalar.shape}")
    for kind in (jnp.inexact, jnp.complexfloating):
        if jnp.issubdtype(scalar.dtype, kind) and not jnp.issubdtype(like.dtype, kind):
            fail(function, f"{argument}: expected {like.dtype.name}, got {scalar.dtype.name}", TypeError)
    try:
        return jnp.asarray(value, like.dtype)
    except OverflowError as error:
        return fail(function, f"{argument}: expected {like.dtype.name}, got {value!r}: {error}")


def check_word(function: str, argument: str, word: str) -> None:
    if not isinstance(word, str) or word not in ("sum", "mean", "sqrtn"):
        fail(function, f"{argument}: expected 'sum', 'mean' or 'sqrtn', got {word!r}")


def count_of(report: jax.Array) -> jax.Array:
    """How many rows or entries there are. More than there is room for means that the result is no good."""
    return jax.lax.bitcast_convert_type(report[0], np.int32)


def poisoned(values: jax.Array, report: jax.Array, count: jax.Array) -> jax.Array:
    """NaN everywhere if the operands had a fault or there was too little room: on a GPU nothing can be raised."""
    if not jnp.issubdtype(values.dtype, jnp.floating):
        return values
    full = np.uint32(2**32 - 1)
    bad = (report[2] != full) | (report[3] != full) | (count > values.shape[0])
    return jnp.where(bad, jnp.array(jnp.nan, values.dtype), values)
