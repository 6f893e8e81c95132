#!/usr/bin/env python3
"""Times calls from Python with arrays on a GPU, next to the same calls from C++ and to torch's own ways.

    benchmarks/python_gpu.py --cpp build/gpu/gpu_bench

Prints a table in milliseconds: the median of 50 calls, each between two CUDA events on the stream, after warm-up.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from functools import partial
from statistics import median
from typing import Any

import numpy as np
from gpu_bench import run_program
from raggrad import raw_ops
from raggrad.bench.measurement import Measurement, add_option, describe_machine
from raggrad.bench.workloads import BY_NAME

# gpu_bench's names of workloads: the same in raggrad.bench, and the type of their ids
WORKLOADS = {
    "segment-A-uniform-f32-int64": ("segment-A-uniform-f32-int64", np.int64),
    "segment-A-zipf-f32-int64": ("segment-A-zipf-f32-int64", np.int64),
    "segment-C-f32-int32": ("segment-C-f32", np.int32),
    "segment-D-f32-int32": ("segment-D-f32", np.int32),
}
RUNS, WARM_UPS = 50, 10


def time_on_stream(call: Callable[[], Any]) -> float:
    """Milliseconds of a call that works on torch's current stream."""
    import torch

    times = []
    for run in range(RUNS + WARM_UPS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        result = call()
        end.record()
        end.synchronize()
        del result
        if run >= WARM_UPS:
            times.append(begin.elapsed_time(end))
    return median(times)


def torch_ways(inputs: dict[str, Any]) -> Iterator[tuple[str, Callable[[], Any]]]:
    """torch's own ways to the gradient's unique rows."""
    import torch

    grad, ids, segments = inputs["grad"], inputs["indices"], inputs["segment_ids"]
    rows = int(inputs["dense_output_dim0"])
    counts = torch.bincount(segments, minlength=len(grad)).clamp(min=1)

    def coalesce() -> Any:
        values = (grad / counts[:, None])[segments]
        return torch.sparse_coo_tensor(ids[None], values, (rows, grad.shape[1])).coalesce()

    def index_add() -> Any:
        unique, inverse = torch.unique(ids, return_inverse=True)
        values = torch.zeros((len(unique), grad.shape[1]), dtype=grad.dtype, device=grad.device)
        return unique, values.index_add_(0, inverse, (grad / counts[:, None])[segments])

    yield "coalesce", coalesce
    yield "unique + index_add", index_add


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cpp", help="the program gpu_bench, for the times from C++")
    add_option(parser)
    arguments = parser.parse_args()
    import cupy
    import jax
    import torch

    gpu = jax.devices("gpu")[0]
    put = {
        "torch": lambda array: torch.from_numpy(array).cuda(),
        "cupy": cupy.asarray,
        "jax": lambda array: jax.device_put(array, gpu),
    }
    jax.config.update("jax_enable_x64", True)
    cpp = {line.workload: line.ms for line in run_program(arguments.cpp).lines} if arguments.cpp else {}
    measured = Measurement(
        "Gradients of arrays on a GPU, from Python",
        [f"torch {torch.__version__}, CuPy {cupy.__version__}, JAX {jax.__version__}", f"the median of {RUNS} calls"],
        describe_machine(torch.cuda.get_device_name()),
    )
    table = measured.table(
        "calls", "workload", "C++, ms", "torch arrays, ms", "CuPy arrays, ms", "JAX arrays, ms", "torch's own best way"
    )
    for name, (python_name, index) in WORKLOADS.items():
        host = dict(BY_NAME[python_name].inputs())
        host.update({key: host[key].astype(index) for key in ("indices", "segment_ids")})
        times: list[float | str] = [cpp.get(name, "-")]
        for to_device in put.values():
            inputs = {key: to_device(value) if value.ndim else value for key, value in host.items()}
            with cupy.cuda.Stream.from_external(torch.cuda.current_stream()):
                times.append(time_on_stream(partial(raw_ops.SparseSegmentMeanGradV2, **inputs)))
        on_torch = {key: put["torch"](value) if value.ndim else value for key, value in host.items()}
        best, way = min((time_on_stream(call), way) for way, call in torch_ways(on_torch))
        table.add(name, *times, f"{best:.3g} ms ({way})")
    measured.write(arguments.json)


if __name__ == "__main__":
    main()
