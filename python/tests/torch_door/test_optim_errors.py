"""Errors of rt.optim name the optimizer and the argument, and leave weights and states as they were."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from .door import WIDTH, random_table, rt, torch

SGD, ADAGRAD, ADAM = rt.optim.SparseSGD, rt.optim.SparseAdagrad, rt.optim.SparseAdam
TABLES = [torch.nn.Parameter(torch.zeros(3, 2))]

ARGUMENTS: dict[str, tuple[Callable[[], Any], str]] = {
    "SGD's lr": (lambda: SGD(TABLES, lr=-1), "SparseSGD: lr: expected at least 0.0, got -1"),
    "NaN": (lambda: SGD(TABLES, lr=float("nan")), "SparseSGD: lr: expected at least 0.0, got nan"),
    "Adagrad's lr": (lambda: ADAGRAD(TABLES, lr=-1), "SparseAdagrad: lr: expected at least 0.0"),
    "lr_decay": (lambda: ADAGRAD(TABLES, lr_decay=-1), "SparseAdagrad: lr_decay: expected at least 0.0"),
    "accumulator": (lambda: ADAGRAD(TABLES, initial_accumulator_value=-1), "initial_accumulator_value: expected at"),
    "Adagrad's eps": (lambda: ADAGRAD(TABLES, eps=-1), "SparseAdagrad: eps: expected at least 0.0"),
    "Adam's lr": (lambda: ADAM(TABLES, lr=0), "SparseAdam: lr: expected more than 0.0, got 0"),
    "Adam's eps": (lambda: ADAM(TABLES, eps=0), "SparseAdam: eps: expected more than 0.0, got 0"),
    "beta1": (lambda: ADAM(TABLES, betas=(1.0, 0.9)), "SparseAdam: betas[0]: expected less than 1.0, got 1.0"),
    "beta2": (lambda: ADAM(TABLES, betas=(0.9, -0.1)), "SparseAdam: betas[1]: expected at least 0.0, got -0.1"),
    "one beta": (lambda: ADAM(TABLES, betas=(0.9,)), "SparseAdam: betas: expected two numbers, got (0.9,)"),
    "betas": (lambda: ADAM(TABLES, betas=0.9), "SparseAdam: betas: expected two numbers, got 0.9"),
    "rates": (lambda: ADAM(TABLES, lr=torch.ones(2)), "SparseAdam: lr: expected one number, got 2"),
    "no tables": (lambda: ADAM([]), "empty parameter list"),
}


@pytest.mark.parametrize("case", ARGUMENTS)
def test_arguments(case: str) -> None:
    call, text = ARGUMENTS[case]
    with pytest.raises(ValueError, match=re.escape(text)):
        call()


@pytest.mark.parametrize("value", [None, "0.1", [0.1], 1j])
def test_rates_that_are_no_numbers(value: Any) -> None:
    text = f"raggrad.torch.optim.SparseAdagrad: lr: expected a number, got {type(value).__name__}"
    with pytest.raises(TypeError, match=re.escape(text)):
        ADAGRAD(TABLES, lr=value)


@pytest.mark.parametrize("optimizer", [SGD, ADAGRAD, ADAM])
def test_dense_gradients(optimizer: Any) -> None:
    table = torch.nn.Parameter(torch.zeros(3, 2))
    table.grad = torch.ones(3, 2)
    with pytest.raises(RuntimeError, match=rf"optim\.{optimizer.__name__}: grad: expected a sparse gradient, got a"):
        optimizer([table], lr=0.1).step()
    table.grad = torch.ones(3, 2).to_sparse()
    with pytest.raises(RuntimeError, match="grad: expected 1 sparse dimension, got 2"):
        optimizer([table], lr=0.1).step()


@pytest.mark.parametrize("optimizer", [SGD, ADAGRAD, ADAM])
def test_rows_out_of_range_change_nothing(optimizer: Any) -> None:
    table = torch.nn.Parameter(random_table(torch.float32, rows=10))
    steps = optimizer([table], lr=0.1)
    rows = torch.tensor([[1, 10]])
    table.grad = torch.sparse_coo_tensor(rows, torch.ones(2, WIDTH), table.shape, check_invariants=False)
    name = f"raggrad.torch.optim.{optimizer.__name__}"
    with pytest.raises(ValueError, match=re.escape(f"{name}: Index 10 out of range [0, 10). [grad.indices[1]]")):
        steps.step()
    assert torch.equal(table, random_table(torch.float32, rows=10))
    assert int(steps.state[table].get("step", 0)) == 0


def test_tables_that_are_not_contiguous() -> None:
    table = torch.nn.Parameter(torch.zeros(2, 3).t())
    table.grad = torch.sparse_coo_tensor([[1]], torch.ones(1, 2), (3, 2))
    with pytest.raises(ValueError, match=r"SparseAdam: \[params: expected a contiguous tensor\]"):
        ADAM([table]).step()


@pytest.mark.parametrize(("optimizer", "state"), [(ADAGRAD, "sum"), (ADAM, "exp_avg")])
def test_a_table_that_has_grown(optimizer: Any, state: str) -> None:
    """The error has torch's name of the state that did not."""
    table = torch.nn.Parameter(torch.zeros(3, 2))
    steps = optimizer([table])
    for rows in (3, 5):
        table.data = torch.zeros(rows, 2)
        table.grad = torch.sparse_coo_tensor([[1]], torch.ones(1, 2), table.shape)
        if rows == 3:
            steps.step()
    with pytest.raises(ValueError, match=re.escape(f"[{state}: expected [5,2], got [3,2]]")):
        steps.step()


@pytest.mark.parametrize("optimizer", [SGD, ADAGRAD, ADAM])
def test_tables_that_no_gradient_can_change(optimizer: Any) -> None:
    """They are refused at once, and an optimizer that was there stays as it was."""
    steps = optimizer(TABLES)
    name = f"raggrad.torch.optim.{optimizer.__name__}: params: expected dense tables of real numbers, got "
    for table, kind in ((torch.zeros(3, 2, dtype=torch.complex64), "torch.complex64"),
                        (torch.zeros(3, 2).to_sparse(), "a sparse one")):  # fmt: skip
        with pytest.raises(ValueError, match=re.escape(name + kind)):
            optimizer([table])
        with pytest.raises(ValueError, match=re.escape(name + kind)):
            steps.add_param_group({"params": [table]})
    assert [group["params"] for group in steps.param_groups] == [TABLES]
