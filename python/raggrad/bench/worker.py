"""The process of a participant: runs in the library's environment, makes the inputs and measures on request.

It reads one JSON request per line from stdin and writes one JSON answer per line to stdout. Output of the library goes
to stderr.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path
from typing import IO, Any

from . import timing
from .workload import digest
from .workloads import BY_NAME

Json = dict[str, Any]


class Server:
    """Holds the loaded workload and answers requests: every method but the constructor is one."""

    def __init__(self, peer: str, threads: int) -> None:
        self._peer = importlib.import_module(f"{__package__}.peers.{peer}")
        self._threads = threads
        self._peer.use_threads(threads)
        self._loaded: list[Any] = []  # per way: (way, its call, calls per sample)

    def about(self) -> Json:
        return self._peer.about()

    def copy(self) -> Json:
        return timing.copy_bandwidth(self._threads)

    def load(self, workload: str, divisor: int, sample_seconds: float) -> Json:
        """Prepares and warms up all ways to do a workload. Reports an error for each way that fails."""
        timing.SAMPLE_SECONDS = sample_seconds
        self._loaded = []  # frees the memory first
        self._workload = BY_NAME[workload]
        answer: Json = {"ways": [], "digest": None, "traffic": None}
        ways = self._peer.WAYS.get(self._workload.task, ())
        if not ways:
            return answer
        inputs = self._inputs = self._workload.inputs(divisor)
        answer["digest"] = digest(inputs)
        if self._workload.traffic is not None:
            answer["traffic"] = self._workload.traffic(inputs)
        for number, way in enumerate(ways):
            try:
                self._warm_up(way, way.prepare(inputs))
                answer["ways"].append({"name": way.name})
            except Exception as error:
                self._loaded[number:] = [None]
                answer["ways"].append({"name": way.name, "error": f"{type(error).__name__}: {error}"[:300]})
        return answer

    def sample(self, way: int) -> Json:
        _, call, calls = self._loaded[way]
        if self._workload.threads == 0:
            return {"seconds": timing.time_calls(call, calls)}
        pieces, batches = int(self._inputs["pieces"]), int(self._inputs["batches"])
        runs = [timing.time_batches(call, pieces, batches, self._workload.threads) for _ in range(calls)]
        latencies = sorted(latency for run in runs for latency in run.latencies)
        return {
            "seconds": sum(run.seconds for run in runs) / (calls * batches),
            "p50": latencies[len(latencies) // 2],
            "p99": latencies[len(latencies) * 99 // 100],
        }

    def save(self, way: int, file: str) -> Json:
        """Writes the outputs of one freshly prepared call to a file, as raw bytes because .npz has no bfloat16."""
        chosen = self._loaded[way][0]
        call = chosen.prepare(self._inputs)
        if self._workload.threads == 0:
            result = call()
        else:
            for number in range(int(self._inputs["pieces"])):
                result = call(number)
        arrays = chosen.arrays(result)
        Path(file).write_bytes(b"".join(array.tobytes() for array in arrays))
        return {"arrays": [[array.dtype.name, list(array.shape)] for array in arrays]}

    def _warm_up(self, way: Any, call: Any) -> None:
        """Finds how many calls make a good sample.

        The first sample compiles, starts threads and touches pages. The first calls after a pause are slow, so that a
        short sample suggests too few calls; it is repeated until the number no longer doubles.
        """
        batches = int(self._inputs["batches"]) if self._workload.threads else 1
        number, calls = len(self._loaded), 1
        self._loaded.append((way, call, calls))
        self.sample(number)
        while (better := timing.calls_per_sample(self.sample(number)["seconds"] * batches)) > 2 * calls:
            calls = better
            self._loaded[number] = (way, call, calls)


def serve(peer: str, threads: int, requests: IO[str], answers: IO[str]) -> None:
    def reply(answer: Json) -> None:
        print(json.dumps(answer), file=answers, flush=True)

    try:
        server = Server(peer, threads)
        reply(server.about())
    except Exception as error:
        reply({"error": f"{type(error).__name__}: {error}"})
        return
    for line in requests:
        request = json.loads(line)
        try:
            reply(getattr(server, request.pop("do"))(**request))
        except Exception as error:
            reply({"error": f"{type(error).__name__}: {error}"})


def main() -> None:
    """Redirects the library's output and sets its processors before anything of it is imported."""
    threads = int(sys.argv[2])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    processors = sorted(os.sched_getaffinity(0))
    if threads < len(processors):
        os.sched_setaffinity(0, processors[:threads])
    for variable in ("OMP_NUM_THREADS", "RAGGRAD_NUM_THREADS"):
        os.environ[variable] = str(threads)
    serve(sys.argv[1], threads, sys.stdin, answers)
