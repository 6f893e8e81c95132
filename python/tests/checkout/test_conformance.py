"""Golden cases through raw_ops, and the comparison itself."""

from __future__ import annotations

import base64
import copy
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import raggrad
from conftest import OPERATORS, ROOT
from raggrad.conformance import compare, read_cases, run_case

FOLDERS = [ROOT / "goldens", ROOT.parent / "shared" / "goldens" / "stateless"]
NAMES = [*OPERATORS, "crashes"]
FILES = [file for folder in FOLDERS for file in sorted(folder.glob("*.jsonl")) if file.stem in NAMES]


@pytest.mark.parametrize("threads", [1, 2, 7])
@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_goldens(file: Path, threads: int, restore_threads: None) -> None:
    cases = [case for _, case in read_cases(file) if case["op"] in OPERATORS]
    raggrad.set_num_threads(threads)
    failures = {case["name"]: difference for case in cases if (difference := compare(case, run_case(case)))}
    assert failures == {}


def test_every_operator_has_its_own_goldens() -> None:
    assert {file.stem for file in FILES if file.parent == FOLDERS[0]} >= set(OPERATORS)


def tensor(array: np.ndarray, dtype: str) -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(array.shape), "data": base64.b64encode(array.tobytes()).decode()}


@pytest.fixture
def case() -> dict[str, Any]:
    inputs = {
        "reverse_index_map": tensor(np.array([1]), "int64"),
        "grad_values": tensor(np.float32([1, 2, np.nan]), "float32"),
    }
    outputs = {
        "d_values": tensor(np.float32([2]), "float32"),
        "d_default_value": tensor(np.float32(-np.nan), "float32"),
    }
    return {
        "name": "test", "op": "SparseFillEmptyRowsGrad", "attrs": {}, "inputs": inputs, "outputs": outputs, "note": "",
    }  # fmt: skip


def test_equal_with_another_nan(case: dict[str, Any]) -> None:
    assert compare(case, run_case(case)) is None


def test_differences_are_found(case: dict[str, Any]) -> None:
    got = run_case(case)
    for change, text in [
        ({"data": tensor(np.float32([2.0000002]), "float32")["data"]}, r"d_values: 1 of 1 elements differ"),
        ({"data": tensor(np.float32([-0.0]), "float32")["data"]}, r"first \[0\]: expected -0.0, got 2.0"),
        ({"dtype": "int32"}, "expected dtype int32, got float32"),
        ({"shape": [1, 1]}, r"expected shape \[1, 1\], got \[1\]"),
    ]:
        changed = copy.deepcopy(case)
        changed["outputs"]["d_values"].update(change)
        assert re.search(text, compare(changed, got))
    renamed = copy.deepcopy(case)
    renamed["outputs"]["values"] = renamed["outputs"].pop("d_values")
    assert "expected the outputs" in compare(renamed, got)


def test_signed_zero_is_a_difference(case: dict[str, Any]) -> None:
    case["inputs"]["grad_values"] = tensor(np.complex64([0, 0]), "complex64")
    case["outputs"]["d_values"] = tensor(np.complex64([complex(0, -0.0)]), "complex64")
    case["outputs"]["d_default_value"] = tensor(np.complex64(0), "complex64")
    assert "d_values: 1 of 2 elements differ, first [1]" in compare(case, run_case(case))


def test_errors_are_compared(case: dict[str, Any]) -> None:
    del case["outputs"]
    case["inputs"]["reverse_index_map"] = tensor(np.array([7]), "int64")
    text = "Elements in reverse index must be in [0, 3) but got 7"
    case["error"] = {"code": "InvalidArgument", "message": text}
    assert compare(case, run_case(case)) is None
    case["error"]["message"] = "something else"
    assert "expected the message" in compare(case, run_case(case))
    case["error"]["code"] = "Internal"
    assert "expected Internal, got InvalidArgument" in compare(case, run_case(case))


def test_a_result_instead_of_an_error(case: dict[str, Any]) -> None:
    case["error"] = {"code": "InvalidArgument", "message": ""}
    assert compare(case, run_case(case)) == "expected InvalidArgument, got OK"


def test_notes_on_dtypes_and_memory(case: dict[str, Any]) -> None:
    case["error"] = {"code": "NotFound", "message": "Could not find device for node"}
    case["note"] = "dtype"
    case["inputs"]["grad_values"] = tensor(np.array([True]), "bool")
    assert compare(case, run_case(case)) is None
    slice_inputs = {
        "backprop_val_grad": tensor(np.int8([1]), "qint8"),
        "input_indices": tensor(np.array([[0]]), "int64"),
        "input_start": tensor(np.array([0]), "int64"),
        "output_indices": tensor(np.array([[0]]), "int64"),
    }
    slice_case = {**case, "op": "SparseSliceGrad", "inputs": slice_inputs}
    assert compare(slice_case, run_case(slice_case)) is None
    assert "expected OK" in compare(slice_case, {"error": {"code": "InvalidArgument", "message": ""}})
    oom = {**case, "note": "oom: too large", "error": {"code": "ResourceExhausted", "message": "TensorFlow's words"}}
    assert compare(oom, {"error": {"code": "ResourceExhausted", "message": "ours"}}) is None


def test_small_memory_for_cases_that_expect_it_to_run_out(restore_memory_limit: None) -> None:
    case = {
        "name": "oom", "op": "SparseSegmentSumGrad", "attrs": {}, "note": "oom",
        "inputs": {
            "grad": tensor(np.zeros((1, 2048), np.float32), "float32"),
            "indices": tensor(np.zeros(1, np.int32), "int32"),
            "segment_ids": tensor(np.zeros(1, np.int32), "int32"),
            "output_dim0": tensor(np.int32(1 << 21), "int32"),
        },
        "error": {"code": "ResourceExhausted", "message": "OOM"},
    }  # fmt: skip
    raggrad.set_memory_limit(123)
    assert compare(case, run_case(case)) is None
    assert raggrad.get_memory_limit() == 123


def test_cases_survive_json(case: dict[str, Any]) -> None:
    assert compare(case, json.loads(json.dumps(run_case(case)))) is None
