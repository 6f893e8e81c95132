"""Batching calls as futures and for asyncio."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from .._core import Cancellation
from ..errors import CancelledError, OpError


class Call(Future[Any]):
    """The future of one call."""

    def __init__(self, method: Callable[..., Any], arguments: dict[str, Any]) -> None:
        super().__init__()
        self._method = method  # bound to its runtime, which must live while the call waits
        self._token = Cancellation(arguments.get("cancellation"))
        self._cancel_wanted = False
        try:
            method(**{**arguments, "cancellation": self._token, "done": self._complete})
        except OpError as error:
            self.set_exception(error)

    def cancel(self) -> bool:
        """Ends the wait. Returns False if the call is over or its result on the way."""
        self._cancel_wanted = True
        self._token.cancel()  # calls _complete, if the call waits
        return self.cancelled()

    def _complete(self, value: Any, error: BaseException | None) -> None:
        if error is None:
            self.set_result(value)
        elif self._cancel_wanted and isinstance(error, CancelledError):
            super().cancel()
            self.set_running_or_notify_cancel()
        else:
            self.set_exception(error)


async def awaited(call: Future[Any]) -> Any:
    import asyncio  # its import takes as long as that of raggrad

    return call.result() if call.done() else await asyncio.wrap_future(call)
