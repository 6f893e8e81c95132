"""Optimizers for sparse gradients: SparseSGD, SparseAdagrad and SparseAdam.

>>> import torch, raggrad.torch as rt
>>> bag = rt.EmbeddingBag(10, 4, sparse=True)
>>> optimizer = rt.optim.SparseAdam(bag.parameters(), lr=0.01)
>>> bag(torch.tensor([[1, 2], [2, 3]])).sum().backward()
>>> optimizer.step()

A step changes only rows that the gradient has, in one pass over them: gradient, states and weights are each read once,
and nothing of the table's size is made but the states, once. Rows may repeat and come in any order, as in torch's own
sparse gradients; those of embedding_bag are unique and ascending, which saves the sort. The same gradients give the
same bits on every run and with any number of threads.

States have torch's names, so checkpoints of torch.optim.SparseAdam and Adagrad load, and the other way round. States of
a half or bfloat16 table are float32, where torch rounds them to the table's type.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from . import _update_operators as ops
from ._errors import named
from ._settings import order_of

__all__ = ["SparseAdagrad", "SparseAdam", "SparseSGD"]


class _RowOptimizer(Optimizer):
    """An optimizer that changes rows of tables."""

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        """Updates the rows of every parameter that has a gradient. Returns the closure's loss."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for table in group["params"]:
                if table.grad is not None:
                    self._step_table(table, group)
        return loss

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Optimizer.load_state_dict, which rounds states to the type of their table; here they keep their own."""
        super().load_state_dict(state_dict)
        for group, saved in zip(self.param_groups, state_dict["param_groups"], strict=True):
            for table, number in zip(group["params"], saved["params"], strict=True):
                for key, value in state_dict["state"].get(number, {}).items():
                    if key != "step" and isinstance(value, Tensor):
                        self.state[table][key] = value.to(table.device, _state_type(table))

    def _step_table(self, table: Tensor, group: dict[str, Any]) -> None:
        values, rows = self._rows_of(table)
        try:
            self._update(table, self.state[table], values, rows, group)
        except RuntimeError as error:
            raise named(error, f"optim.{type(self).__name__}", table="params", indices="grad.indices") from None

    def _rows_of(self, table: Tensor) -> tuple[Tensor, Tensor]:
        grad = table.grad
        name = f"raggrad.torch.optim.{type(self).__name__}"
        if not grad.is_sparse:
            raise RuntimeError(f"{name}: grad: expected a sparse gradient, got a dense one")
        if grad.sparse_dim() != 1:
            raise RuntimeError(f"{name}: grad: expected 1 sparse dimension, got {grad.sparse_dim()}")
        return grad._values(), grad._indices()[0]

    def _update(self, table: Tensor, state: dict[str, Any], values: Tensor, rows: Tensor, group: Any) -> None:
        raise NotImplementedError


class SparseSGD(_RowOptimizer):
    """torch.optim.SGD for sparse gradients: w -= lr * g for the rows that g has.

    There is no weight_decay, which torch refuses for sparse gradients, and no momentum. Dense gradients are a
    RuntimeError.
    """

    def __init__(self, params: Any, lr: float | Tensor = 1e-3, *, maximize: bool = False) -> None:
        _check("SparseSGD", "lr", lr, at_least=0.0)
        super().__init__(params, {"lr": lr, "maximize": maximize})

    def _update(self, table: Tensor, state: dict[str, Any], values: Tensor, rows: Tensor, group: Any) -> None:
        rate = float(group["lr"])
        ops.sgd_rows_(table, values, rows, -rate if group["maximize"] else rate, order_of(None))


class SparseAdagrad(_RowOptimizer):
    """torch.optim.Adagrad for sparse gradients, with its defaults.

    For the rows that g has: sum += g * g, then w -= rate * g / (sqrt(sum) + eps), rate = lr / (1 + (step - 1) *
    lr_decay). There is no weight_decay, which torch refuses for sparse gradients. Dense gradients are a RuntimeError.
    """

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 1e-2,
        lr_decay: float = 0.0,
        initial_accumulator_value: float = 0.0,
        eps: float = 1e-10,
        *,
        maximize: bool = False,
    ) -> None:
        numbers = {"lr": lr, "lr_decay": lr_decay, "initial_accumulator_value": initial_accumulator_value, "eps": eps}
        for argument, value in numbers.items():
            _check("SparseAdagrad", argument, value, at_least=0.0)
        super().__init__(params, {**numbers, "maximize": maximize})

    def _update(self, table: Tensor, state: dict[str, Any], values: Tensor, rows: Tensor, group: Any) -> None:
        if not state:
            state["step"] = torch.tensor(0.0)
            state["sum"] = _new_state(table, group["initial_accumulator_value"])
        rate = float(group["lr"]) / (1 + float(state["step"]) * group["lr_decay"])
        rate = -rate if group["maximize"] else rate
        ops.adagrad_rows_(table, state["sum"], values, rows, rate, group["eps"], order_of(None))
        state["step"] += 1


class SparseAdam(_RowOptimizer):
    """torch.optim.SparseAdam, with its defaults.

    For the rows that g has: exp_avg += (g - exp_avg) * (1 - beta1), exp_avg_sq += (g * g - exp_avg_sq) * (1 - beta2),
    then w -= rate * exp_avg / (sqrt(exp_avg_sq) + eps), rate = lr * sqrt(1 - beta2^step) / (1 - beta1^step). Dense
    gradients are a RuntimeError. `maximize` copies the gradient's values to negate them.
    """

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        maximize: bool = False,
    ) -> None:
        _check("SparseAdam", "lr", lr, above=0.0)
        _check("SparseAdam", "eps", eps, above=0.0)
        for i, beta in enumerate(betas):
            _check("SparseAdam", f"betas[{i}]", beta, at_least=0.0, below=1.0)
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "maximize": maximize})

    def _update(self, table: Tensor, state: dict[str, Any], values: Tensor, rows: Tensor, group: Any) -> None:
        if not state:
            state["step"] = 0
            state["exp_avg"] = _new_state(table, 0.0)
            state["exp_avg_sq"] = _new_state(table, 0.0)
        # A negative rate would do for the weights, but exp_avg would have the wrong sign.
        values = -values if group["maximize"] else values
        ops.adam_rows_(
            table,
            state["exp_avg"],
            state["exp_avg_sq"],
            values,
            rows,
            float(group["lr"]),
            *group["betas"],
            group["eps"],
            int(state["step"]) + 1,
            order_of(None),
        )
        state["step"] += 1


def _state_type(table: Tensor) -> torch.dtype:
    return torch.float64 if table.dtype == torch.float64 else torch.float32


def _new_state(table: Tensor, value: float) -> Tensor:
    return torch.full_like(table, value, dtype=_state_type(table), memory_format=torch.contiguous_format)


def _check(
    name: str,
    argument: str,
    value: float | Tensor,
    *,
    at_least: float | None = None,
    above: float | None = None,
    below: float | None = None,
) -> None:
    """Refuses numbers out of range, and NaN."""
    if isinstance(value, Tensor) and value.numel() != 1:
        raise ValueError(f"raggrad.torch.optim.{name}: {argument}: expected one number, got {value.numel()}")
    if at_least is not None and not value >= at_least:
        raise ValueError(f"raggrad.torch.optim.{name}: {argument}: expected at least {at_least}, got {value}")
    if above is not None and not value > above:
        raise ValueError(f"raggrad.torch.optim.{name}: {argument}: expected more than {above}, got {value}")
    if below is not None and not value < below:
        raise ValueError(f"raggrad.torch.optim.{name}: {argument}: expected less than {below}, got {value}")
