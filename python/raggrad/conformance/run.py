"""Runs the cases of golden files and reports what differs."""

from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from .. import raw_ops
from .._core import get_memory_limit, set_memory_limit
from ..errors import OpError
from . import scenarios
from .files import BrokenFile, find_files, read_cases
from .tensors import compare_outputs, decode, encode

# Only cases that expect RESOURCE_EXHAUSTED ask for more memory than this.
_SMALL_MEMORY = 8 << 30

# Types that TensorFlow lists for an operator but has no kernel for; raggrad has one.
_ONLY_HERE = {"SparseSliceGrad": ("qint8", "quint8", "qint32")}

# The names of single outputs that are not called "output".
_OUTPUT_NAMES = {
    "RaggedTensorToVariant": "encoded_ragged",
    "RaggedTensorToVariantGradient": "dense_values_grad",
    "SparseSliceGrad": "val_grad",
}


def has_operator(op: str) -> bool:
    return op in raw_ops.__all__ and not op.endswith("Output")


def run_case(case: dict[str, Any]) -> dict[str, Any]:
    """Calls the operator. Returns {"outputs": {name: VALUE}} or {"error": {"code": "Internal", "message": ...}}."""
    inputs = {name: decode(value) for name, value in case["inputs"].items()}
    limit = get_memory_limit()
    if case.get("error", {}).get("code") == "ResourceExhausted":
        set_memory_limit(_SMALL_MEMORY)
    try:
        result = getattr(raw_ops, case["op"])(**inputs, **case["attrs"])
    except OpError as error:
        return {"error": {"code": error.code.title().replace("_", ""), "message": error.message}}
    finally:
        set_memory_limit(limit)
    if hasattr(result, "_fields"):
        return {"outputs": {name: encode(value) for name, value in result._asdict().items()}}
    return {"outputs": {_OUTPUT_NAMES.get(case["op"], "output"): encode(result)}}


def compare(case: dict[str, Any], got: dict[str, Any]) -> str | None:
    """How `got`, from run_case, differs from what the case asks for, in one line. None if it does not."""
    error = case.get("error", {"code": "OK"})
    note = case.get("note", "")
    if note.startswith("dtype") and "error" in case:
        # TensorFlow answers some of these with NOT_FOUND; in raggrad an unsupported dtype is always a bad argument.
        expected = "OK" if _is_only_here(case) else "InvalidArgument"
        return _compare_code(expected, got)
    if error["code"] == "OK":
        return _compare_code("OK", got) or compare_outputs(case["outputs"], got["outputs"])
    difference = _compare_code(error["code"], got)
    if difference or note.startswith("oom"):
        return difference
    if error.get("message", "") not in got["error"]["message"]:
        return f"expected the message {error['message']!r}, got {got['error']['message']!r}"
    return None


def _is_only_here(case: dict[str, Any]) -> bool:
    dtypes = [value["dtype"] for value in case["inputs"].values() if isinstance(value, dict)]
    return any(dtype in _ONLY_HERE.get(case["op"], ()) for dtype in dtypes)


def _compare_code(expected: str, got: dict[str, Any]) -> str | None:
    error = got.get("error", {"code": "OK", "message": ""})
    if error["code"] == expected:
        return None
    return f"expected {expected}, got {error['code']} {error['message']}".rstrip()


class _Progress:
    """A progress bar on standard error, if that is a terminal."""

    def __init__(self, total: int) -> None:
        self.total = max(total, 1)
        self.active = sys.stderr.isatty()

    def show(self, done: int, text: str) -> None:
        if self.active:
            filled = 30 * done // self.total
            print(f"\r[{'#' * filled}{'.' * (30 - filled)}] {text[:40]:40}", end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        if self.active:
            print(f"\r{' ' * 76}\r", end="", file=sys.stderr, flush=True)


def run_files(paths: list[str], skip_unknown: bool) -> int:
    """Runs the command and returns its exit status."""
    try:
        files = find_files(paths)
        passed, failures, unknown = _run_all(files)
    except BrokenFile as broken:
        print(f"raggrad conformance: {broken}", file=sys.stderr)
        return 2
    for line in failures:
        print(line)
    failed = len(failures)
    if skip_unknown:
        if unknown:
            print(f"{sum(unknown.values())} cases of {len(unknown)} unknown operators not run")
    else:
        failed += sum(unknown.values())
        for op, count in sorted(unknown.items()):
            print(f"{op}: unknown operator, {count} cases failed")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


def _run_all(files: list[Path]) -> tuple[int, list[str], Counter[str]]:
    passed, failures, unknown = 0, [], Counter[str]()
    sizes = [os.path.getsize(file) for file in files]
    progress = _Progress(sum(sizes))
    try:
        for i, file in enumerate(files):
            progress.show(sum(sizes[:i]), file.name)
            for number, case in read_cases(file):
                scenario = scenarios.is_scenario(case)
                if scenario and not scenarios.is_playable(case):
                    continue
                if not scenario and not has_operator(case["op"]):
                    unknown[case["op"]] += 1
                    continue
                try:
                    difference = scenarios.play(case) if scenario else compare(case, run_case(case))
                except (KeyError, TypeError, ValueError, AttributeError) as error:
                    raise BrokenFile(f"{file}:{number}: {type(error).__name__}: {error}") from None
                if difference is None:
                    passed += 1
                else:
                    failures.append(f"{file}:{number}: {case['name']}: {difference}")
    finally:
        progress.clear()
    return passed, failures, unknown
