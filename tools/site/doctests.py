"""Griffe extension: doctests in docstrings become code blocks, as Markdown would take `>>>` for quotations."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

_DOCTEST = re.compile(r"^([ ]*)>>> .*(?:\n\1.*\S.*)*", re.MULTILINE)


def fence(text: str) -> str:
    """Doctests end at the next empty line."""
    return _DOCTEST.sub(lambda found: f"{found[1]}```pycon\n{found[0]}\n{found[1]}```", text)


class Doctests(Extension):
    def on_object(self, *, obj: Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = fence(obj.docstring.value)
