"""Golden files: cases that were recorded from TensorFlow.

A golden file has one JSON object per line:

    {"name": ..., "op": ..., "attrs": {...}, "inputs": {name: VALUE},
     "outputs": {name: VALUE} or "error": {"code": ..., "message": ...}, "note": ...}

tensors.py describes VALUE. A case that crashes TensorFlow has a field "tf" that says how, and the code that a
sane library answers with, which may be "OK". Lines of the batching operators are scenarios of several calls;
scenarios.py describes them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from . import scenarios


class BrokenFile(Exception):
    """A file is missing or no golden file; the text says where."""


def read_cases(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The cases of a file with their line numbers. Raises BrokenFile."""
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BrokenFile(f"{path}: {getattr(error, 'strerror', None) or 'not a text file'}") from None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            case = json.loads(line)
        except ValueError as error:
            raise BrokenFile(f"{path}:{number}: not JSON: {error}") from None
        if problem := _case_problem(case):
            raise BrokenFile(f"{path}:{number}: {problem}")
        yield number, case


def _case_problem(case: Any) -> str | None:
    if not isinstance(case, dict):
        return "a case is a JSON object"
    if scenarios.is_scenario(case):
        return None if isinstance(case.get("name"), str) else "a scenario needs a name"
    for key, kind in (("name", str), ("op", str), ("attrs", dict), ("inputs", dict)):
        if not isinstance(case.get(key), kind):
            return f"a case needs a field {key!r} ({kind.__name__})"
    if "outputs" not in case and "code" not in case.get("error", {}):
        return "a case needs 'outputs' or an 'error' with a code"
    return None


def find_files(paths: list[str]) -> list[Path]:
    """The .jsonl files among and below the paths. Raises BrokenFile."""
    files: list[Path] = []
    for path in map(Path, paths):
        if path.is_dir():
            files.extend(sorted(path.rglob("*.jsonl")))
        elif path.exists():
            files.append(path)
        else:
            raise BrokenFile(f"{path}: no such file or directory")
    if not files:
        raise BrokenFile(f"{' '.join(paths)}: no .jsonl files")
    return files
