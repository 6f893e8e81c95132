"""Optimizer steps on rows of a table: SGD, Adagrad and Adam, and apply_rows, which makes one step.

The formulas are those of raggrad.optimizers. An optimizer holds numbers only; its state is a pytree that `init` makes,
and that apply_rows takes and returns, as in optax.
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import export

from ._calls import (
    HALVES_AND_SINGLES,
    Settings,
    Shaped,
    array_of,
    call,
    differentiable,
    fail,
    ids_of,
    number_of,
    on_platform,
    real_of,
    rows_of,
)
from ._varying import alike
from .rows import Rows


@dataclass(frozen=True)
class SGD:
    """w -= learning_rate * g. `learning_rate` is a float or, for a schedule, a scalar array.

    apply_rows shows a step. There is no state:

    >>> import jax.numpy as jnp, raggrad.jax as rj
    >>> rj.SGD(learning_rate=0.1).init(jnp.ones((3, 1)))
    ()
    """

    learning_rate: Any

    def init(self, table: Any) -> tuple[()]:
        """The state before the first step: none."""
        return ()


@dataclass(frozen=True)
class Adagrad:
    """a += g * g;  w -= learning_rate * g / (sqrt(a) + epsilon).

    The state is `a`, an array of the table's shape in float32, or float64 for a float64 table.

    >>> import jax.numpy as jnp, raggrad.jax as rj
    >>> adagrad = rj.Adagrad(learning_rate=0.5, initial_accumulator=0.0)
    >>> table = jnp.ones((3, 1))
    >>> rows = rj.sparse_segment_grad("sum", jnp.array([[2.0]]), jnp.array([1]), jnp.array([0]), 3)
    >>> table, state = rj.apply_rows(table, rows, adagrad, adagrad.init(table))
    >>> table.tolist(), state.tolist()
    ([[1.0], [0.5], [1.0]], [[0.0], [4.0], [0.0]])
    """

    learning_rate: Any
    initial_accumulator: float = 0.1
    epsilon: float = 1e-7

    def init(self, table: Any) -> jax.Array:
        """The state before the first step: `initial_accumulator` everywhere."""
        return jnp.full(table.shape, self.initial_accumulator, _state_type(table))


class AdamState(NamedTuple):
    """The state of Adam: m and v in the table's shape, and the number of steps so far, int32."""

    m: jax.Array
    v: jax.Array
    step: jax.Array


export.register_namedtuple_serialization(AdamState, serialized_name="raggrad.jax.AdamState")


@dataclass(frozen=True)
class Adam:
    """Adam on the rows that the gradient has, as torch.optim.SparseAdam. The state is an AdamState.

    >>> import jax.numpy as jnp, raggrad.jax as rj
    >>> adam = rj.Adam(learning_rate=0.5)
    >>> table = jnp.ones((3, 1))
    >>> rows = rj.sparse_segment_grad("sum", jnp.array([[2.0]]), jnp.array([1]), jnp.array([0]), 3)
    >>> table, state = rj.apply_rows(table, rows, adam, adam.init(table))
    >>> table.round(3).tolist(), int(state.step)
    ([[1.0], [0.5], [1.0]], 1)
    """

    learning_rate: Any
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8

    def init(self, table: Any) -> AdamState:
        """The state before the first step: zeros."""
        m, v = (jnp.zeros(table.shape, _state_type(table)) for _ in range(2))
        return AdamState(m, v, jnp.zeros((), np.int32))


