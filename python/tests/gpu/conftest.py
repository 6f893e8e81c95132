"""Arrays of torch, CuPy and JAX on a GPU. Skips everything where there is none, or raggrad has no kernels for it."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import raggrad
from raggrad import _arrays, doctor_gpu

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # JAX shares the GPU with torch and CuPy

KINDS = {"torch": "Tensor", "cupy": "ndarray", "jax": "Array"}


@functools.cache
def verdicts() -> dict[str, str]:
    """Whether an operator works, by framework and GPU."""
    return {name: verdict for name, verdict in doctor_gpu.rows() if name[-1].isdigit()}


def skip_without_gpu() -> None:
    """An operator that fails on a GPU for another reason than missing kernels is no reason to skip."""
    if not verdicts():
        pytest.skip("torch, CuPy and JAX find no GPU")
    if all("no kernels" in verdict for verdict in verdicts().values()):
        pytest.skip("raggrad has no kernels for the GPU")


@pytest.fixture(autouse=True)
def needs_gpu() -> None:
    skip_without_gpu()


class OnGpu:
    """Arrays of a framework on the first GPU."""

    def __init__(self, name: str) -> None:
        skip_without_gpu()
        self.module = pytest.importorskip(name)
        if not any(gpu.startswith(f"{name} ") for gpu in verdicts()):
            pytest.skip(f"{name} finds no GPU")
        self.name = name
        self.kind = getattr(self.module, KINDS[name])

    def put(self, array: np.ndarray) -> Any:
        if self.name == "torch":
            return self.module.from_dlpack(raggrad.Tensor(np.array(array))).to("cuda:0")
        if self.name == "cupy":
            return self.module.asarray(array)
        return self.module.device_put(array, self.module.devices("cuda")[0])

    def fetch(self, array: Any) -> Any:
        """The array in NumPy. Arrays in host memory, such as splits, may be of any kind."""
        if not hasattr(array, "shape"):
            return array
        if isinstance(array, raggrad.Tensor) and array.device != "cpu":
            array = self.from_tensor(array)
        if not _arrays.is_on_device(array):
            return raggrad.Tensor(array).numpy()
        if self.name == "torch":
            return raggrad.Tensor(array.cpu()).numpy()
        return array.get() if self.name == "cupy" else np.asarray(array)

    def from_tensor(self, tensor: raggrad.Tensor) -> Any:
        return (self.module.dlpack if self.name == "jax" else self.module).from_dlpack(tensor)

    def address(self, array: Any) -> int:
        if self.name == "torch":
            return array.data_ptr()
        return array.data.ptr if self.name == "cupy" else array.unsafe_buffer_pointer()


@pytest.fixture(params=KINDS)
def gpu(request: pytest.FixtureRequest) -> Iterator[OnGpu]:
    device = OnGpu(request.param)
    if request.param != "jax":
        yield device
        return
    before = device.module.config.jax_enable_x64
    device.module.config.update("jax_enable_x64", True)
    yield device
    device.module.config.update("jax_enable_x64", before)


@pytest.fixture
def torch() -> Any:
    return OnGpu("torch").module


@pytest.fixture
def cupy() -> Any:
    return OnGpu("cupy").module


@pytest.fixture(scope="module")
def jax() -> Any:
    return OnGpu("jax").module


@pytest.fixture(scope="module")
def rj(jax: Any) -> Any:
    return pytest.importorskip("raggrad.jax", exc_type=ImportError)
