"""Runs golden cases, recorded from TensorFlow, through the operators and compares bits.

A golden file has one JSON object per line:

    {"name": ..., "op": ..., "attrs": {...}, "inputs": {name: VALUE},
     "outputs": {name: VALUE} or "error": {"code": ..., "message": ...}, "note": ...}

    VALUE    TENSOR, VARIANT or a list of TENSOR
    TENSOR   {"dtype": "float32", "shape": [2], "data": base64 of little-endian elements; of strings a list of such}
    VARIANT  {"dtype": "variant", "shape": [...], "elements": [RAGGED or null, ...]}
    RAGGED   {"nested_splits": [TENSOR, ...], "values": TENSOR}

Cases that crash TensorFlow carry a field "tf" that says how, and the code a sane library answers with, "OK" included.

Lines of the batching operators are scenarios of several calls; scenarios.py says what they look like.
"""

from __future__ import annotations

import base64
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from . import raw_ops, scenarios
from ._core import Tensor, get_memory_limit, set_memory_limit
from .errors import OpError
from .ragged import Ragged, VariantArray, variant_parts

# Cases that expect the memory to run out ask for more than this, and no other case does.
_SMALL_MEMORY = 8 << 30

# TensorFlow lists these types for SparseSliceGrad but has no kernel for them; we have.
_ONLY_HERE = {"SparseSliceGrad": ("qint8", "quint8", "qint32")}

# The names of single outputs that are not called "output".
_OUTPUT_NAMES = {
    "RaggedTensorToVariant": "encoded_ragged",
    "RaggedTensorToVariantGradient": "dense_values_grad",
    "SparseSliceGrad": "val_grad",
}


# Dtypes that recorders call by another name.
_SHORT_NAMES = {"float16": "half"}


class BrokenFile(Exception):
    """A file that is no golden file; the text says where."""


def has_operator(op: str) -> bool:
    return op in raw_ops.__all__ and not op.endswith("Output")


def run_case(case: dict[str, Any]) -> dict[str, Any]:
    """What the operator gives: {"outputs": {name: TENSOR}} or {"error": {"code": "Internal", "message": ...}}."""
    inputs = {name: _decode(value) for name, value in case["inputs"].items()}
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
        return {"outputs": {name: _encode(value) for name, value in result._asdict().items()}}
    return {"outputs": {_OUTPUT_NAMES.get(case["op"], "output"): _encode(result)}}


def compare(case: dict[str, Any], got: dict[str, Any]) -> str | None:
    """None if `got`, from run_case, is what the case asks for; otherwise one line that says what differs."""
    error = case.get("error", {"code": "OK"})
    note = case.get("note", "")
    if note.startswith("dtype") and "error" in case:
        # TensorFlow answers some of these with NOT_FOUND; here a dtype that an operator lacks is always a bad argument.
        expected = "OK" if _is_only_here(case) else "InvalidArgument"
        return _compare_code(expected, got)
    if error["code"] == "OK":
        return _compare_code("OK", got) or _compare_outputs(case["outputs"], got["outputs"])
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


def _compare_outputs(expected: dict[str, Any], got: dict[str, Any]) -> str | None:
    if list(expected) != list(got):
        return f"expected the outputs {list(expected)}, got {list(got)}"
    wanted, given = dict(_tensors(expected)), dict(_tensors(got))
    if list(wanted) != list(given):
        return f"expected the tensors {list(wanted)}, got {list(given)}"
    for name, want in wanted.items():
        have = given[name]
        for what in ("dtype", "shape"):
            if _SHORT_NAMES.get(str(want[what]), want[what]) != have[what]:
                return f"{name}: expected {what} {want[what]}, got {have[what]}"
        if want["data"] != have["data"] and (difference := _first_difference(want, have)):
            return f"{name}: {difference}"
    return None


