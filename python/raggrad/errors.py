"""Exceptions that operators raise. Each is an OpError and also a subclass of the nearest Python exception.

>>> import raggrad
>>> try:
...     raggrad.raw_ops.SparseFillEmptyRowsGrad(reverse_index_map=[5], grad_values=[1.0])
... except ValueError as error:
...     print(error.code)
INVALID_ARGUMENT
"""

from __future__ import annotations

from typing import ClassVar


class OpError(Exception):
    """A call was refused or failed. `code` is the canonical name of the reason, `message` the text."""

    code: ClassVar[str] = "UNKNOWN"

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class CancelledError(OpError, RuntimeError):
    code = "CANCELLED"


class InvalidArgumentError(OpError, ValueError):
    code = "INVALID_ARGUMENT"


class DeadlineExceededError(OpError, TimeoutError):
    code = "DEADLINE_EXCEEDED"


class NotFoundError(OpError, RuntimeError):
    code = "NOT_FOUND"


class AlreadyExistsError(OpError, RuntimeError):
    code = "ALREADY_EXISTS"


class ResourceExhaustedError(OpError, MemoryError):
    code = "RESOURCE_EXHAUSTED"


class UnimplementedError(OpError, NotImplementedError):
    code = "UNIMPLEMENTED"


class InternalError(OpError, RuntimeError):
    code = "INTERNAL"


class UnavailableError(OpError, RuntimeError):
    code = "UNAVAILABLE"


_CLASSES = {cls.code: cls for cls in OpError.__subclasses__()}


def class_for(code: str) -> type[OpError]:
    """The exception class for a canonical code."""
    return _CLASSES[code]
