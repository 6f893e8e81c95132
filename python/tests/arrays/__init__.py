"""Tests of operands and results: arrays of every library, literals, raggrad.Tensor."""
