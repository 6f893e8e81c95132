"""Optimizers for sparse gradients: SparseSGD, SparseAdagrad, RowwiseAdagrad and SparseAdam.

>>> import torch, raggrad.torch as rt
>>> bag = rt.EmbeddingBag(10, 4, sparse=True)
>>> optimizer = rt.optim.SparseAdam(bag.parameters(), lr=0.01)
>>> bag(torch.tensor([[1, 2], [2, 3]])).sum().backward()
>>> optimizer.step()

A step changes only rows that the gradient has, in one pass over them: gradient, states and weights are each read once,
and nothing of the table's size is made but the states, once. Rows may repeat and come in any order, as in torch's own
sparse gradients; those of embedding_bag are unique and ascending, which saves the sort. The same gradients give the
same bits on every run and with any number of threads.

States and options have torch's names, so checkpoints of torch.optim.SparseAdam, Adagrad and SGD load, and the other way
round. States of a half or bfloat16 table are float32, where torch rounds them to the table's type.

With fused=True the update is part of backward: rt.embedding_bag, rt.embedding and the modules sum each row of the
gradient straight into the step. No gradient is stored, `.grad` stays None, and `sparse` makes no difference. The first
backward pass has the bits of a separate sparse optimizer.

- Every backward pass through a call is an update with the rates and states of that moment. Two passes before step(), or
  two calls in one model, are two updates; separately they would be one with the sum.
- step() only counts the updates' step, for SparseAdam's and Adagrad's rates. Call it as always.
- There is nothing to clip, scale or reduce afterwards: no clip_grad_norm_, GradScaler or DistributedDataParallel.
- A gradient that comes to such a table another way, from torch.compile, torch.func or another operator, is a
  RuntimeError in step().
- A table has one fused optimizer, the last one made, for as long as that lives.
- A CUDA graph can hold such steps, after one that was not captured. Replays count, and have the bits of other steps. An
  lr that is a tensor on the GPU is read in every replay; a number is that of the capture.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ._optimizers.graph_steps import GraphSteps
from ._optimizers.row_optimizer import RowOptimizer
from ._optimizers.rule import Rule, check_option, new_state, state_type

__all__ = ["RowwiseAdagrad", "SparseAdagrad", "SparseAdam", "SparseSGD"]


class SparseSGD(RowOptimizer):
    """torch.optim.SGD for sparse gradients: g += weight_decay * w, then w -= lr * g, for the rows that g has.

    There is no momentum: that of a group, or of a checkpoint of torch's, is a ValueError in step(). Dense gradients are
    a RuntimeError.
    """

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 1e-3,
        *,
        weight_decay: float = 0.0,
        maximize: bool = False,
        fused: bool = False,
    ) -> None:
        numbers = {"lr": lr, "weight_decay": weight_decay}
        for argument, value in numbers.items():
            check_option("SparseSGD", argument, value, at_least=0.0)
        super().__init__(params, {**numbers, "maximize": maximize}, fused)

    def state_dict(self) -> dict[str, Any]:
        """Optimizer.state_dict, with what torch.optim.SGD takes from the groups of a checkpoint."""
        state = super().state_dict()
        for group in state["param_groups"]:
            group.update({"momentum": 0, "dampening": 0, **group})
        return state

    def _rule(self, table: Tensor, state: dict[str, Any], group: Any) -> Rule:
        if momentum := group.get("momentum"):
            raise ValueError(f"raggrad.torch.optim.SparseSGD: momentum: expected 0, got {momentum}")
        return Rule("sgd", float(group["lr"]))


class SparseAdagrad(RowOptimizer):
    """torch.optim.Adagrad for sparse gradients, with its defaults.

    For the rows that g has: g += weight_decay * w, sum += g * g, then w -= rate * g / (sqrt(sum) + eps), rate = lr / (1
    + (step - 1) * lr_decay). Dense gradients are a RuntimeError.
    """

    _states = ("sum",)
    _counts_steps = True

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 1e-2,
        lr_decay: float = 0.0,
        weight_decay: float = 0.0,
        initial_accumulator_value: float = 0.0,
        eps: float = 1e-10,
        *,
        maximize: bool = False,
        fused: bool = False,
    ) -> None:
        numbers = {"lr": lr, "lr_decay": lr_decay, "weight_decay": weight_decay, "eps": eps}
        numbers["initial_accumulator_value"] = initial_accumulator_value
        for argument, value in numbers.items():
            check_option("SparseAdagrad", argument, value, at_least=0.0)
        super().__init__(params, {**numbers, "maximize": maximize}, fused)

    def _rule(self, table: Tensor, state: dict[str, Any], group: Any) -> Rule:
        if "sum" not in state:
            state["step"] = torch.tensor(0.0, device="cpu")  # where the rate is computed
            state["sum"] = new_state(table, group["initial_accumulator_value"])
        rate = float(group["lr"]) / (1 + float(state["step"]) * group["lr_decay"])
        return Rule("adagrad", rate, group["eps"])

    def _rate_on_device(self, lr: Any, steps: GraphSteps, state: dict[str, Any], group: Any) -> Any:
        before = steps.begin(state["step"])
        if not group["lr_decay"]:
            return lr
        slower = 1 + before.double() * group["lr_decay"]
        return (lr if isinstance(lr, Tensor) else torch.full_like(slower, lr)) / slower


class RowwiseAdagrad(RowOptimizer):
    """Adagrad with one number of state for each row, as FBGEMM's EXACT_ROWWISE_ADAGRAD.

    For the rows that g has: sum += mean(g * g), then w -= lr / (sqrt(sum) + eps) * g. The state takes 4 bytes a row
    (8 for a float64 table), and is called "sum". Squares are added in a fixed order, the same on CPU and GPU. The
    gradient's rows are scratch of the step, also with fused=True: a step needs the whole row first. Dense gradients
    are a RuntimeError.
    """

    _states = ("sum",)

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 1e-2,
        eps: float = 1e-8,
        initial_accumulator_value: float = 0.0,
        *,
        maximize: bool = False,
        fused: bool = False,
    ) -> None:
        numbers = {"lr": lr, "eps": eps, "initial_accumulator_value": initial_accumulator_value}
        for argument, value in numbers.items():
            check_option("RowwiseAdagrad", argument, value, at_least=0.0)
        super().__init__(params, {**numbers, "maximize": maximize}, fused)

    def _rule(self, table: Tensor, state: dict[str, Any], group: Any) -> Rule:
        if "sum" not in state:
            value = group["initial_accumulator_value"]
            state["sum"] = torch.full(table.shape[:1], value, dtype=state_type(table), device=table.device)
        return Rule("rowwise_adagrad", float(group["lr"]), group["eps"])


class SparseAdam(RowOptimizer):
    """torch.optim.SparseAdam, with its defaults.

    For the rows that g has: exp_avg += (g - exp_avg) * (1 - beta1), exp_avg_sq += (g * g - exp_avg_sq) * (1 - beta2),
    then w -= rate * exp_avg / (sqrt(exp_avg_sq) + eps), rate = lr * sqrt(1 - beta2^step) / (1 - beta1^step). Dense
    gradients are a RuntimeError. `maximize` copies the gradient's values to negate them.
    """

    _states = ("exp_avg", "exp_avg_sq")
    _counts_steps = True

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        maximize: bool = False,
        *,
        fused: bool = False,
    ) -> None:
        check_option("SparseAdam", "lr", lr, above=0.0)
        check_option("SparseAdam", "eps", eps, above=0.0)
        if not isinstance(betas, Sequence) or len(betas) != 2:
            raise ValueError(f"raggrad.torch.optim.SparseAdam: betas: expected two numbers, got {betas}")
        for i, beta in enumerate(betas):
            check_option("SparseAdam", f"betas[{i}]", beta, at_least=0.0, below=1.0)
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "maximize": maximize}, fused)

    def _rule(self, table: Tensor, state: dict[str, Any], group: Any) -> Rule:
        if "exp_avg" not in state:
            state["step"] = 0
            state["exp_avg"] = new_state(table, 0.0)
            state["exp_avg_sq"] = new_state(table, 0.0)
        return Rule("adam", float(group["lr"]), group["eps"], *group["betas"], int(state["step"]) + 1)

    def _rate_on_device(self, lr: Any, steps: GraphSteps, state: dict[str, Any], group: Any) -> Any:
        return steps.adam_rate(state["step"], group["betas"]) * lr
