"""The package as type checkers and installers see it."""

from __future__ import annotations

import ast
from importlib import metadata
from pathlib import Path

import raggrad

PACKAGE = Path(raggrad.__file__).parent


def test_typed_marker_and_stub() -> None:
    assert (PACKAGE / "py.typed").exists()
    stub = ast.parse((PACKAGE / "_core.pyi").read_text())
    declared = {node.name for node in stub.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    assert {name for name in vars(raggrad._core) if not name.startswith("_")} <= declared
    (tensor,) = (node for node in stub.body if isinstance(node, ast.ClassDef) and node.name == "Tensor")
    methods = {node.name for node in tensor.body if isinstance(node, ast.FunctionDef)}
    assert methods >= {"__init__", "dtype", "shape", "numpy", "__array__", "__dlpack__", "__dlpack_device__"}


def test_one_binary_for_all_pythons() -> None:
    modules = [path.name for path in PACKAGE.glob("*.so") if not path.name.startswith("lib")]
    assert modules == ["_core.abi3.so"]


def test_version() -> None:
    assert raggrad.__version__ == metadata.version("raggrad")


def test_only_the_package_is_installed() -> None:
    files = metadata.files("raggrad") or []
    tops = {file.parts[0] for file in files}
    assert tops == {"raggrad", f"raggrad-{raggrad.__version__}.dist-info"}
