"""RowOptimizer: what the optimizers of raggrad.torch.optim share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim import optimizer as stock

from .._errors import named
from .._operators import updates as ops
from .._operators.segments import coalesce_rows
from .._settings import order_of
from .._tables.fused import rows_of_bags, take_over
from .._tables.sparse_gradients import is_known
from .graph_steps import GraphSteps, being_captured, can_be_captured
from .rule import Rule, state_type


class RowOptimizer(Optimizer):
    """An optimizer that changes rows of tables."""

    _states: tuple[str, ...] = ()  # of a table, in the order of the operators
    _counts_steps = False  # states have the number of steps, too

    def __init__(self, params: Any, defaults: dict[str, Any], fused: bool) -> None:
        self._fused = fused
        self._updated: set[Tensor] = set()  # in backward, since the last step(), and not counted on the device
        self._graph_steps: dict[Tensor, GraphSteps] = {}
        super().__init__(params, defaults)

    def __getstate__(self) -> dict[str, Any]:
        self._read_graph_steps()
        return {**super().__getstate__(), "_fused": self._fused}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._updated = set()
        self.__dict__.setdefault("_graph_steps", {})  # load_state_dict comes here, too
        for group in self.param_groups:
            self._take_over(group)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Optimizer.add_param_group."""
        super().add_param_group(param_group)
        for table in self.param_groups[-1]["params"]:
            if table.is_sparse or table.is_complex():
                del self.param_groups[-1]
                kind = "a sparse one" if table.is_sparse else table.dtype
                raise ValueError(f"{self._name}: params: expected dense tables of real numbers, got {kind}")
        self._take_over(self.param_groups[-1])

    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        """Updates the rows of every parameter that has a gradient; with fused=True, only counts. Returns the closure's
        loss.
        """
        hooks = self._optimizer_step_pre_hooks or self._optimizer_step_post_hooks
        hooks = hooks or stock._global_optimizer_pre_hooks or stock._global_optimizer_post_hooks
        if hooks or torch.autograd._profiler_enabled():
            return self._watched_step(closure)
        return self._step(closure)

    step.hooked = True  # Optimizer would put 45 us of hooks and profiling around it, even where nobody asks for them

    def _step(self, closure: Callable[[], Any] | None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if self._fused:
            for group in self.param_groups:
                for table in group["params"]:
                    self._count_step(table)
        else:
            self._step_tables()
        return loss

    _watched_step = Optimizer.profile_hook_step(_step)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Optimizer.zero_grad. Torch's has 20 us of work around this loop."""
        if not set_to_none:
            super().zero_grad(set_to_none)
            return
        for group in self.param_groups:
            for table in group["params"]:
                table.grad = None

    def state_dict(self) -> dict[str, Any]:
        """Optimizer.state_dict. Counts replays of CUDA graphs, for which it waits."""
        self._read_graph_steps()
        return super().state_dict()

    @torch.no_grad()
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Optimizer.load_state_dict, which rounds states to the type of their table; here they keep their own. They
        keep their memory, too: CUDA graphs go on with what was loaded.
        """
        before = {table: dict(state) for table, state in self.state.items()}
        loaded: dict[str, Any] = {}
        # After the user's hooks that change what is loaded, and before those that change what was.
        with (
            self.register_load_state_dict_pre_hook(lambda _, changed: loaded.update(changed)),
            self.register_load_state_dict_post_hook(lambda _: self._keep_types(loaded, before), prepend=True),
        ):
            super().load_state_dict(state_dict)

    def update_in_backward(
        self,
        table: Tensor,
        operator: Callable[..., None],
        grad: Tensor,
        bags: tuple[Any, ...],
        accumulation: str | None,
    ) -> None:
        """Updates the table with operator(table, *states, gradient, *bags, *rule, accumulation): what backward calls,
        without gradients.
        """
        group = self.group_of(table)
        try:
            if decay := group.get("weight_decay"):
                values, rows = rows_of_bags(table, operator, grad, *bags, accumulation)
                values = _with_decay(table, values, rows, decay, group)
                operator, grad, bags = ops.apply_rows_, values, (rows,)
            self._apply(table, self.state[table], group, operator, grad, bags, (accumulation,))
        except RuntimeError as error:
            raise self._named(error) from None
        if self._steps_on_device(table) is None:
            self._updated.add(table)

    @property
    def _step_supports_amp_scaling(self) -> bool:
        """Answers torch.amp.GradScaler before a step. Otherwise it would say that it has seen no gradient."""
        if self._fused:
            raise RuntimeError(
                f"{self._name}: fused: expected False with a GradScaler, which cannot undo its scale in a table that "
                "backward has updated"
            )
        return False

    def make_states(self, table: Tensor) -> None:
        """Makes the states of a table now, and not in its first step."""
        self._rule(table, self.state[table], self.group_of(table))

    def group_of(self, table: Tensor) -> dict[str, Any]:
        """The options of a table."""
        for group in self.param_groups:
            for param in group["params"]:
                if param is table:
                    return group
        raise KeyError(table)

    def _take_over(self, group: dict[str, Any]) -> None:
        if self._fused:
            for table in group["params"]:
                take_over(table, self)

    def _count_step(self, table: Tensor) -> None:
        if table.grad is not None:
            raise RuntimeError(
                f"{self._name}: grad: expected None with fused=True, but a gradient came from somewhere else than the "
                "backward of raggrad.torch's embeddings"
            )
        steps = self._steps_on_device(table)
        if steps is not None and (table not in self._updated or being_captured(table)):
            steps.end()
        elif table in self._updated and self._counts_steps:
            self.state[table]["step"] += 1
            if steps is not None:  # a graph was captured since the update
                steps.restart(self.state[table]["step"])
        self._updated.discard(table)

    def _step_tables(self) -> None:
        before = torch.is_grad_enabled()
        torch._C._set_grad_enabled(False)  # torch.no_grad() takes four calls of Python functions more
        try:
            for group in self.param_groups:
                for table in group["params"]:
                    if (grad := table.grad) is not None:
                        self._step_table(table, grad, group)
        except RuntimeError as error:
            raise self._named(error) from None
        finally:
            torch._C._set_grad_enabled(before)

    def _step_table(self, table: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        if not grad.is_sparse:
            raise RuntimeError(f"{self._name}: grad: expected a sparse gradient, got a dense one")
        values, rows, order = grad._values(), grad._indices(), order_of(None)
        known = is_known(grad, rows)
        if not known and grad.sparse_dim() != 1:
            raise RuntimeError(f"{self._name}: grad: expected 1 sparse dimension, got {grad.sparse_dim()}")
        if decay := group.get("weight_decay"):
            rows = rows[0]
            if not grad.is_coalesced():
                values, rows = coalesce_rows(values, rows, table.shape[0], order)
            values = _with_decay(table, values, rows, decay, group)
        state = self.state[table]
        self._apply(table, state, group, ops.apply_rows_, values, (rows,), (order, known))
        if self._counts_steps:
            state["step"] += 1

    def _apply(
        self,
        table: Tensor,
        state: dict[str, Any],
        group: Any,
        operator: Callable[..., None],
        grad: Tensor,
        where: tuple[Any, ...],
        last: tuple[Any, ...],
    ) -> None:
        rule = (self._next_rule if can_be_captured(table) else self._rule)(table, state, group)
        first, second = (*self._states, None, None)[:2]
        # Adam's exp_avg would have the wrong sign if the rate were negative.
        if group["maximize"]:
            grad, rule = (-grad, rule) if rule.optimizer == "adam" else (grad, rule._replace(learning_rate=-rule[1]))
        arguments = table, state.get(first), state.get(second), grad, *where
        if isinstance(rule.learning_rate, Tensor):
            operator(*arguments, *rule._replace(learning_rate=0.0), *last, rate=rule.learning_rate)
        else:
            operator(*arguments, *rule, *last)

    def _named(self, error: RuntimeError) -> Exception:
        """An operator's error, which then names this optimizer and its states."""
        names = ("m", "v") if len(self._states) == 2 else ("accumulator",)
        states = dict(zip(names, self._states, strict=False))
        return named(error, f"optim.{type(self).__name__}", table="params", indices="grad.indices", **states)

    @property
    def _name(self) -> str:
        return f"raggrad.torch.optim.{type(self).__name__}"

    def _next_rule(self, table: Tensor, state: dict[str, Any], group: Any) -> Rule:
        """The next step of a table on a GPU. In a graph, and after one was captured, its rate is computed there."""
        if being_captured(table) or self._steps_on_device(table) is not None:
            return self._rule_on_device(table, state, group)
        rule = self._rule(table, state, group)
        if self._fused and self._counts_steps and table not in self._graph_steps:
            self._graph_steps[table] = GraphSteps(table, state["step"], group.get("betas"))
        return rule

    def _rule_on_device(self, table: Tensor, state: dict[str, Any], group: Any) -> Rule:
        steps = self._graph_steps.get(table)
        if any(name not in state for name in self._states) or (self._counts_steps and steps is None):
            raise RuntimeError(
                f"{self._name}: expected fused=True and one step before a CUDA graph captures others, as torch asks"
            )
        lr = group["lr"]
        lr = lr.reshape(1).double() if isinstance(lr, Tensor) and lr.device == table.device else float(lr)
        rule = self._rule(table, state, {**group, "lr": 0.0})
        return rule._replace(learning_rate=self._rate_on_device(lr, steps, state, group))

    def _rate_on_device(self, lr: Any, steps: Any, state: dict[str, Any], group: Any) -> Any:
        """The rate of the next step, from a learning rate that is a number or a tensor."""
        return lr

    def _steps_on_device(self, table: Tensor) -> GraphSteps | None:
        """Counts the steps of a table that a CUDA graph has captured."""
        steps = self._graph_steps.get(table) if self._graph_steps else None
        return steps if steps is not None and steps.captured else None

    def _read_graph_steps(self) -> None:
        for table, steps in self._graph_steps.items():
            steps.read_into(self.state[table])

    def _keep_types(self, loaded: dict[str, Any], before: dict[Tensor, dict[str, Any]]) -> None:
        for group, saved in zip(self.param_groups, loaded["param_groups"], strict=True):
            for table, number in zip(group["params"], saved["params"], strict=True):
                for key, value in loaded["state"].get(number, {}).items():
                    if key != "step" and isinstance(value, Tensor):
                        self.state[table][key] = value.to(table.device, state_type(table))
                if table in before:
                    self._move_states(table, group, before[table])

    def _move_states(self, table: Tensor, group: Any, memory: dict[str, Any]) -> None:
        """Moves the states of a table into the memory of those that it had."""
        state = self.state[table]
        self._rule(table, state, group)  # makes those that were not loaded
        for name in self._states:
            new, old = state[name], memory.get(name)
            if old is not None and (old.shape, old.dtype, old.device) == (new.shape, new.dtype, new.device):
                state[name] = old.copy_(new)
        if (steps := self._steps_on_device(table)) is not None:
            steps.restart(state["step"])
        else:
            self._graph_steps.pop(table, None)  # the next step makes it anew, for the betas that were loaded

    def _rule(self, table: Tensor, state: dict[str, Any], group: Any) -> Rule:
        """The next step of a table, whose states it makes if there are none."""
        raise NotImplementedError


def _with_decay(table: Tensor, values: Tensor, rows: Tensor, decay: float, group: dict[str, Any]) -> Tensor:
    """The values of a gradient that has each row once, with the decay of the weights."""
    return values.add(table.index_select(0, rows), alpha=-decay if group["maximize"] else decay)
