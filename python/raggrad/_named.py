"""Errors that begin with the function the user called, not with the operator inside it."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from .errors import OpError

P = ParamSpec("P")
R = TypeVar("R")

# Matches "SparseSegmentSumGradV2: " and "IndexedSlices.coalesce: ", but neither "RAGGRAD_ISA: " nor a sentence.
_OPERATOR = re.compile(r"^[A-Za-z]\w*[a-z]\w*(\.\w+)?( with a plan)?: ")


def named(**arguments: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorates a function so that errors of operators inside it begin with its name.

    `arguments` maps the operators' argument names to those of the function.
    """
    others = re.compile(rf"\b({'|'.join(arguments)})\b") if arguments else None

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                return function(*args, **kwargs)
            except OpError as error:
                text = _OPERATOR.sub("", error.message, count=1)
                if text == error.message or error.message.startswith(f"{function.__qualname__}: "):
                    raise
                if others is not None:
                    text = others.sub(lambda found: arguments[found[0]], text)
                raise type(error)(f"{function.__qualname__}: {text}") from None

        return call

    return decorate
