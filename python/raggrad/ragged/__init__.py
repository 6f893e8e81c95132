"""Ragged tensors, arrays of them (what TensorFlow keeps in variant tensors), and both from and to other packages."""

from .tensor import Ragged
from .variant import VariantArray, variant_parts

__all__ = ["Ragged", "VariantArray", "variant_parts"]
