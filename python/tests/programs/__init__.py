"""Tests of the benchmark, the examples and the ledger of faults: slow, and the same on every interpreter."""
