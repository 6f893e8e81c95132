"""Tests of raw_ops, ops, SegmentPlan and IndexedSlices."""