def apply_rows(table: Any, rows: Rows, optimizer: SGD | Adagrad | Adam, state: Any = ()) -> tuple[jax.Array, Any]:
    """One step of the optimizer on the rows of the table that the gradient has. Returns the new table and state.

    In a compiled function that donates table and state both change in place, and only those rows are touched. Without
    donation XLA copies them first. On a CPU an id that is out of range is an error, and rows that come several times
    are added up; on a GPU rows must be as sparse_segment_grad returns them.

    >>> import jax, jax.numpy as jnp, raggrad.jax as rj
    >>> sgd = rj.SGD(learning_rate=0.5)
    >>> step = jax.jit(lambda table, rows: rj.apply_rows(table, rows, sgd)[0], donate_argnums=0)
    >>> rows = rj.sparse_segment_grad("sum", jnp.array([[2.0]]), jnp.array([1]), jnp.array([0]), 3)
    >>> step(jnp.ones((3, 1)), rows).tolist()
    [[1.0], [0.0], [1.0]]
    """
    name = "apply_rows"
    array = rows_of(name, "table", table)
    if not isinstance(rows, Rows):
        fail(name, f"rows: expected raggrad.jax.Rows, got {type(rows).__name__}", TypeError)
    kind = next((kind for kind in _NUMBERS if isinstance(optimizer, kind)), None)
    if kind is None:
        fail(name, f"optimizer: expected raggrad.jax.SGD, Adagrad or Adam, got {type(optimizer).__name__}", TypeError)
    with_doubles = array.dtype == np.float64
    values = rows_of(name, "rows.values", rows.values, ("float64",) if with_doubles else HALVES_AND_SINGLES)
    if values.shape[1:] != array.shape[1:]:
        fail(name, f"rows.values: expected shape {('size', *array.shape[1:])}, got {values.shape}")
    ids = ids_of(name, "rows.ids", rows.ids, values.shape[0])
    count = number_of(name, "rows.count", rows.count)
    states = _states_of(name, optimizer, state, array)
    rate, numbers = _rate_of(name, optimizer, array), _numbers_of(name, optimizer, kind)
    array, values, ids, count, rate, *states = alike(array, values, ids, count, rate, *states)
    step = _Step(kind.__name__, numbers)
    new_table, *new_states = _applied(array, Rows(values, ids, count), rate, tuple(states), step)
    if kind is SGD:
        return new_table, ()
    if kind is Adagrad:
        return new_table, new_states[0]
    return new_table, AdamState(new_states[0], new_states[1], states[2] + 1)


class _Step(NamedTuple):
    """All that decides about a step but the arrays."""

    kind: str
    numbers: tuple[tuple[str, float], ...]


# The options of each besides its learning rate.
_NUMBERS: dict[type[Any], tuple[str, ...]] = {SGD: (), Adagrad: ("epsilon",), Adam: ("beta1", "beta2", "epsilon")}


def _state_type(table: Any) -> Any:
    """That of the table in JAX, which has no float64 by default."""
    return np.float64 if jax.dtypes.canonicalize_dtype(table.dtype) == np.float64 else np.float32


def _rate_of(function: str, optimizer: SGD | Adagrad | Adam, table: jax.Array) -> jax.Array | None:
    """The learning rate if it is an array, which may be traced."""
    if isinstance(optimizer.learning_rate, Real):
        return None
    rate = real_of(function, "optimizer.learning_rate", optimizer.learning_rate)
    if rate.ndim != 0:
        fail(function, f"optimizer.learning_rate: expected a number, got shape {rate.shape}")
    return rate.astype(_state_type(table))


def _numbers_of(function: str, optimizer: SGD | Adagrad | Adam, kind: type[Any]) -> tuple[tuple[str, float], ...]:
    """Those that are attributes of the handler."""

    def number(name: str) -> float:
        value = getattr(optimizer, name)
        try:
            return float(value)
        except (TypeError, ValueError):
            text = f"optimizer.{name}: expected a number, known when the function is traced, got {value!r}"
            return fail(function, text, TypeError)

    rate = optimizer.learning_rate
    others = ((name, number(name)) for name in _NUMBERS[kind])
    return (("learning_rate", float(rate) if isinstance(rate, Real) else 0.0), *others)


