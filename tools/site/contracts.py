"""Reference pages from C++: public headers as they are, and the docstrings of classes that are compiled.

A page names them: `<!-- headers: raggrad/core -->` stands for the headers that this folder installs,
`<!-- class: Tensor, python/bindings/tensor.cc -->` for the docstring of a class.
"""

from __future__ import annotations

import re
from pathlib import Path

from doctests import fence

_HEADERS = re.compile(r"^<!-- headers: (\S+) -->$", re.MULTILINE)
_CLASS = re.compile(r"^<!-- class: (\w+), (\S+) -->$", re.MULTILINE)
# Nothing that a reader of the contract needs.
_NOISE = re.compile(r"^#(pragma|include|ifdef __cplusplus|endif).*\n|^extern \"C\".*\n|^}  // extern.*\n", re.MULTILINE)


def fill(markdown: str, root: Path) -> str:
    """Replaces the marks of a page by what they name."""
    markdown = _HEADERS.sub(lambda mark: headers(mark[1], root), markdown)
    return _CLASS.sub(lambda mark: compiled_class(mark[1], root / mark[2]), markdown)


def headers(folder: str, root: Path) -> str:
    """The headers of a folder that its CMakeLists.txt installs."""
    names = re.search(r"^raggrad_headers\(([^)]*)\)", (root / folder / "CMakeLists.txt").read_text(), re.MULTILINE)
    if names is None:
        raise SystemExit(f"{folder} installs no headers")
    return "\n\n".join(header(f"{folder}/{name}", root) for name in names[1].split())


def header(name: str, root: Path) -> str:
    """A header, all but its includes."""
    text = re.sub(r"\n{3,}", "\n\n", _NOISE.sub("", (root / name).read_text())).strip()
    return f"## {name}\n\n```cpp\n{text}\n```"


def compiled_class(name: str, source: Path) -> str:
    """A class of the extension module, by the docstring in its binding."""
    found = re.search(rf'"{name}",\s*R"\((.*?)\)"', source.read_text(), re.DOTALL)
    if found is None:
        raise SystemExit(f"{source}: no docstring of {name}")
    text = re.sub(r"^Args:\n", "**Parameters:**\n\n", fence(found[1]), flags=re.MULTILINE)
    text = re.sub(r"^  (\w+): ", r"- `\1`: ", text, flags=re.MULTILINE)
    return f"## `{name}`\n\n{text}"
