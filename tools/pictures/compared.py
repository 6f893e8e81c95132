"""Tables of `python -m raggrad bench` as pages show them.

The program prints a target behind the figure that has to reach it, which is short, for those who know the notation.
Pages have tables of figures without targets, a table of targets, and one of those that are missed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from raggrad.bench.measurement import Cell, Measurement, Table
from raggrad.bench.report import time_text
from raggrad.bench.workloads import BY_NAME

_NAMES = {
    "tensorflow": "TensorFlow",
    "torch": "PyTorch",
    "jax": "JAX",
    "fbgemm": "FBGEMM",
    "plain": "raggrad without plan or fusion",
    "raggrad-c++": "raggrad from C++",
    "of copy": "share of a copy",
}
_PEER = re.compile(r"(?P<time>.+?)  (?P<figure>[\d.]+x)(?: of (?P<target>[\d.]+x) (?P<mark>ok|BEHIND))?")
_SHARE = re.compile(r"(?P<figure>\d+%)(?: of (?P<target>\d+%) (?P<mark>ok|BEHIND))?")
_OURS = re.compile(r"(?P<figure>.*?)(?: (?P<mark>ok|BEHIND))?")
_VERDICT = {"ok": "yes", "BEHIND": "no"}


def for_pages(measured: Measurement) -> Measurement:
    """The same, with a table of targets if the tables are those of the benchmark program, and one of missed ones."""
    workloads, batches = measured.tables.get("workloads"), measured.tables.get("batches")
    if workloads is None:
        return measured
    if batches is None:
        return _with_missed_times(measured, workloads)
    targets = Table(["workload", "target", "measured", "reached"])
    targets.rows = [*_targets(workloads), *_tails(batches)]
    figures = {
        "workloads": Table(_heads(workloads), [_figures(row) for row in workloads.rows]),
        "batches": Table(_heads(batches), [[_match(_OURS, cell)["figure"] for cell in row] for row in batches.rows]),
        "ways": replace(measured.tables["ways"], rows=_named(measured.tables["ways"])),
        "left out": replace(measured.tables["left out"], rows=_named(measured.tables["left out"])),
        "targets": targets,
        "missed": Table(targets.columns, [row for row in targets.rows if row[-1] == "no"]),
    }
    return replace(measured, tables={**measured.tables, **figures})


def _with_missed_times(measured: Measurement, workloads: Table) -> Measurement:
    """For programs whose target is a time, beside the one that was measured; "-" is none."""
    if "target, ms" not in workloads.columns:
        return measured
    ours, target = workloads.columns.index("ms"), workloads.columns.index("target, ms")
    missed = [row for row in workloads.rows if row[target] != "-" and float(row[ours]) > float(row[target])]
    return replace(measured, tables={**measured.tables, "missed": Table(workloads.columns, missed)})


def _heads(table: Table) -> list[str]:
    return [_NAMES.get(column, column) for column in table.columns]


def _named(table: Table) -> list[list[Cell]]:
    return [[_NAMES.get(str(row[0]), row[0]), *row[1:]] for row in table.rows]


def _match(pattern: re.Pattern[str], cell: Cell) -> re.Match[str]:
    if found := pattern.fullmatch(str(cell)):
        return found
    raise ValueError(f"the benchmark program does not write {cell!r}")


def _figures(row: list[Cell]) -> list[Cell]:
    name, ours, share, *peers = row
    shown = [_match(_OURS, ours)["figure"], _match(_SHARE, share)["figure"] if share else ""]
    return [name, *shown, *("-" if cell == "-" else _peer(_match(_PEER, cell)) for cell in peers)]


def _peer(found: re.Match[str]) -> str:
    return f"{found['time']} ({found['figure']})"


def _targets(table: Table) -> Iterator[list[Cell]]:
    for name, ours, share, *peers in table.rows:
        if mark := _match(_OURS, ours)["mark"]:
            limit = BY_NAME[str(name).removesuffix(" from C++")].limits["c++"]
            yield [name, f"at most {time_text(limit)}", _match(_OURS, ours)["figure"], _VERDICT[mark]]
        if share and (found := _match(_SHARE, share))["mark"]:
            yield [name, f"at least {found['target']} of the speed of a copy", found["figure"], _VERDICT[found["mark"]]]
        for peer, cell in zip(table.columns[3:], peers, strict=True):
            if cell != "-" and (found := _match(_PEER, cell))["mark"]:
                words = f"at least {found['target']} as fast as {_NAMES[peer]}"
                yield [name, words, found["figure"], _VERDICT[found["mark"]]]


def _tails(table: Table) -> Iterator[list[Cell]]:
    """The 99th percentile of a batch shall stay below TensorFlow's median."""
    theirs = table.columns.index("tensorflow")
    for row in table.rows:
        for language, cell in zip(("", " from C++"), row[1:3], strict=True):
            if mark := _match(_OURS, cell)["mark"]:
                median = str(row[theirs]).split(", ")[1].split(" / ")[0]
                slowest = _match(_OURS, cell)["figure"].split(" / ")[1]
                target = f"99th percentile below TensorFlow's median, {median}"
                yield [f"{row[0]}{language}", target, slowest, _VERDICT[mark]]
