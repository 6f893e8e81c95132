"""Reports of a run: a table for the terminal, Markdown for the documentation, JSON for programs."""

from __future__ import annotations

import datetime
import os
import platform
import statistics
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .measure import OURS, Outcome, Timing
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


_PLAIN_ENGLISH = {**os.environ, "LC_ALL": "C"}


def describe_machine() -> str:
    model = platform.machine()
    try:
        described = subprocess.run(["lscpu"], capture_output=True, text=True, check=False, env=_PLAIN_ENGLISH).stdout
    except OSError:
        described = ""
    for line in described.splitlines():
        if line.startswith("Model name:"):
            model = f"{line.split(':', 1)[1].strip()} ({model})"
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    system = f"{platform.system()} {platform.release().split('-')[0]}"  # without the name of the kernel's build
    return f"{model}, {len(os.sched_getaffinity(0))} processors, {memory:.0f} GiB, {system}"


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
        return f"{reached / copy:.0%}" if copy and reached else ""

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


def _cells(run: Run) -> list[list[str]]:
    columns = _columns(run)
    head = ["workload", "raggrad", "of copy", *columns]
    lines = [[row.name, row.time(), row.share(run), *map(row.against, columns)] for row in rows(run)]
    return [head, *lines]


def _latency_cells(run: Run) -> list[list[str]]:
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
    return [["batches per second, p50 / p99", *OURS.values(), *peers], *lines] if lines else []


def _latency(timing: Timing | None) -> str:
    if timing is None or timing.p50 is None or timing.p99 is None:
        return "-"
    return f"{1 / timing.seconds:.0f}/s, {time_text(timing.p50)} / {time_text(timing.p99)}"


def _facts(run: Run) -> list[str]:
    copy, fresh = run.bandwidth("copy"), run.bandwidth("fresh")
    lines = [
        f"machine: {run.machine}",
        f"run: {run.when}, {run.threads} threads for everybody, {run.rounds} rounds",
        *(
            f"{name}: {', '.join(f'{package} {version}' for package, version in versions.items())}"
            for name, versions in run.versions.items()
            if versions
        ),
    ]
    if copy and fresh:
        lines.append(f"copy bandwidth: {copy / 1e9:.1f} GB/s, into fresh memory {fresh / 1e9:.1f} GB/s")
    lines += [f"quick: {cut}" for cut in run.cuts]
    lines += [f"missing: {peer}: {why}" for peer, why in run.missing.items()]
    return lines


def best_ways(run: Run) -> list[str]:
    """For peers with several ways: the best one, and the workloads where it was."""
    lines = []
    for peer in _columns(run):
        won: dict[str, list[str]] = {}
        for outcome in run.outcomes:
            best = outcome.best(peer)
            if best and len(outcome.timings[peer]) > 1:
                won.setdefault(best.way, []).append(outcome.workload.name)
        lines += [f"{peer}, best way {way!r}: {', '.join(names)}" for way, names in won.items()]
    return lines


def notes(run: Run) -> list[str]:
    """The reasons for empty cells, one line each."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for outcome in run.outcomes:
        for name, why in outcome.notes.items():
            if name not in run.missing:
                reasons.setdefault((name, why), []).append(outcome.workload.name)
    return [f"{name}, {', '.join(names)}: {why}" for (name, why), names in reasons.items()]


def as_text(run: Run) -> str:
    parts = ["\n".join(_facts(run)), _aligned(_cells(run)), _aligned(_latency_cells(run))]
    parts += ["\n".join(best_ways(run)), "\n".join(notes(run))]
    return "\n\n".join(part for part in parts if part)


def _aligned(cells: Sequence[Sequence[str]]) -> str:
    if not cells:
        return ""
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in cells)


def as_markdown(run: Run) -> str:
    parts = ["\n".join(f"- {line}" for line in _facts(run)), _markdown_table(_cells(run))]
    parts += [_markdown_table(_latency_cells(run)), "\n".join(f"- {line}" for line in (*best_ways(run), *notes(run)))]
    return "\n\n".join(part for part in parts if part) + "\n"


def _markdown_table(cells: Sequence[Sequence[str]]) -> str:
    if not cells:
        return ""
    lines = ["| " + " | ".join(row) + " |" for row in cells]
    return "\n".join([lines[0], "|" + "---|" * len(cells[0]), *lines[1:]])


def write_markdown(path: Path, run: Run) -> None:
    """Writes a new file, or replaces the block between the marks of a file that has them."""
    tables = as_markdown(run)
    if not (path.exists() and replace_block(path, "bench", tables)):
        path.write_text(tables)


def replace_block(page: Path, name: str, text: str) -> bool:
    """Replaces the text between the marks `name` of a page. False if it has none."""
    before, begin, rest = page.read_text().partition(f"<!-- {name}: begin -->")
    _, end, after = rest.partition(f"<!-- {name}: end -->")
    if begin and end:
        page.write_text(f"{before}{begin}\n{text.rstrip()}\n{end}{after}")
    return bool(begin and end)


def as_json(run: Run) -> dict[str, Any]:
    return {
        "when": run.when,
        "machine": run.machine,
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
