"""Rounds: everybody once per round, so that what disturbs the machine disturbs all."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from .participants import Failed, Gone, Participant, Sample
from .workloads import Target, Workload

_PAUSE = 0.02  # seconds, for the threads of the one before to fall asleep
_HOPELESS = 1.5  # times as long as a participant's best way in the first round: not timed again

DOORS = {"python": "raggrad", "c++": "raggrad-c++"}  # who is raggrad when called from there


@dataclass
class Timing:
    """One participant's way to do a workload."""

    way: str
    samples: list[Sample] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        return statistics.median(sample.seconds for sample in self.samples)

    @property
    def spread(self) -> float:
        """The middle half of the rounds, as a share of the median."""
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
    """What came out of a workload."""

    workload: Workload
    timings: dict[str, list[Timing]] = field(default_factory=dict)  # by participant
    notes: dict[str, str] = field(default_factory=dict)  # why one was not timed, or not in every way
    traffic: int | None = None
    rounds: int = 0  # that were timed

    def best(self, participant: str) -> Timing | None:
        timed = [timing for timing in self.timings.get(participant, ()) if timing.samples]
        return min(timed, key=lambda timing: timing.seconds) if timed else None

    def ratio(self, peer: str, door: str = "python") -> float | None:
        """How many times faster than the peer's best way."""
        ours, theirs = self.best(DOORS[door]), self.best(peer)
        return theirs.seconds / ours.seconds if ours and theirs else None

    def verdict(self, target: Target) -> bool | None:
        ratio = self.ratio(target.peer, target.door)
        return None if ratio is None else ratio >= target.factor

    def within_limit(self, door: str) -> bool | None:
        limit, ours = self.workload.limits.get(door), self.best(DOORS[door])
        return (ours.p99 or ours.seconds) <= limit if limit and ours else None

    def tail_is_short(self, door: str) -> bool | None:
        """Whether our slowest batches are faster than a peer's usual ones."""
        ours = self.best(DOORS[door])
        theirs = self.best(self.workload.tail_below) if self.workload.tail_below else None
        return ours.p99 < theirs.p50 if ours and theirs and ours.p99 and theirs.p50 else None

    def bandwidth(self, door: str = "python") -> float | None:
        ours = self.best(DOORS[door])
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
    """`before` is called before each workload and `step` after each of its loads and rounds. After the deadline, in
    seconds of the monotonic clock, no workload and no second round begins."""
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
    """The participants that are still there. One that is gone is missed in all workloads that follow."""

    def __init__(self, participants: Sequence[Participant]) -> None:
        self._present = {participant.name: participant for participant in participants}
        self._gone: dict[str, str] = {}

    def load(self, workload: Workload, divisor: int) -> Outcome:
        outcome = Outcome(workload, notes=dict(self._gone))
        digest = None
        for name, participant in list(self._present.items()):
            if name == DOORS["c++"] and "c++" not in workload.doors:
                continue
            try:
                loaded = participant.load(workload, divisor)
            except Failed as failure:
                self._miss(outcome, name, failure)
                continue
            digest = digest or loaded.digest
            outcome.traffic = outcome.traffic or loaded.traffic
            if loaded.digest not in (None, digest):
                outcome.notes[name] = "made other inputs than the others"
                continue
            outcome.timings[name] = [Timing(way) for way in loaded.ways]
            if loaded.errors:
                outcome.notes[name] = "; ".join(loaded.errors)
        return outcome

    def sample(self, outcome: Outcome) -> None:
        """Everybody once. Who begins changes from round to round."""
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
