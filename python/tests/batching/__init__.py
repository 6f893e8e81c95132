"""Tests of Batch, Unbatch and UnbatchGrad, and of raggrad.batching."""
