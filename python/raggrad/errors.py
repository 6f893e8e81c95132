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
    """The wait of a call was ended: by a Cancellation, or because its resource or runtime was closed."""

    code = "CANCELLED"


class InvalidArgumentError(OpError, ValueError):
    """An argument is not what the operator takes; also a ValueError. The text says which, where, expected and got."""

    code = "INVALID_ARGUMENT"


class DeadlineExceededError(OpError, TimeoutError):
    """A call of raggrad.batching waited for as long as it may; also a TimeoutError."""

    code = "DEADLINE_EXCEEDED"


class NotFoundError(OpError, RuntimeError):
    """There is no resource of this name."""

    code = "NOT_FOUND"


class AlreadyExistsError(OpError, RuntimeError):
    """A call of raggrad.batching has an id that another call has, or brings a piece that is there already."""

    code = "ALREADY_EXISTS"


class ResourceExhaustedError(OpError, MemoryError):
    """A request for memory, or a limit of a resource, was exceeded; also a MemoryError."""

    code = "RESOURCE_EXHAUSTED"


class UnimplementedError(OpError, NotImplementedError):
    """There is no kernel for this device, or for so many ids or columns; also a NotImplementedError."""

    code = "UNIMPLEMENTED"


class InternalError(OpError, RuntimeError):
    """TensorFlow's code for a gradient that finds no entry, and for a key of a batch that is listed twice."""

    code = "INTERNAL"


class UnavailableError(OpError, RuntimeError):
    """A queue of batches is full, or the runtime was made before os.fork()."""

    code = "UNAVAILABLE"


_CLASSES = {cls.code: cls for cls in OpError.__subclasses__()}


def class_for(code: str) -> type[OpError]:
    """The exception class for a canonical code."""
    return _CLASSES[code]
