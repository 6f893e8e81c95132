"""Reports of a run: tables for the terminal, for pages and for programs."""

from __future__ import annotations

import datetime
import statistics
from dataclasses import asdict, dataclass, field
from typing import Any

from .measure import OURS, Outcome, Timing
from .measurement import Measurement, Table, aligned, describe_machine
from .workload import Target


@dataclass
class Run:
    """A whole run: its measurements, and the conditions they were made under."""

    outcomes: list[Outcome]
    peers: list[str]  # those asked for, in the order of columns
    threads: int
    rounds: int
    versions: dict[str, dict[str, str]] = field(default_factory=dict)  # by participant
    missing: dict[str, str] = field(default_factory=dict)  # by peer: why it could not be started
    cuts: list[str] = field(default_factory=list)  # lines that say what a quick run left out
    bandwidths: list[dict[str, float]] = field(default_factory=list)  # measured several times during the run
    when: str = field(default_factory=lambda: datetime.datetime.now().astimezone().isoformat(timespec="seconds"))
    machine: str = field(default_factory=lambda: describe_machine())

    def bandwidth(self, kind: str) -> float | None:
        """Bytes per second of a copy: the median of the measurements."""
        return statistics.median(b[kind] for b in self.bandwidths) if self.bandwidths else None


def time_text(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}" if seconds / size < 1000 else f"{seconds / size:.0f} {unit}"
    return f"{seconds * 1e9:.0f} ns"


@dataclass
class Row:
    """A line of the table: a workload, called from one language."""

    outcome: Outcome
    language: str

    @property
    def ours(self) -> Timing | None:
        return self.outcome.best(OURS[self.language])

    @property
    def name(self) -> str:
        return self.outcome.workload.name + (" from C++" if self.language == "c++" else "")

    def time(self) -> str:
        if self.ours is None:
            return "-"
        spread = f"±{50 * self.ours.spread:.0f}%"
        return f"{time_text(self.ours.seconds)} {spread}{_mark(self.outcome.within_limit(self.language))}"

    def share(self, run: Run) -> str:
        copy, reached = run.bandwidth("copy"), self.outcome.bandwidth(self.language)
        if not copy or not reached:
            return ""
        wanted = self.outcome.workload.copy_shares.get(self.language)
        return f"{reached / copy:.0%}" + (f" of {wanted:.0%}{_mark(reached >= wanted * copy)}" if wanted else "")

    def against(self, peer: str) -> str:
        """The peer's time, how many times faster raggrad is, and whether that reaches the target."""
        theirs, ratio, target = self.outcome.best(peer), self.ratio(peer), self.target(peer)
        if theirs is None or ratio is None:
            return "-"
        text = f"{time_text(theirs.seconds)}  {ratio:.1f}x"
        return f"{text} of {target.factor:g}x{_mark(ratio >= target.factor)}" if target else text

    def ratio(self, peer: str) -> float | None:
        """None where a single call from C++ would be compared with one from Python."""
        if self.language == "c++" and self.outcome.workload.threads <= 1:
            return None
        return self.outcome.ratio(peer, self.language)

    def target(self, peer: str) -> Target | None:
        wanted = (t for t in self.outcome.workload.targets if (t.peer, t.language) == (peer, self.language))
        return next(wanted, None)


def _mark(good: bool | None) -> str:
    return {None: "", True: " ok", False: " BEHIND"}[good]


def rows(run: Run) -> list[Row]:
    return [
        Row(outcome, language)
        for outcome in run.outcomes
        for language in outcome.workload.languages
        if outcome.best(OURS[language])
    ]


def _columns(run: Run) -> list[str]:
    """Peers with at least one measurement."""
    return [peer for peer in run.peers if any(outcome.best(peer) for outcome in run.outcomes)]


def _workloads(run: Run) -> Table:
    columns = _columns(run)
    lines = [[row.name, row.time(), row.share(run), *map(row.against, columns)] for row in rows(run)]
    return Table(["workload", "raggrad", "of copy", *columns], lines)


def _batches(run: Run) -> Table:
    """Batches per second and the time of a batch, for workloads with threads."""
    peers = [peer for peer in _columns(run) if any(o.best(peer) and o.workload.threads > 1 for o in run.outcomes)]
    lines = [
        [
            outcome.workload.name,
            *(_latency(outcome.best(name)) + _mark(outcome.tail_is_short(language)) for language, name in OURS.items()),
            *(_latency(outcome.best(peer)) for peer in peers),
        ]
        for outcome in run.outcomes
        if outcome.workload.threads > 1
    ]
    return Table(["batches per second, p50 / p99", *OURS.values(), *peers], lines)


def _latency(timing: Timing | None) -> str:
    if timing is None or timing.p50 is None or timing.p99 is None:
        return "-"
    return f"{1 / timing.seconds:.0f}/s, {time_text(timing.p50)} / {time_text(timing.p99)}"


