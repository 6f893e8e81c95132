"""Random tensor contents: ordinary, extreme and hostile values of every type."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from .encoding import COMPLEX, FLOATS, Tensor, numpy_dtype

FLUSH_NOTE = "ftz: values near the subnormal range, which TensorFlow flushes in arithmetic"

# How values are drawn. "bits" makes every bit pattern equally likely.
PALETTES = ("plain", "wide", "special", "tiny", "huge", "bits")

_PART = {"complex64": "float32", "complex128": "float64"}


def values(
    rng: np.random.Generator, dtype: str, shape: tuple[int, ...], palette: str = "plain"
) -> Tensor:
    if dtype in FLOATS:
        array = _floats(rng, dtype, shape, palette)
    elif dtype in COMPLEX:
        parts = _floats(rng, _PART[dtype], (*shape, 2), palette)
        array = parts.view(numpy_dtype(dtype))[..., 0]
    elif dtype == "string":
        array = _strings(rng, shape)
    elif dtype == "bool":
        array = rng.integers(0, 2, shape).astype(bool)
    elif palette == "plain":
        array = rng.integers(0, 100, shape).astype(numpy_dtype(dtype))
    else:
        array = _bits(rng, dtype, shape)
    return Tensor(dtype, np.asarray(array))


def _bits(rng: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    storage = numpy_dtype(dtype)
    size = int(np.prod(shape, dtype=np.int64))
    return np.frombuffer(rng.bytes(size * storage.itemsize), storage).reshape(shape)


def _strings(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    array = np.empty(shape, object)
    for where in np.ndindex(shape):
        array[where] = rng.bytes(int(rng.choice([0, 1, 5, 40])))
    return array


def _floats(
    rng: np.random.Generator, dtype: str, shape: tuple[int, ...], palette: str
) -> np.ndarray:
    if palette == "bits":
        return _bits(rng, dtype, shape)
    info = ml_dtypes.finfo(numpy_dtype(dtype))
    smallest, largest = float(info.smallest_normal), float(info.max)
    if palette == "plain":
        array = rng.standard_normal(shape)
    elif palette == "wide":
        array = np.ldexp(rng.standard_normal(shape), rng.integers(-12, 13, shape))
    elif palette == "tiny":
        scale = np.ldexp(1.0, -rng.integers(0, info.nmant + 1, shape))
        array = rng.uniform(-3, 3, shape) * scale * smallest
    elif palette == "huge":
        array = rng.uniform(-1, 1, shape) * largest
    else:
        pool = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, largest, -largest, smallest, 0.375]
        array = rng.choice(pool, shape)
    with np.errstate(over="ignore"):
        return np.asarray(array).astype(numpy_dtype(dtype))


def flush_note(tensor: Tensor) -> str:
    """FLUSH_NOTE when arithmetic on these values may meet subnormals that TensorFlow flushes."""
    if tensor.dtype not in FLOATS + COMPLEX or tensor.dtype == "half":
        return ""  # half is widened first, and integers have no subnormals
    parts = tensor.array
    if tensor.dtype in COMPLEX:
        parts = parts.ravel().view(numpy_dtype(_PART[tensor.dtype]))
    with np.errstate(invalid="ignore"):  # signalling NaNs
        magnitude = np.abs(parts.astype(np.float64))
    close = float(ml_dtypes.finfo(parts.dtype).smallest_normal) * 2.0**60
    return FLUSH_NOTE if np.any((magnitude > 0) & (magnitude < close)) else ""


def log_uniform(rng: np.random.Generator, largest: int) -> int:
    """A size in [0, largest] whose magnitude is uniform: small ones are as likely as large ones."""
    return min(int(2 ** rng.uniform(0, np.log2(largest + 2))) - 1, largest)


def pick(rng: np.random.Generator, options: tuple[str, ...]) -> str:
    return options[rng.integers(len(options))]
