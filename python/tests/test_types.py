"""Tests of the public interface as type checkers and inspect see it."""

from __future__ import annotations

import inspect
import re
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import raggrad
from raggrad import batching, errors, ops, optimizers, raw_ops

USER = Path(__file__).with_name("typed_user.py")
README = Path(__file__).parents[2] / "README.md"
MODULES = [raggrad, batching, ops, optimizers, raw_ops, raggrad.typing]


def public_names() -> list[tuple[str, object]]:
    return [(f"{m.__name__}.{name}", getattr(m, name)) for m in MODULES for name in m.__all__] + [
        (f"raggrad.errors.{name}", cls) for name, cls in vars(errors).items() if name.endswith("Error")
    ]


@pytest.fixture(scope="module")
def check(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], None]:
    """check(name, code) raises mypy's complaints. All calls share a cache: reading NumPy's types takes seconds."""
    pytest.importorskip("mypy")
    folder = tmp_path_factory.mktemp("types")

    def run(name: str, code: str) -> None:
        program = folder / name
        program.write_text(code)
        command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(folder / "cache"), str(program)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=600)
        assert done.stdout.startswith("Success"), done.stdout + done.stderr

    return run


Check = Callable[[str, str], None]


def test_a_strict_program_has_no_errors(check: Check) -> None:
    everything = "".join(f"print({name})\n" for name, _ in public_names())
    imports = "".join(f"import {module.__name__}\n" for module in MODULES) + "import raggrad.errors\n"
    check("everything.py", imports + everything)
    check("typed_user.py", USER.read_text())


def test_a_wrong_argument_is_an_error_of_types(check: Check) -> None:
    code = "from raggrad import raw_ops\nraw_ops.SparseSegmentSum(data=None, indices=[0], segment_ids=[0])\n"
    with pytest.raises(AssertionError, match='Argument "data"'):
        check("wrong.py", code)


def test_examples_of_the_readme_have_no_errors(check: Check) -> None:
    examples = re.findall(r"^```python\n(.*?)^```$", README.read_text(), re.DOTALL | re.MULTILINE)
    assert examples
    for i, code in enumerate(examples):
        check(f"example_{i}.py", code)


def test_the_strict_program_runs() -> None:
    threads = raggrad.get_num_threads()
    try:
        runpy.run_path(str(USER), run_name="__main__")
    finally:
        raggrad.set_num_threads(threads)
        raggrad.set_memory_limit(None)


@pytest.mark.parametrize(("name", "value"), [(n, v) for n, v in public_names() if callable(v)])
def test_signatures(name: str, value: object) -> None:
    if getattr(value, "__module__", "") == "typing":
        return  # an alias
    assert isinstance(inspect.signature(value), inspect.Signature), name


def test_signatures_of_the_extension_types() -> None:
    assert list(inspect.signature(raggrad.Tensor).parameters) == ["data", "dtype"]
    plan = inspect.signature(raggrad.SegmentPlan).parameters
    assert list(plan) == ["indices", "segment_ids", "num_rows", "num_segments"]
    assert inspect.signature(raggrad.Tensor).parameters["dtype"].default is None
    assert list(inspect.signature(batching.Cancellation).parameters) == ["parent"]
    assert list(inspect.signature(raggrad.set_num_threads).parameters) == ["threads"]
