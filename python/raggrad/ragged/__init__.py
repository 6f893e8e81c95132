"""Ragged tensors, arrays of them (TensorFlow's variant tensors), and conversions from and to other packages."""

from .tensor import Ragged
from .variant import VariantArray, variant_parts

__all__ = ["Ragged", "VariantArray", "variant_parts"]
