"""The option --baseline: measures two builds of raggrad in turns and finds workloads that became slower."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from . import measure
from .measure import Outcome
from .participants import HERE, Failed, Participant, raggrad_in
from .progress import progress
from .report import time_text
from .workload import Workload

ALLOWED = 1.10  # more than this times the time before is a loss
_ROUNDS = 7
_PASSES = 3  # each with new processes, because where their memory lies can change times by over 10 %
_DOUBT = 1.05  # workloads above this ratio get as many passes again


@dataclass
class Comparison:
    """The measurements of a workload in both builds."""

    workload: Workload
    before: list[float] = field(default_factory=list)  # seconds of each round
    after: list[float] = field(default_factory=list)
    note: str = ""  # why it could not be compared

    @property
    def ratio(self) -> float | None:
        """The time after divided by the time before: the smaller of two estimates, because noise can raise either.

        The first is the median of the ratios of each round. Within a round one build runs right after the other, so
        that most disturbances cancel. The second is the ratio of the lower quartiles, where disturbances are rare.
        """
        if not self.before:
            return None
        rounds = statistics.median(after / before for before, after in zip(self.before, self.after, strict=True))
        fast_before, fast_after = (sorted(times)[len(times) // 4] for times in (self.before, self.after))
        return min(rounds, fast_after / fast_before)

    @property
    def lost(self) -> bool:
        return self.ratio is not None and self.ratio > ALLOWED

    def add(self, outcome: Outcome) -> None:
        timings = [outcome.best(name) for name in ("before", "after")]
        if not all(timings):
            notes = "; ".join(f"{name}: {why}" for name, why in outcome.notes.items())
            self.note = notes or "one of the builds cannot do it"
            return
        self.before += [sample.seconds for sample in timings[0].samples]
        self.after += [sample.seconds for sample in timings[1].samples]


def compare(
    workloads: Sequence[Workload], baseline: str, changed: str, threads: int, rounds: int, divisor: int = 1
) -> list[Comparison]:
    """Compares the raggrad in the folder `baseline` with that in `changed`."""
    comparisons = {w.name: Comparison(w) for w in workloads if "python" in w.languages}
    chosen = [comparison.workload for comparison in comparisons.values()]
    with progress(_PASSES * len(chosen) * (rounds + 1)) as (say, step):
        for number in range(2 * _PASSES):
            if number == _PASSES:
                chosen = [c.workload for c in comparisons.values() if c.ratio is not None and c.ratio > _DOUBT]
            company: list[Participant] = []
            try:
                for name, folder in (("before", baseline), ("after", changed)):
                    company.append(raggrad_in(folder, threads, name))
                for outcome in measure.run(
                    chosen, company, rounds, divisor=divisor, before=lambda w: say(w.name), step=step
                ):
                    comparisons[outcome.workload.name].add(outcome)
            finally:
                for participant in company:
                    participant.close()
    return list(comparisons.values())


def as_text(comparisons: Sequence[Comparison]) -> str:
    lines = [f"{'workload':36}{'before':>10}{'after':>10}{'ratio':>8}"]
    for c in comparisons:
        if c.ratio is None:
            lines.append(f"{c.workload.name:36}  not compared: {c.note}")
            continue
        times = [time_text(statistics.median(seconds)) for seconds in (c.before, c.after)]
        lines.append(f"{c.workload.name:36}{times[0]:>10}{times[1]:>10}{c.ratio:>8.3f}{'  SLOWER' if c.lost else ''}")
    return "\n".join(lines)


def run(workloads: Sequence[Workload], baseline: Path, threads: int, rounds: int | None) -> int:
    try:
        comparisons = compare(workloads, str(baseline.absolute()), HERE, threads, rounds or _ROUNDS)
    except Failed as failure:
        print(f"python -m raggrad bench: {failure}", file=sys.stderr)
        return 2
    print(as_text(comparisons))
    lost = [c.workload.name for c in comparisons if c.lost]
    print(f"{len(lost)} of {len(comparisons)} workloads lost over {ALLOWED - 1:.0%}: {', '.join(lost) or 'none'}")
    return 1 if lost else 0
