"""Kernels that are compiled on this machine, once per TensorFlow, and kept in the user's cache.

TensorFlow's C interface cannot look into variants, and drops the callback of an asynchronous kernel too early. Its C++
interface has neither fault, but its binaries fit one version only. So these kernels come as source code, in the folder
`sources`.
"""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path

import tensorflow as tf

from ._load import library

VARIANT_OPERATORS = ("RaggedTensorFromVariant", "RaggedTensorToVariant", "RaggedTensorToVariantGradient")
OPERATORS = ("Batch", "Unbatch", "UnbatchGrad", *VARIANT_OPERATORS)

_PACKAGE = Path(__file__).parents[1]
_SOURCES = Path(__file__).with_name("sources")
_INCLUDE = _PACKAGE / "include"
_library: ctypes.CDLL | None = None
_refused = ""  # why the library was not loaded, though it may be there


def build() -> Path:
    """Compiles the kernels of the variant and batching operators for this process's TensorFlow. Returns their library.

    Call it once; install() finds the library from then on, in this process and in others. Compiling takes 10 to 60 s; a
    library that is there already is not compiled again. It needs a C++17 compiler: the one that the environment
    variable CXX names, or g++, c++ or clang++.

    Libraries lie in $XDG_CACHE_HOME/raggrad, or ~/.cache/raggrad, and can be deleted.

    >>> import raggrad.tf
    >>> raggrad.tf.build()  # doctest: +SKIP
    PosixPath('/home/me/.cache/raggrad/tf-2.21.0-d14a028c2a3a2bc9.so')
    """
    try:
        built = _place()
        built.parent.mkdir(parents=True, exist_ok=True)
        built.with_suffix(".lock").touch()
    except (OSError, RuntimeError) as error:  # RuntimeError: the user has no home
        raise RuntimeError(
            f"raggrad.tf.build: no place for the library: {error}; the environment variable XDG_CACHE_HOME may name one"
        ) from error
    with open(built.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # of several processes, one compiles and the others wait
        if not built.exists():
            _compile(built)
    return built


def load() -> None:
    """Loads the library if it was built. TensorFlow takes its kernels from then on."""
    global _library, _refused
    try:
        built = _place()
        if not built.exists():
            return
        _library = ctypes.CDLL(str(built))
    except (OSError, RuntimeError) as error:  # a service has no home perhaps, or may not read it or run what lies there
        _refused = str(error)
        return
    _library.raggrad_tf_on_demand_calls.restype = ctypes.c_int64
    _library.raggrad_tf_on_demand_calls.argtypes = [ctypes.c_char_p]
    _library.raggrad_tf_on_demand_ask_memory(library.raggrad_tf_memory_allows)


def loaded() -> bool:
    return _library is not None


def why_not() -> str:
    """Why the kernels are not loaded, if they are not."""
    if _refused:
        return f"the library of raggrad.tf.build() cannot be loaded: {_refused}"
    if _place().exists():
        return "built after install() was called"
    reason = f"TensorFlow's C++ interface differs between versions, and there are no kernels for {tf.__version__} yet; "
    return reason + ("raggrad.tf.build() compiles them" if compiler() else _NO_COMPILER)


def calls(operator: str) -> int:
    """How many calls of one of OPERATORS raggrad answered in this process."""
    return 0 if _library is None else int(_library.raggrad_tf_on_demand_calls(operator.encode()))


_NO_COMPILER = "to compile them, a C++ compiler is needed: g++, c++ or clang++, or the one that CXX names"


def compiler() -> str | None:
    """The C++ compiler that build() uses, if there is one."""
    names = [os.environ["CXX"]] if os.environ.get("CXX") else ["g++", "c++", "clang++"]
    return next(filter(None, map(shutil.which, names)), None)


def _files() -> list[Path]:
    return [*sorted(_SOURCES.glob("*")), *sorted(_INCLUDE.rglob("*.h"))]


def _place() -> Path:
    """Where the library lies. Its name changes with all it is made of."""
    digest = hashlib.sha256(f"{tf.__version__} {tf.__git_version__} {platform.machine()}".encode())
    for file in _files():
        digest.update(file.read_bytes())
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "raggrad" / f"tf-{tf.__version__}-{digest.hexdigest()[:16]}.so"


def _compile(to: Path) -> None:
    """Compiles the sources as one, which takes little longer than each of them: most of it for TensorFlow's headers."""
    program = compiler()
    if program is None:
        raise RuntimeError(f"raggrad.tf.build: {_NO_COMPILER}")
    with tempfile.TemporaryDirectory(dir=to.parent) as folder:
        together, linked = Path(folder, "kernels.cc"), Path(folder, to.name)
        together.write_text("".join(f'#include "{source}"\n' for source in sorted(_SOURCES.glob("*.cc"))))
        flags = [*tf.sysconfig.get_compile_flags(), "-std=c++17", "-O2", "-w", "-fPIC", f"-I{_INCLUDE}"]
        libraries = [*tf.sysconfig.get_link_flags(), _PACKAGE / "libraggrad.so"]
        _run(program, *flags, "-shared", together, "-o", linked, *libraries)
        linked.replace(to)


def _run(program: str, *arguments: str | Path) -> None:
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        first = next((line for line in done.stderr.splitlines() if "error" in line), "no message")
        raise RuntimeError(f"raggrad.tf.build: {program} failed: {first}")
