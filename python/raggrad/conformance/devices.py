"""Golden cases with their operands on a GPU, as arrays of torch, CuPy or JAX."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from .._arrays import is_on_device
from .._core import Tensor
from ..ragged import Ragged, VariantArray, variant_parts
from .tensors import numpy_dtype

FRAMEWORKS = ("torch", "cupy", "jax")

# Operands that operators always take from host memory: they decide about shapes.
_IN_HOST_MEMORY = (
    "dense_output_dim0",
    "dense_shape",
    "dense_values_shape",
    "input_start",
    "nrows",
    "num_segments",
    "output_dim0",
    "shape",
    "size",
    "start",
)


class NoDevice(Exception):
    """The framework is missing or has no GPU; the text says which."""


class DeviceArrays:
    """Puts the operands of cases on the first GPU, and results back into host memory."""

    def __init__(self, framework: str) -> None:
        self.framework = framework
        self._held: dict[str, bool] = {}
        try:
            self._module: Any = importlib.import_module(framework)
        except ImportError as error:
            raise NoDevice(f"--framework {framework} needs the package {framework}: {error}") from None
        self._place: Any = None
        try:
            if framework == "torch":
                self._module.zeros(1, device="cuda")
            elif framework == "cupy":
                self._module.zeros(1)
            else:
                self._module.config.update("jax_enable_x64", True)
                self._place = self._module.devices("cuda")[0]
        except Exception as error:  # frameworks have their own classes of errors
            raise NoDevice(f"{framework} has no GPU: {str(error).splitlines()[0]}") from None

    def why_not(self, case: dict[str, Any]) -> str | None:
        """Why a case cannot be run with its operands on the device; None if it can."""
        if case.get("error", {}).get("code") == "ResourceExhausted":
            return "memory of a GPU is not limited here"
        dtypes = [dtype for name, value in case["inputs"].items() if not _stays(name) for dtype in _dtypes(value)]
        if not dtypes:
            return "no operand would be in device memory"
        for dtype in [*dtypes, str(case["attrs"].get("Tvalues", "float32"))]:
            if dtype == "string":
                return "there are no strings in device memory"
            if not self._holds(dtype):
                return f"{self.framework} has no {dtype}"
        return None

    def put(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Copies of decoded operands on the device; of ragged elements only the values."""
        return {name: value if _stays(name) else self._put(value) for name, value in inputs.items()}

    def fetch(self, result: Any) -> Any:
        """A result in host memory."""
        if isinstance(result, tuple) and hasattr(result, "_fields"):
            return type(result)(*map(self.fetch, result))
        if isinstance(result, list):
            return [self.fetch(item) for item in result]
        if isinstance(result, VariantArray):
            elements, shape = variant_parts(result, "")
            return VariantArray([self.fetch(elements[i]) for i in range(len(elements))], shape)
        if isinstance(result, Ragged):
            return Ragged(self.fetch(result.nested_splits), self.fetch(result.values))
        if result is None or not is_on_device(result):
            return result if result is None or isinstance(result, Tensor) else Tensor(result).numpy()
        if isinstance(result, Tensor):  # a type that the framework lacks
            module = self._module.dlpack if self.framework == "jax" else self._module
            result = module.from_dlpack(result)
        if self.framework == "torch":
            return Tensor(result.cpu()).numpy()
        return result.get() if self.framework == "cupy" else np.asarray(result)

    def _holds(self, dtype: str) -> bool:
        """Whether an array of the dtype can be made and shared. Quantized types exist only here and in TensorFlow."""
        if dtype not in self._held:
            try:
                array = self._put(np.zeros(1, numpy_dtype(dtype)))
                self._held[dtype] = not dtype.startswith("q") and bool(Tensor(array).dtype)
            except Exception:  # frameworks have their own classes of errors
                self._held[dtype] = False
        return self._held[dtype]

    def _put(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._put(item) for item in value]
        if isinstance(value, VariantArray):
            elements, shape = variant_parts(value, "")
            return VariantArray([self._put(elements[i]) for i in range(len(elements))], shape)
        if value is None or isinstance(value, Ragged):
            return None if value is None else Ragged(value.nested_splits, self._put(value.values))
        array = np.array(value)  # writable, as torch wants it
        if self.framework == "torch":
            return self._module.from_dlpack(Tensor(array)).to("cuda")
        if self.framework == "cupy":
            made = self._module.empty(array.shape, array.dtype)
            made.set(array)  # copies every bit
            return made
        return self._module.device_put(array, self._place)


def _stays(name: str) -> bool:
    return name in _IN_HOST_MEMORY


def _dtypes(value: Any) -> list[str]:
    """The dtypes of the tensors of a VALUE that would be in device memory."""
    if isinstance(value, list):
        return [dtype for item in value for dtype in _dtypes(item)]
    if value["dtype"] == "variant":
        return [element["values"]["dtype"] for element in value["elements"] if element is not None]
    return [value["dtype"]]
