"""Rounds of measurements: every participant once per round, so that disturbances of the machine hit all of them."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from .participants import Failed, Gone, Participant, Sample
from .workload import Target, Workload

_PAUSE = 0.02  # seconds; lets the threads of the previous participant fall asleep
_HOPELESS = 1.5  # a way that takes this times a participant's best in the first round is not measured again

OURS = {"python": "raggrad", "c++": "raggrad-c++"}  # the participant that is raggrad, by language


@dataclass
class Timing:
    """The measurements of one participant's way to do a workload."""

    way: str
    samples: list[Sample] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        return statistics.median(sample.seconds for sample in self.samples)

    @property
    def spread(self) -> float:
        """The interquartile range of the rounds, as a share of the median."""
        if len(self.samples) < 2:
            return 0.0
        quarter, _, three_quarters = statistics.quantiles((s.seconds for s in self.samples), method="inclusive")
        return (three_quarters - quarter) / self.seconds

    @property
    def p50(self) -> float | None:
        return _median([sample.p50 for sample in self.samples])

    @property
    def p99(self) -> float | None:
        return _median([sample.p99 for sample in self.samples])


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


@dataclass
class Outcome:
    """The measurements of one workload."""

    workload: Workload
    timings: dict[str, list[Timing]] = field(default_factory=dict)  # by participant
    notes: dict[str, str] = field(default_factory=dict)  # by participant: why it, or one of its ways, was not measured
    traffic: int | None = None
    rounds: int = 0  # how many were measured

    def best(self, participant: str) -> Timing | None:
        timed = [timing for timing in self.timings.get(participant, ()) if timing.samples]
        return min(timed, key=lambda timing: timing.seconds) if timed else None

    def ratio(self, peer: str, language: str = "python") -> float | None:
        """How many times faster raggrad is than the peer's best way."""
        ours, theirs = self.best(OURS[language]), self.best(peer)
        return theirs.seconds / ours.seconds if ours and theirs else None

    def verdict(self, target: Target) -> bool | None:
        ratio = self.ratio(target.peer, target.language)
        return None if ratio is None else ratio >= target.factor

    def within_limit(self, language: str) -> bool | None:
        limit, ours = self.workload.limits.get(language), self.best(OURS[language])
        return (ours.p99 or ours.seconds) <= limit if limit and ours else None

    def tail_is_short(self, language: str) -> bool | None:
        """Whether our p99 of a batch is below the peer's p50."""
        ours = self.best(OURS[language])
        theirs = self.best(self.workload.tail_below) if self.workload.tail_below else None
        return ours.p99 < theirs.p50 if ours and theirs and ours.p99 and theirs.p50 else None

    def bandwidth(self, language: str = "python") -> float | None:
        ours = self.best(OURS[language])
        return self.traffic / ours.seconds if ours and self.traffic else None


def run(
    workloads: Sequence[Workload],
    participants: Sequence[Participant],
    rounds: int,
    *,
    divisor: int = 1,
    deadline: float = math.inf,
    before: Callable[[Workload], None] = lambda workload: None,
    step: Callable[[], None] = lambda: None,
) -> list[Outcome]:
    """Measures all workloads.

    Calls `before` before each workload, and `step` after it is loaded and after each round. No workload and no second
    round begins after the deadline, in seconds of the monotonic clock.
    """
    company = _Company(participants)
    outcomes = []
    for workload in workloads:
        if outcomes and time.monotonic() > deadline:
            break
        before(workload)
        outcome = company.load(workload, divisor)
        step()
        while outcome.rounds < rounds and (outcome.rounds == 0 or time.monotonic() < deadline):
            company.sample(outcome)
            step()
        outcomes.append(outcome)
    return outcomes


class _Company:
    """The participants that are still alive. One whose process died is missing from all later workloads."""

    def __init__(self, participants: Sequence[Participant]) -> None:
        self._present = {participant.name: participant for participant in participants}
        self._gone: dict[str, str] = {}

    def load(self, workload: Workload, divisor: int) -> Outcome:
        outcome = Outcome(workload, notes=dict(self._gone))
        digest = None
        for name, participant in list(self._present.items()):
            if name == OURS["c++"] and "c++" not in workload.languages:
                continue
            try:
                loaded = participant.load(workload, divisor)
            except Failed as failure:
                self._miss(outcome, name, failure)
                continue
            digest = digest or loaded.digest
            outcome.traffic = outcome.traffic or loaded.traffic
            if loaded.digest not in (None, digest):
                outcome.notes[name] = "made different inputs than the others"
                continue
            outcome.timings[name] = [Timing(way) for way in loaded.ways]
            if loaded.errors:
                outcome.notes[name] = "; ".join(loaded.errors)
        return outcome

    def sample(self, outcome: Outcome) -> None:
        """Measures every participant once. Each round begins with another one."""
        names = list(outcome.timings)
        first = outcome.rounds % max(1, len(names))
        for name in names[first:] + names[:first]:
            timings = outcome.timings[name]
            limit = _HOPELESS * min((t.samples[0].seconds for t in timings if t.samples), default=math.inf)
            try:
                for way, timing in enumerate(timings):
                    if outcome.rounds == 0 or timing.samples[0].seconds <= limit:
                        time.sleep(_PAUSE)
                        timing.samples.append(self._present[name].sample(way))
            except Failed as failure:
                self._miss(outcome, name, failure)
        outcome.rounds += 1

    def _miss(self, outcome: Outcome, name: str, failure: Failed) -> None:
        outcome.timings.pop(name, None)
        outcome.notes[name] = str(failure)
        if isinstance(failure, Gone):
            self._gone[name] = outcome.notes[name] = f"gone since {outcome.workload.name}: {failure}"
            self._present.pop(name).close()
