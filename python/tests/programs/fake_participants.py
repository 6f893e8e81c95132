"""Participants of a measurement that answer with given times."""

from __future__ import annotations

from raggrad.bench import measure
from raggrad.bench.participants import Failed, Gone, Loaded, Sample
from raggrad.bench.workload import Target, Workload


class Fake:
    """Answers with given seconds, and writes its name into a diary that all fakes share."""

    about: dict[str, str] = {"fake": "1"}  # noqa: RUF012

    def __init__(self, name: str, ways: dict[str, list[float]], diary: list[str], digest: int = 7) -> None:
        self.name, self._ways, self._diary, self._digest = name, ways, diary, digest
        self.closed = False

    def load(self, workload: Workload, divisor: int = 1) -> Loaded:
        return Loaded(list(self._ways), [], self._digest, 1000)

    def sample(self, way: int) -> Sample:
        self._diary.append(self.name)
        seconds = list(self._ways.values())[way].pop(0)
        if seconds < 0:
            raise Gone("crashed") if seconds == -1 else Failed("refused")
        return Sample(seconds, p50=seconds / 2, p99=2 * seconds)

    def close(self) -> None:
        self.closed = True


WORKLOAD = Workload("w", "task", "sizes", lambda random, divisor: {}, targets=(Target("b", 3), Target("c", 100)))


def run_fakes(*fakes: Fake, rounds: int, times: int = 1) -> list[measure.Outcome]:
    return measure.run([WORKLOAD] * times, fakes, rounds)