def _ways(run: Run) -> Table:
    """For peers with several ways: the best one, and the workloads where it was."""
    won: dict[tuple[str, str], list[str]] = {}
    for peer in _columns(run):
        for outcome in run.outcomes:
            best = outcome.best(peer)
            if best and len(outcome.timings[peer]) > 1:
                won.setdefault((peer, best.way), []).append(outcome.workload.name)
    return Table(["peer", "its best way", "workloads"], [[*way, ", ".join(names)] for way, names in won.items()])


def _left_out(run: Run) -> Table:
    """The reasons for empty cells."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for outcome in run.outcomes:
        for name, why in outcome.notes.items():
            if name not in run.missing:
                reasons.setdefault((name, why), []).append(outcome.workload.name)
    lines = [[name, why, ", ".join(names)] for (name, why), names in reasons.items()]
    return Table(["left out", "because", "workloads"], lines)


# One workload of each operator family, for the first screen of README.md.
_HEADLINE = {
    "segment-A-zipf-f32-int64": "Gradient of pooled embeddings, 1.3 million ids",
    "fill-A": "Gradient of filled empty rows, 10 million entries",
    "slice-A": "Gradient of a sparse slice, 4 million entries",
    "ragged-A": "Gradient of ragged rows, 16,384 of them",
    "unbatch-A-2-threads": "Gradient of a batch that two threads share",
}
_HEADLINE_PEERS = {"tensorflow": "TensorFlow", "torch": "PyTorch", "jax": "JAX"}


def _headline(run: Run) -> Table:
    found = {row.outcome.workload.name: row for row in rows(run) if row.language == "python" and row.ours}
    lines = [
        [text, time_text(found[name].ours.seconds), *(_times(found[name], peer) for peer in _HEADLINE_PEERS)]
        for name, text in _HEADLINE.items()
        if name in found
    ]
    return Table(["", "raggrad", *_HEADLINE_PEERS.values()], lines)


def _times(row: Row, peer: str) -> str:
    theirs, ratio = row.outcome.best(peer), row.ratio(peer)
    return f"{time_text(theirs.seconds)} ({ratio:.1f}x)" if theirs and ratio else "-"


def _conditions(run: Run) -> list[str]:
    copy, fresh = run.bandwidth("copy"), run.bandwidth("fresh")
    versions = [f"{name} {version}" for packages in run.versions.values() for name, version in packages.items()]
    lines = [f"{run.threads} threads for everybody", f"{run.rounds} rounds", ", ".join(dict.fromkeys(versions))]
    if copy and fresh:
        lines.append(f"copies run at {copy / 1e9:.1f} GB/s, into fresh memory at {fresh / 1e9:.1f} GB/s")
    lines += [f"quick: {cut}" for cut in run.cuts]
    lines += [f"without {peer}: {why}" for peer, why in run.missing.items()]
    return [line for line in lines if line]


def measurement(run: Run) -> Measurement:
    tables = {
        "headline": _headline(run),
        "workloads": _workloads(run),
        "batches": _batches(run),
        "ways": _ways(run),
        "left out": _left_out(run),
    }
    title = "Gradients of raggrad and of other libraries"
    return Measurement(title, _conditions(run), run.machine, run.when[:10], tables=tables)


def as_text(run: Run) -> str:
    measured = measurement(run)
    tables = (aligned(table) for name, table in measured.tables.items() if table.rows and name != "headline")
    return "\n\n".join(["\n".join([measured.machine, *measured.conditions]), *tables])


def as_json(run: Run) -> dict[str, Any]:
    """The measurement, and every round that it comes from."""
    return {
        **asdict(measurement(run)),
        "when": run.when,
        "threads": run.threads,
        "rounds": run.rounds,
        "versions": run.versions,
        "missing": run.missing,
        "cuts": run.cuts,
        "copy_bandwidth": run.bandwidth("copy"),
        "fresh_copy_bandwidth": run.bandwidth("fresh"),
        "workloads": [_outcome_json(outcome) for outcome in run.outcomes],
    }


def _outcome_json(outcome: Outcome) -> dict[str, Any]:
    workload = outcome.workload
    return {
        "name": workload.name,
        "task": workload.task,
        "sizes": workload.sizes,
        "threads": workload.threads,
        "traffic": outcome.traffic,
        "notes": outcome.notes,
        "targets": [
            {**asdict(target), "ratio": outcome.ratio(target.peer, target.language), "reached": outcome.verdict(target)}
            for target in workload.targets
        ],
        "copy_shares": workload.copy_shares,
        "timings": {
            name: [
                {
                    "way": timing.way,
                    "seconds": timing.seconds,
                    "spread": timing.spread,
                    "p50": timing.p50,
                    "p99": timing.p99,
                    "rounds": [sample.seconds for sample in timing.samples],
                }
                for timing in timings
                if timing.samples
            ]
            for name, timings in outcome.timings.items()
        },
    }
