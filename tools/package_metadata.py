"""The version and the description of the Python package, for scikit-build-core (pyproject.toml names this file).

The version is the one of project() in CMakeLists.txt. The description is README.md, for readers of a package index, who
have no tree: links into the tree become addresses under the `Source` of [project.urls], in the way of the usual forges.
Without such an address their text stays, and pictures are left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"(!?)\[([^\]]*)\]\((?![a-z]+:|#)([^)\s]+)\)")  # of one file to another
_FENCED = re.compile(r"^(```.*?^```$)", re.MULTILINE | re.DOTALL)


def version() -> str:
    return re.search(r"^project\(raggrad VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text(), re.MULTILINE)[1]


def description(text: str, source: str | None) -> str:
    def link(found: re.Match[str]) -> str:
        picture, label, path = found.groups()
        if source is None:
            return "" if picture else label
        kind = "raw" if picture else "tree" if (ROOT / path).is_dir() else "blob"
        return f"{picture}[{label}]({source.rstrip('/')}/{kind}/v{version()}/{path})"

    parts = _FENCED.split(text)
    parts[::2] = [LINK.sub(link, part) for part in parts[::2]]  # the others are code
    return "".join(parts)


def dynamic_metadata(_settings: Mapping[str, Any], project: Mapping[str, Any]) -> dict[str, Any]:
    text = description((ROOT / "README.md").read_text(), project.get("urls", {}).get("Source"))
    return {"version": version(), "readme": {"text": text, "content-type": "text/markdown"}}


if __name__ == "__main__":
    print(version())
