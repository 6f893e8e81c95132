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
from ..settings import accumulation
from . import scenarios
from .devices import DeviceArrays, NoDevice
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


def run_case(case: dict[str, Any], device: DeviceArrays | None = None) -> dict[str, Any]:
    """Calls the operator. Returns {"outputs": {name: VALUE}} or {"error": {"code": "Internal", "message": ...}}."""
    inputs = {name: decode(value) for name, value in case["inputs"].items()}
    if device is not None:
        inputs = device.put(inputs)
    limit = get_memory_limit()
    if case.get("error", {}).get("code") == "ResourceExhausted":
        set_memory_limit(_SMALL_MEMORY)
    try:
        with accumulation("sequential"):
            result = getattr(raw_ops, case["op"])(**inputs, **case["attrs"])
    except OpError as error:
        return {"error": {"code": error.code.title().replace("_", ""), "message": error.message}}
    finally:
        set_memory_limit(limit)
    if device is not None:
        result = device.fetch(result)
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


class _Counts:
    """Counts the cases by outcome."""

    def __init__(self) -> None:
        self.passed = 0
        self.failures: list[str] = []
        self.unknown = Counter[str]()
        self.skipped = Counter[str]()  # by the reason


def run_files(paths: list[str], skip_unknown: bool, framework: str | None = None) -> int:
    """Runs the command and returns its exit status. A framework puts the operands on its GPU."""
    try:
        files = find_files(paths)
        device = None if framework is None else DeviceArrays(framework)
        counts = _run_all(files, device)
    except (BrokenFile, NoDevice) as problem:
        print(f"raggrad conformance: {problem}", file=sys.stderr)
        return 2
    for line in counts.failures:
        print(line)
    failed, unknown = len(counts.failures), counts.unknown
    if skip_unknown:
        if unknown:
            print(f"{sum(unknown.values())} cases of {len(unknown)} unknown operators not run")
    else:
        failed += sum(unknown.values())
        for op, count in sorted(unknown.items()):
            print(f"{op}: unknown operator, {count} cases failed")
    for reason, count in counts.skipped.most_common():
        print(f"{count} skipped: {reason}")
    print(f"{counts.passed} passed, {failed} failed")
    return 1 if failed else 0


def _run_all(files: list[Path], device: DeviceArrays | None) -> _Counts:
    counts = _Counts()
    sizes = [os.path.getsize(file) for file in files]
    progress = _Progress(sum(sizes))
    try:
        for i, file in enumerate(files):
            progress.show(sum(sizes[:i]), file.name)
            for number, case in read_cases(file):
                _run_one(f"{file}:{number}", case, device, counts)
    finally:
        progress.clear()
    return counts


def _run_one(place: str, case: dict[str, Any], device: DeviceArrays | None, counts: _Counts) -> None:
    scenario = scenarios.is_scenario(case)
    if scenario and not scenarios.is_playable(case):
        return
    if not scenario and not has_operator(case["op"]):
        counts.unknown[case["op"]] += 1
        return
    try:
        reason = None
        if device is not None:
            reason = "scenarios of batching run in host memory" if scenario else device.why_not(case)
        if reason is not None:
            counts.skipped[reason] += 1
            return
        difference = scenarios.play(case) if scenario else compare(case, run_case(case, device))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BrokenFile(f"{place}: {type(error).__name__}: {error}") from None
    except RuntimeError as error:  # of a framework
        difference = f"{type(error).__name__}: {error}"
    if difference is None:
        counts.passed += 1
    else:
        counts.failures.append(f"{place}: {case['name']}: {difference}")
