"""Participants of a measurement: Python libraries in processes of their own, and raggrad's C++ benchmarks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from . import timing
from .workload import Workload

Json = dict[str, Any]

_LONGEST_ANSWER = 300  # seconds; a peer that takes longer counts as dead


class Failed(Exception):
    """The participant cannot do what was asked; the text says why."""


class Gone(Failed):
    """The participant's process has died."""


@dataclass
class Loaded:
    ways: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)  # "way: why" for ways that do not work
    digest: int | None = None  # of the inputs
    traffic: int | None = None


@dataclass(frozen=True)
class Sample:
    seconds: float  # per call, or per batch
    p50: float | None = None
    p99: float | None = None


class Participant(Protocol):
    name: str
    about: dict[str, str]

    def load(self, workload: Workload, divisor: int = 1) -> Loaded: ...

    def sample(self, way: int) -> Sample: ...

    def close(self) -> None: ...


class Process:
    """A library in the environment of a Python interpreter."""

    def __init__(self, name: str, module: str, python: str, threads: int, python_path: str | None = None) -> None:
        self.name = name
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        if python_path is not None:
            environment["PYTHONPATH"] = python_path
        command = [python, str(Path(__file__).with_name("start_worker.py")), module, str(threads)]
        pipe = subprocess.PIPE
        try:
            self._process = subprocess.Popen(
                command, stdin=pipe, stdout=pipe, stderr=self._log, text=True, env=environment
            )
        except OSError as error:
            raise Failed(str(error)) from None
        try:
            self.about: dict[str, str] = self._answer()
        except BaseException:
            self.close()
            raise

    def load(self, workload: Workload, divisor: int = 1) -> Loaded:
        answer = self._ask(do="load", workload=workload.name, divisor=divisor, sample_seconds=timing.SAMPLE_SECONDS)
        ways = answer["ways"]
        # The worker numbers all ways, also those that failed.
        self._numbers = [number for number, way in enumerate(ways) if "error" not in way]
        return Loaded(
            [way["name"] for way in ways if "error" not in way],
            [f"{way['name']}: {way['error']}" for way in ways if "error" in way],
            answer["digest"],
            answer["traffic"],
        )

    def sample(self, way: int) -> Sample:
        return Sample(**self._ask(do="sample", way=self._numbers[way]))

    def copy_bandwidth(self) -> dict[str, float]:
        return self._ask(do="copy")

    def outputs(self, way: int) -> list[Any]:
        """The outputs of one call, as arrays."""
        import ml_dtypes
        import numpy as np

        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "outputs"
            described = self._ask(do="save", way=self._numbers[way], file=str(file))["arrays"]
            data = file.read_bytes()
        arrays = []
        for name, shape in described:
            dtype = np.dtype(getattr(ml_dtypes, name, name))
            count = int(np.prod(shape))
            arrays.append(np.frombuffer(data, dtype, count).reshape(shape))
            data = data[count * dtype.itemsize :]
        return arrays

    def close(self) -> None:
        assert self._process.stdin and self._process.stdout
        self._process.kill()  # it has no state to save, and may be in the middle of a call
        self._process.wait()
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.stdout.close()
        self._log.close()

    def _ask(self, **request: Any) -> Json:
        assert self._process.stdin
        try:
            print(json.dumps(request), file=self._process.stdin, flush=True)
        except BrokenPipeError:
            raise Gone(self._last_words()) from None
        return self._answer()

    def _answer(self) -> Json:
        assert self._process.stdout
        alarm = threading.Timer(_LONGEST_ANSWER, self._process.kill)
        alarm.start()
        try:
            line = self._process.stdout.readline()
        finally:
            alarm.cancel()  # otherwise the interpreter would wait for it after Ctrl-C
        if not line:
            raise Gone(self._last_words())
        answer = json.loads(line)
        if "error" in answer:
            raise Failed(answer["error"])
        return answer

    def _last_words(self) -> str:
        status = self._process.wait()
        self._log.seek(0)
        lines = self._log.read().strip().splitlines()
        return f"died with status {status}" + (f": {lines[-1]}" if lines else "")


class CppBenchmarks:
    """raggrad from C++: the programs of `make bench-cpp`, whose benchmarks have the names of workloads."""

    name = "raggrad-c++"
    about: dict[str, str]

    def __init__(self, folder: Path, threads: int) -> None:
        self._environment = {**os.environ, "RAGGRAD_NUM_THREADS": str(threads)}
        self._programs: dict[str, Path] = {}
        programs = sorted(folder.glob("*_bench"))
        if not programs:
            raise Failed(f"no benchmark programs in {folder}")
        for program in programs:
            for name in self._run(program, "--benchmark_list_tests").split():
                self._programs[name.split("/")[0]] = program
        self.about = {}

    def load(self, workload: Workload, divisor: int = 1) -> Loaded:
        self._workload = workload.name
        return Loaded(["C++"] if workload.name in self._programs else [])

    def sample(self, way: int) -> Sample:
        chosen = f"--benchmark_filter=^{self._workload}(/|$)"
        arguments = ("--benchmark_format=json", f"--benchmark_min_time={timing.SAMPLE_SECONDS}")
        report = json.loads(self._run(self._programs[self._workload], chosen, *arguments))["benchmarks"][0]
        if report.get("error_occurred"):
            raise Failed(report["error_message"])
        unit = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}[report["time_unit"]]
        seconds = report["real_time"] * unit / report.get("batches", 1)
        return Sample(seconds, report.get("p50"), report.get("p99"))

    def close(self) -> None:
        pass

    def _run(self, program: Path, *arguments: str) -> str:
        try:
            return subprocess.run(
                [program, *arguments], env=self._environment, capture_output=True, text=True, check=True,
                timeout=_LONGEST_ANSWER,
            ).stdout  # fmt: skip
        except (OSError, subprocess.SubprocessError) as error:
            raise Failed(f"{program.name}: {error}") from None


HERE = str(Path(__file__).absolute().parents[2])  # the folder that holds this raggrad


def raggrad_in(folder: str, threads: int, name: str = "raggrad", module: str = "raggrad") -> Process:
    return Process(name, module, sys.executable, threads, folder)