def _states_of(function: str, optimizer: SGD | Adagrad | Adam, state: Any, table: jax.Array) -> tuple[jax.Array, ...]:
    wanted = jax.eval_shape(optimizer.init, table)
    if jax.tree.structure(state) != jax.tree.structure(wanted):
        kind = type(optimizer).__name__
        fail(function, f"state: expected what {kind}.init(table) returns, got {type(state).__name__}", TypeError)
    arrays = tuple(array_of(function, "state", array) for array in jax.tree.leaves(state))
    for array, like in zip(arrays, jax.tree.leaves(wanted), strict=True):
        if array.shape != like.shape or array.dtype != like.dtype:
            fail(function, f"state: expected {like.dtype.name}{list(like.shape)}, got {array.dtype}{list(array.shape)}")
    return arrays


def _apply(
    table: jax.Array, rows: Rows, rate: jax.Array | None, states: tuple[jax.Array, ...], step: _Step
) -> tuple[jax.Array, ...]:
    def on_cpu(table: jax.Array, rows: Rows, rate: jax.Array | None, *states: jax.Array) -> Any:
        changed = [table, *states[:2]]
        results = call(
            f"raggrad_apply_{step.kind.lower()}",
            tuple(Shaped(array.shape, array.dtype) for array in changed),
            table,
            rows.values,
            rows.ids,
            rows.count,
            jnp.zeros(0, np.float32) if rate is None else rate,
            *states,
            settings=Settings("apply_rows"),
            attributes={name: np.float64(number) for name, number in step.numbers},
            aliases={0: 0, **{5 + place: 1 + place for place in range(len(changed) - 1)}},
        )
        return tuple(results)

    def on_cuda(table: jax.Array, rows: Rows, rate: jax.Array | None, *states: jax.Array) -> Any:
        return _apply_on_cuda(table, rows, rate, states, step.kind, dict(step.numbers))

    return on_platform(on_cpu, on_cuda, table, rows, rate, *states)


_applied = differentiable(
    _apply,
    4,
    lambda *arguments: (_applied(*arguments), None),
    lambda *_: fail("apply_rows", "a step has no derivative", TypeError),
)


def _apply_on_cuda(
    table: jax.Array,
    rows: Rows,
    rate: jax.Array | None,
    states: tuple[jax.Array, ...],
    kind: str,
    numbers: dict[str, float],
) -> tuple[jax.Array, ...]:
    """The formulas in XLA: rows are taken out, changed and put back. Padding is dropped."""
    places = jnp.where(jnp.arange(rows.size, dtype=np.int32) < rows.count, rows.ids, table.shape[0])
    wide = _state_type(table)
    learning_rate = jnp.asarray(numbers["learning_rate"], wide) if rate is None else rate
    g = rows.values.astype(wide)

    def taken(array: jax.Array) -> jax.Array:
        return array.at[places].get(mode="fill", fill_value=0, indices_are_sorted=True).astype(wide)

    def put(array: jax.Array, new: jax.Array) -> jax.Array:
        return array.at[places].set(
            new.astype(array.dtype), mode="drop", indices_are_sorted=True, unique_indices=True
        )

    w = taken(table)
    if kind == "SGD":
        return (put(table, w - learning_rate * g),)
    epsilon = jnp.asarray(numbers["epsilon"], wide)
    if kind == "Adagrad":
        a = taken(states[0]) + g * g
        return put(table, w - learning_rate * g / (jnp.sqrt(a) + epsilon)), put(states[0], a)
    beta1, beta2 = (jnp.asarray(numbers[name], wide) for name in ("beta1", "beta2"))
    m, v = (taken(array) for array in states[:2])
    m = m + (g - m) * (1 - beta1)
    v = v + (g * g - v) * (1 - beta2)
    steps = (states[2] + 1).astype(wide)
    step_rate = learning_rate * jnp.sqrt(1 - beta2**steps) / (1 - beta1**steps)
    return put(table, w - m * step_rate / (jnp.sqrt(v) + epsilon)), put(states[0], m), put(states[1], v)
