"""Optimizer steps on single rows of a table, for IndexedSlices.apply_ and ops.sparse_segment_*_grad_apply_.

With w a row of the table and g its gradient, in float32 (float64 for a float64 table):

    SGD      w -= learning_rate * g
    Adagrad  a += g * g;  w -= learning_rate * g / (sqrt(a) + epsilon)
    Adam     m += (g - m) * (1 - beta1);  v += (g * g - v) * (1 - beta2)
             w -= m * rate / (sqrt(v) + epsilon),  rate = learning_rate * sqrt(1 - beta2^step) / (1 - beta1^step)
    RowwiseAdagrad  a += mean(g * g);  w -= learning_rate / (sqrt(a) + epsilon) * g

Only rows that the gradient has are touched. Adagrad is that of TensorFlow and PyTorch, Adam is torch.optim.SparseAdam,
RowwiseAdagrad is FBGEMM's exact one. States are arrays of the table's shape, RowwiseAdagrad's of one number for each
row, in float32 (float64 for a float64 table), and change in place. They lie where the table lies; `for_table` makes
them there, in NumPy for host memory and by the table's framework on a GPU. RowwiseAdagrad needs a whole row of the
gradient before the first step, so the rows are scratch of the call, also where gradient and step are fused.

>>> import numpy as np
>>> from raggrad import IndexedSlices, optimizers
>>> table = np.ones((3, 2), np.float32)
>>> adagrad = optimizers.Adagrad.for_table(table, learning_rate=0.5, initial_accumulator=0.0)
>>> IndexedSlices(np.float32([[2, -2]]), [1], (3, 2)).apply_(table, adagrad)
>>> table.round(3).tolist()
[[1.0, 1.0], [0.5, 1.5], [1.0, 1.0]]
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any, Union

from . import _arrays, _core

__all__ = ["SGD", "Adagrad", "Adam", "Optimizer", "RowwiseAdagrad"]


def _state(op: str, table: Any, value: float, *, per_row: bool = False) -> Any:
    like = _core.tensor_of(table, op, "table")
    with _arrays.of(table) as xp:
        shape = like.shape[:1] if per_row else like.shape
        state = xp.full(shape, value, dtype="float64" if like.dtype == "float64" else "float32")
    return state if xp is _arrays.NUMPY else _arrays.in_kind_of(state, table)


@dataclass
class SGD:
    """w -= learning_rate * g, without a state.

    >>> import numpy as np
    >>> from raggrad import ops, optimizers
    >>> table = np.ones((3, 2), np.float32)
    >>> grad = np.float32([[1, 2]])
    >>> sgd = optimizers.SGD(learning_rate=0.5)
    >>> ops.sparse_segment_sum_grad_apply_(table, grad, [2, 2], [0, 0], optimizer=sgd)
    >>> table.tolist()
    [[1.0, 1.0], [1.0, 1.0], [0.0, -1.0]]
    """

    learning_rate: float

    def _begin(self) -> tuple[Any, ...]:
        return ("sgd", self.learning_rate)


@dataclass
class Adagrad:
    """a += g * g;  w -= learning_rate * g / (sqrt(a) + epsilon), as in TensorFlow and PyTorch.

    Args:
      accumulator: a, an array of the table's shape; `for_table` makes it.

    >>> import numpy as np
    >>> from raggrad import optimizers
    >>> optimizers.Adagrad.for_table(np.ones((2, 1), np.float32), learning_rate=0.1).accumulator.tolist()
    [[0.10000000149011612], [0.10000000149011612]]
    """

    learning_rate: float
    accumulator: Any
    epsilon: float = 1e-7

    @classmethod
    def for_table(
        cls, table: Any, learning_rate: float, *, initial_accumulator: float = 0.1, epsilon: float = 1e-7
    ) -> Adagrad:
        """With an accumulator of `initial_accumulator`, where the table lies."""
        return cls(learning_rate, _state("Adagrad.for_table", table, initial_accumulator), epsilon)

    def _begin(self) -> tuple[Any, ...]:
        return ("adagrad", self.learning_rate, self.epsilon, self.accumulator)


@dataclass
class Adam:
    """The step of torch.optim.SparseAdam: states and weights of rows without a gradient stay as they are.

        m += (g - m) * (1 - beta1);  v += (g * g - v) * (1 - beta2)
        w -= m * rate / (sqrt(v) + epsilon),  rate = learning_rate * sqrt(1 - beta2^step) / (1 - beta1^step)

    Args:
      m, v: arrays of the table's shape; `for_table` makes them.
      step: how many updates succeeded so far; every update counts itself.

    >>> import numpy as np
    >>> from raggrad import IndexedSlices, optimizers
    >>> table = np.ones((3, 2), np.float32)
    >>> adam = optimizers.Adam.for_table(table, learning_rate=0.5)
    >>> IndexedSlices(np.float32([[2, -2]]), [1], (3, 2)).apply_(table, adam)
    >>> table.round(3).tolist(), adam.step
    ([[1.0, 1.0], [0.5, 1.5], [1.0, 1.0]], 1)
    """

    learning_rate: float
    m: Any
    v: Any
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    step: int = 0

    @classmethod
    def for_table(
        cls, table: Any, learning_rate: float, *, beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-8
    ) -> Adam:
        """With m and v of zeros, where the table lies."""
        m, v = (_state("Adam.for_table", table, 0.0) for _ in range(2))
        return cls(learning_rate, m, v, beta1, beta2, epsilon)

    def _begin(self) -> tuple[Any, ...]:
        return ("adam", self.learning_rate, self.beta1, self.beta2, self.epsilon, self.step, self.m, self.v)


@dataclass
class RowwiseAdagrad:
    """a += mean(g * g);  w -= learning_rate / (sqrt(a) + epsilon) * g, as FBGEMM's EXACT_ROWWISE_ADAGRAD.

    Args:
      accumulator: a, one number for each row of the table; `for_table` makes it.

    >>> import numpy as np
    >>> from raggrad import IndexedSlices, optimizers
    >>> table = np.ones((3, 2), np.float32)
    >>> rowwise = optimizers.RowwiseAdagrad.for_table(table, learning_rate=0.5)
    >>> IndexedSlices(np.float32([[3, 0]]), [1], (3, 2)).apply_(table, rowwise)
    >>> rowwise.accumulator.tolist()
    [0.0, 4.5, 0.0]
    """

    learning_rate: float
    accumulator: Any
    epsilon: float = 1e-8

    @classmethod
    def for_table(
        cls, table: Any, learning_rate: float, *, initial_accumulator: float = 0.0, epsilon: float = 1e-8
    ) -> RowwiseAdagrad:
        """With an accumulator of `initial_accumulator`, where the table lies."""
        state = _state("RowwiseAdagrad.for_table", table, initial_accumulator, per_row=True)
        return cls(learning_rate, state, epsilon)

    def _begin(self) -> tuple[Any, ...]:
        return ("rowwise_adagrad", self.learning_rate, self.epsilon, self.accumulator)


Optimizer = Union[SGD, Adagrad, Adam, RowwiseAdagrad]  # noqa: UP007 (Python 3.10 needs it at run time)


def begin(op: str, optimizer: Optimizer) -> tuple[Any, ...]:
    """The tuple that _core takes for one step."""
    if not isinstance(optimizer, (SGD, Adagrad, Adam, RowwiseAdagrad)):
        kinds = "SGD, Adagrad, Adam or RowwiseAdagrad"
        raise TypeError(f"{op}: optimizer: expected raggrad.optimizers.{kinds}, got {type(optimizer).__name__}")
    return optimizer._begin()


def end(optimizer: Optimizer) -> None:
    """Counts the step that was made."""
    if isinstance(optimizer, Adam):
        optimizer.step = operator.index(optimizer.step) + 1
