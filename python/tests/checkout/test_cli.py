"""python -m raggrad: its output and exit status, and never a traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import raggrad
from conftest import ROOT

GOOD = ROOT / "goldens" / "SparseFillEmptyRowsGrad.jsonl"


def run(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    result = subprocess.run(
        [sys.executable, "-m", "raggrad", *map(str, arguments)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in result.stderr
    return result


def one_line(result: subprocess.CompletedProcess[str]) -> str:
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    return result.stderr


@pytest.mark.parametrize(
    "arguments", [[], ["nonsense"], ["conformance"], ["doctor", "extra"], ["conformance", "--bad", "x"]]
)
def test_bad_usage(arguments: list[str]) -> None:
    result = run(*arguments)
    assert result.returncode == 2
    assert one_line(result).startswith("python -m raggrad")


def test_help_and_version() -> None:
    assert "Operators on irregular data (sparse, ragged, batched) and their gradients" in " ".join(
        run("--help").stdout.split()
    )
    for arguments in (["--help"], ["conformance", "--help"], ["doctor", "--help"]):
        result = run(*arguments)
        assert result.returncode == 0
        assert "usage: python -m raggrad" in result.stdout
    assert run("--version").stdout.strip() == raggrad.__version__


def test_doctor() -> None:
    result = run("doctor", RAGGRAD_NUM_THREADS="3")
    assert result.returncode == 0
    rows = dict(line.split(":", 1) for line in result.stdout.splitlines())
    assert rows["raggrad"].strip() == raggrad.__version__
    assert rows["threads"].strip() == "3"
    assert rows["instruction set"].strip() in rows["available"]
    gpus = {name: verdict.strip() for name, verdict in rows.items() if "GPU" in name}
    assert gpus
    assert all(verdict.startswith(("works", "none found", "not tried")) for verdict in gpus.values()), gpus
    for name in ("memory limit", "python", "numpy", "ml_dtypes", "torch", "jax", "tensorflow"):
        assert rows[name].strip()


def test_doctor_knows_frameworks_by_what_is_imported(tmp_path: Path) -> None:
    package, metadata = tmp_path / "cupy", tmp_path / "cupy_cuda13x-14.1.2.dist-info"
    package.mkdir()
    (package / "__init__.py").write_text("raise ImportError('no driver')")
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: cupy-cuda13x\nVersion: 14.1.2\n")
    (metadata / "top_level.txt").write_text("cupy\n")
    rows = dict(line.split(":", 1) for line in run("doctor", PYTHONPATH=str(tmp_path)).stdout.splitlines())
    assert rows["cupy"].strip() == "14.1.2"
    assert rows["cupy GPU"].strip() == "none found: no driver"


def test_doctor_tells_of_bad_settings() -> None:
    result = run("doctor", RAGGRAD_ISA="sse5", RAGGRAD_NUM_THREADS="many")
    assert result.returncode == 1
    assert "RAGGRAD_ISA: instruction set 'sse5' is not available" in result.stdout
    assert "RAGGRAD_NUM_THREADS='many' is not a positive number and is ignored" in result.stdout


def test_every_instruction_set_passes() -> None:
    for level in raggrad._core.instruction_sets():
        result = run("conformance", GOOD, RAGGRAD_ISA=level)
        assert result.stdout.endswith("passed, 0 failed\n")


def test_conformance_of_a_folder_and_of_a_file(tmp_path: Path) -> None:
    lines = GOOD.read_text().splitlines()[:5]
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "a.jsonl").write_text("\n".join(lines[:3]) + "\n\n")
    (tmp_path / "b.jsonl").write_text("\n".join(lines[3:]))
    (tmp_path / "notes.txt").write_text("not a golden file")
    result = run("conformance", tmp_path)
    assert (result.returncode, result.stdout, result.stderr) == (0, "5 passed, 0 failed\n", "")
    assert run("conformance", tmp_path / "b.jsonl", tmp_path / "deep").stdout == "5 passed, 0 failed\n"


def test_a_wrong_result_fails(tmp_path: Path) -> None:
    cases = [json.loads(line) for line in GOOD.read_text().splitlines()[:2]]
    cases[1]["outputs"]["d_default_value"]["shape"] = [1]
    file = tmp_path / "a.jsonl"
    file.write_text("\n".join(map(json.dumps, cases)))
    result = run("conformance", file)
    assert result.returncode == 1
    first, last = result.stdout.splitlines()
    assert first.startswith(f"{file}:2: {cases[1]['name']}: d_default_value: expected shape [1], got []")
    assert last == "1 passed, 1 failed"


def test_unknown_operators(tmp_path: Path) -> None:
    known = GOOD.read_text().splitlines()[0]
    unknown = [json.dumps({**json.loads(known), "op": op}) for op in ("NoSuchOp", "Tensor", "NoSuchOp", "errors")]
    (tmp_path / "a.jsonl").write_text("\n".join([known, *unknown]))
    result = run("conformance", tmp_path)
    assert result.returncode == 1
    assert result.stdout.splitlines() == [
        "NoSuchOp: unknown operator, 2 cases failed",
        "Tensor: unknown operator, 1 cases failed",
        "errors: unknown operator, 1 cases failed",
        "1 passed, 4 failed",
    ]
    result = run("conformance", "--skip-unknown", tmp_path)
    assert result.returncode == 0
    assert result.stdout == "4 cases of 3 unknown operators not run\n1 passed, 0 failed\n"


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ('{"name": ', "not JSON"),
        ("[]", "a case is a JSON object"),
        ('{"name": "x"}', "a case needs a field 'op'"),
        ('{"name": "x", "op": "y", "attrs": {}, "inputs": {}}', "'outputs' or an 'error'"),
        ('{"name": "x", "op": "y", "attrs": {}, "inputs": {}, "error": "z"}', "'outputs' or an 'error'"),
        ('{"name": "x", "op": "SparseSliceGrad", "attrs": {}, "inputs": {}, "outputs": {}}', "TypeError"),
        (
            '{"name": "x", "op": "SparseSliceGrad", "attrs": {}, "outputs": {}, '
            '"inputs": {"input_start": {"shape": [1]}}}',
            "KeyError: 'dtype'",
        ),
        (
            '{"name": "x", "op": "SparseSliceGrad", "attrs": {}, "outputs": {}, '
            '"inputs": {"input_start": {"dtype": "int64", "shape": [1], "data": "!"}}}',
            "Error",
        ),
    ],
)
def test_broken_lines(tmp_path: Path, line: str, text: str) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text(GOOD.read_text().splitlines()[0] + "\n" + line + "\n")
    result = run("conformance", file)
    assert result.returncode == 2
    message = one_line(result)
    assert f"{file}:2: " in message
    assert text in message


def test_missing_and_unreadable_files(tmp_path: Path) -> None:
    result = run("conformance", tmp_path / "nowhere")
    assert result.returncode == 2
    assert "no such file or directory" in one_line(result)
    result = run("conformance", tmp_path)
    assert result.returncode == 2
    assert "no .jsonl files" in one_line(result)
    (tmp_path / "a.jsonl").write_bytes(b"\xff\xfe\0")
    result = run("conformance", tmp_path)
    assert result.returncode == 2
    assert "not a text file" in one_line(result)
