"""Signatures of the extension module's classes, for inspect.signature, help() and editors."""

from __future__ import annotations

from typing import Any

from . import _core


def _tensor(data: Any, dtype: Any = None) -> None: ...
def _segment_plan(indices: Any, segment_ids: Any, num_rows: int, num_segments: int) -> None: ...
def _cancellation(parent: _core.Cancellation | None = None) -> None: ...


class _Signature:
    """Made when first read: importing inspect takes a tenth of the time that importing raggrad takes."""

    def __init__(self, like: Any) -> None:
        self._like = like

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        import inspect

        return inspect.signature(self._like).replace(return_annotation=inspect.Signature.empty)


for _class, _like in (
    (_core.Tensor, _tensor),
    (_core.SegmentPlan, _segment_plan),
    (_core.Cancellation, _cancellation),
):
    _class.__signature__ = _Signature(_like)  # type: ignore[attr-defined]