def _tensors(value: Any, name: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """The tensors in a dict of outputs, in a list, in the elements of a variant, each with its path."""
    if isinstance(value, list):
        for i, item in enumerate(value):
            yield from _tensors(item, f"{name}[{i}]")
    elif value is None:
        yield name, {"dtype": "missing", "shape": [], "data": ""}
    elif value.get("dtype") == "variant":
        yield name, {"dtype": "variant", "shape": value["shape"], "data": ""}
        yield from _tensors(value["elements"], f"{name}.elements")
    elif "data" in value:
        yield name, value
    else:
        for key, item in value.items():
            yield from _tensors(item, f"{name}.{key}" if name else key)


def _first_difference(want: dict[str, Any], have: dict[str, Any]) -> str | None:
    """Where two tensors of the same dtype and shape differ in bits, any NaN being equal to any NaN."""
    expected, got = (np.ravel(_numpy(tensor)) for tensor in (want, have))
    if expected.dtype.kind == "c":  # real and imaginary parts count as elements of their own
        expected, got = expected.view(expected.real.dtype), got.view(got.real.dtype)
    if expected.dtype == object:
        differs = expected != got
    else:
        bits = np.dtype(f"u{expected.dtype.itemsize}")
        differs = expected.view(bits) != got.view(bits)
        if expected.dtype.kind == "f" or want["dtype"] == "bfloat16":
            differs &= ~(np.isnan(expected) & np.isnan(got))
    if not differs.any():
        return None
    first = int(np.argmax(differs))
    return (
        f"{int(differs.sum())} of {len(differs)} elements differ, "
        f"first [{first}]: expected {expected[first]}, got {got[first]}"
    )


def _numpy_dtype(name: str) -> np.dtype:
    if name[0] == "q":
        name = name[1:]
    return np.dtype("float16" if name == "half" else getattr(ml_dtypes, name, name))


def _numpy(tensor: dict[str, Any]) -> np.ndarray:
    if tensor["dtype"] == "string":
        strings = np.empty(len(tensor["data"]), object)
        strings[:] = [base64.b64decode(text) for text in tensor["data"]]
        return strings.reshape(tensor["shape"])
    return np.frombuffer(base64.b64decode(tensor["data"]), _numpy_dtype(tensor["dtype"])).reshape(tensor["shape"])


def _decode(value: Any) -> Any:
    if isinstance(value, list):
        return [_decode(item) for item in value]
    if value["dtype"] == "variant":
        elements = [
            None if e is None else Ragged([_decode(s) for s in e["nested_splits"]], _decode(e["values"]))
            for e in value["elements"]
        ]
        return VariantArray(elements, value["shape"])
    array = _numpy(value)
    return Tensor(array, value["dtype"]) if value["dtype"][0] == "q" else array


def _encode(value: Any) -> Any:
    if isinstance(value, list):
        return [_encode(item) for item in value]
    if isinstance(value, VariantArray):
        elements, shape = variant_parts(value, "")
        encoded = [None if elements[i] is None else _encode(elements[i]) for i in range(len(elements))]
        return {"dtype": "variant", "shape": list(shape), "elements": encoded}
    if isinstance(value, Ragged):
        return {"nested_splits": _encode(value.nested_splits), "values": _encode(value.values)}
    array = value.numpy() if isinstance(value, Tensor) else value
    dtype = value.dtype if isinstance(value, Tensor) else Tensor(value).dtype
    if dtype == "string":
        data: Any = [base64.b64encode(item).decode() for item in array.ravel()]
    else:
        data = base64.b64encode(array.tobytes()).decode()
    return {"dtype": dtype, "shape": list(array.shape), "data": data}


def read_cases(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The cases of a file with the numbers of their lines. Raises BrokenFile."""
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


class _Progress:
    """A bar on standard error, if somebody is looking."""

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
    """The command `conformance`: returns the exit status."""
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
                    if scenario:
                        difference = scenarios.play(case, (_decode, _encode), _compare_outputs)
                    else:
                        difference = compare(case, run_case(case))
                except (KeyError, TypeError, ValueError, AttributeError) as error:
                    raise BrokenFile(f"{file}:{number}: {type(error).__name__}: {error}") from None
                if difference is None:
                    passed += 1
                else:
                    failures.append(f"{file}:{number}: {case['name']}: {difference}")
    finally:
        progress.clear()
    return passed, failures, unknown
