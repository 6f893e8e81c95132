"""All workloads. Their targets were set before anything was measured."""

from ..workload import Workload
from . import batches, fill_and_slice, ragged, segments, tiny

WORKLOADS: tuple[Workload, ...] = (
    *segments.workloads(),
    fill_and_slice.fill("fill-A", "sorted", 4, quick=True),
    fill_and_slice.fill("fill-B", "shuffled", 2, quick=False),
    fill_and_slice.window("slice-A", 2, quick=True),
    fill_and_slice.window("slice-B", 4, quick=False),
    ragged.workload("ragged-A", "16,384 pieces of 0..39 rows x 64 f32", quick=True, pieces=16_384, rows=0),
    ragged.workload("ragged-B", "100 pieces of 1 MiB", pieces=100, rows=4096),
    ragged.workload("ragged-C", "ragged-A with a tenth missing", pieces=16_384, rows=0, missing=10),
    *batches.workloads(),
    *tiny.workloads(),
)

BY_NAME = {workload.name: workload for workload in WORKLOADS}
