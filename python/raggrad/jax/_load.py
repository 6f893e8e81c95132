"""Registers the handlers with XLA, or says in one line why it cannot."""

from __future__ import annotations

import ctypes
from pathlib import Path

_OLDEST = (0, 7)
_LIBRARY = Path(__file__).with_name("libraggrad_jax.so")

try:
    import jax
    import jaxlib
except ImportError as error:
    raise ImportError("raggrad.jax needs jaxlib 0.7 or newer, and no JAX can be imported") from error

for _package in (jax, jaxlib):
    if tuple(int(number) for number in _package.__version__.split(".")[:2]) < _OLDEST:
        raise ImportError(
            f"raggrad.jax needs jaxlib 0.7 or newer, and this is {_package.__name__} {_package.__version__}"
        )
if not _LIBRARY.exists():
    raise ImportError(
        "this raggrad was built without raggrad.jax, because jaxlib's headers were not there; "
        "docs/packaging.md says how to build it"
    )


class _Handler(ctypes.Structure):
    _fields_ = (("name", ctypes.c_char_p), ("cpu", ctypes.c_void_p), ("CUDA", ctypes.c_void_p))


def _register() -> tuple[str, ...]:
    """The names of all handlers, after XLA was told of them. Those for CUDA wait until XLA finds a GPU."""
    library = ctypes.CDLL(str(_LIBRARY))
    first = ctypes.addressof(_Handler.in_dll(library, "raggrad_jax_handlers"))
    names: list[str] = []
    while name := (handler := _Handler.from_address(first + len(names) * ctypes.sizeof(_Handler))).name:
        names.append(name.decode())
        for platform in ("cpu", "CUDA"):
            if function := getattr(handler, platform):
                jax.ffi.register_ffi_target(names[-1], jax.ffi.pycapsule(function), platform=platform)
    return tuple(names)


HANDLERS = _register()
