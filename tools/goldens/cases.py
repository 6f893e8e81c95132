"""All golden cases: the directed ones of every operator, and random ones.

A case is a dict in the format of the golden files, without the answer. To cover one more operator, write a module with
OPERATORS, directed(op) and random_case(rng, op, max_elements), and name it in MODULES. TensorFlow must survive every
random case and not answer with uninitialised memory; other inputs belong into crashes.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from . import (
    fill_empty_rows,
    fill_empty_rows_grad,
    from_variant,
    segment,
    segment_grad,
    slice_grad,
    sparse_slice,
    to_variant,
    variant_grad,
)

MODULES = (
    segment_grad, fill_empty_rows_grad, slice_grad, variant_grad, segment, fill_empty_rows, sparse_slice, to_variant,
    from_variant,
)
OPERATORS = {op: module for module in MODULES for op in module.OPERATORS}


def directed_cases(op: str) -> Iterator[dict[str, Any]]:
    """The fixed cases of an operator: every type, shape, quirk and error, each with its name."""
    for case in OPERATORS[op].directed(op):
        yield case.to_json()


def random_case(
    rng: np.random.Generator, op: str | None = None, max_elements: int = 2000
) -> dict[str, Any]:
    """A random case, hostile values included; about one in seven is meant to be an error."""
    if op is None:
        op = list(OPERATORS)[rng.integers(len(OPERATORS))]
    return OPERATORS[op].random_case(rng, op, max_elements).to_json()
