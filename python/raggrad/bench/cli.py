"""python -m raggrad bench."""

from __future__ import annotations

import argparse
import fnmatch
import math
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from . import chart, environments, gate, measure, participants, report
from .measurement import write_json
from .participants import Failed, Participant, Process
from .progress import progress
from .workload import Workload
from .workloads import WORKLOADS

PLAIN = "plain"  # raggrad itself, without plans and fused updates
PEERS = (*environments.REQUIREMENTS, PLAIN)
_ROUNDS, _QUICK_ROUNDS = 9, 3
_QUICK_SECONDS = 100  # no round begins later, so that the run ends within 2 minutes
_COPY_SECONDS = 20  # how long a measured copy bandwidth is used


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Measures raggrad and other libraries on the same workloads, in turns, each in a process and an environment of "
        "its own. Missing libraries are installed into the folder of --envs. Exit status: 0; with --baseline 1 if a "
        "workload has become slower; 2 for wrong arguments."
    )
    parser.epilog = "Example: python -m raggrad bench --only 'segment-A*' --peers torch,jax --json segments.json"
    parser.add_argument("--quick", action="store_true", help="take under 2 minutes once the libraries are installed: "
                        f"the main workloads, {_QUICK_ROUNDS} rounds, fewer if time runs out")  # fmt: skip
    parser.add_argument("--only", metavar="PATTERN", action="append", help="run only workloads like 'segment-A*'")
    parser.add_argument("--list", action="store_true", help="list the workloads and stop")
    parser.add_argument("--peers", metavar="NAMES", help="libraries to compare with, separated by commas, or none "
                        f"(default: {','.join(PEERS)})")  # fmt: skip
    parser.add_argument("--rounds", type=_positive, metavar="N",
                        help=f"how often each library is measured (default: {_ROUNDS})")  # fmt: skip
    parser.add_argument("--threads", type=_positive, metavar="N",
                        help="threads of each library (default: all processors)")  # fmt: skip
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the tables, and every round")
    parser.add_argument("--png", type=Path, metavar="FILE", help="draw the ratios (needs matplotlib)")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables")
    parser.add_argument("--envs", type=Path, metavar="DIR", default=environments.default_folder(),
                        help="folder of the libraries' environments (default: %(default)s)")  # fmt: skip
    parser.add_argument("--no-install", action="store_true", help="install nothing; report missing libraries")
    parser.add_argument("--python", metavar="PEER=PATH", action="append", default=[], type=_interpreter,
                        help="use this interpreter for a peer instead of an environment in --envs")  # fmt: skip
    parser.add_argument("--cpp", type=Path, metavar="DIR", help="also measure raggrad's C++ benchmark programs there")
    parser.add_argument("--baseline", type=Path, metavar="DIR",
                        help="compare with the raggrad in this folder (pip install --target) instead of with "
                        "other libraries; fail if a workload became over 10 %% slower")  # fmt: skip


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a positive number, got {text!r}")
    return int(text)


def _interpreter(text: str) -> tuple[str, str]:
    peer, _, path = text.partition("=")
    if peer not in PEERS or not path:
        raise argparse.ArgumentTypeError(f"expected PEER=PATH with PEER one of {', '.join(PEERS)}, got {text!r}")
    return peer, path


def run(options: argparse.Namespace) -> int:
    try:
        workloads = _chosen(options)
        peers = _peers(options)
    except ValueError as error:
        return _refuse(str(error))
    if options.list:
        for workload in workloads:
            print(f"{workload.name:36}{workload.sizes}")
        return 0
    threads = options.threads or len(os.sched_getaffinity(0))
    if options.baseline:
        return gate.run(workloads, options.baseline, threads, options.rounds)
    rounds = options.rounds or (_QUICK_ROUNDS if options.quick else _ROUNDS)
    try:
        result = _measure(options, workloads, peers, threads, rounds)
    except Failed as failure:
        return _refuse(f"raggrad: {failure}")
    print(report.as_text(result))
    _write(options, result)
    return 0


def _refuse(why: str) -> int:
    print(f"python -m raggrad bench: {why}", file=sys.stderr)
    return 2


def _chosen(options: argparse.Namespace) -> list[Workload]:
    patterns = options.only or ["*"]
    chosen = [
        workload
        for workload in WORKLOADS
        if (workload.quick or not options.quick)
        and any(fnmatch.fnmatchcase(workload.name, pattern) for pattern in patterns)
    ]
    if not chosen:
        raise ValueError(f"no workload is like {' or '.join(map(repr, patterns))}; --list names them")
    return chosen


def _peers(options: argparse.Namespace) -> list[str]:
    if options.peers is None:
        return list(PEERS)
    names = [name for name in options.peers.split(",") if name and name != "none"]
    unknown = [name for name in names if name not in PEERS]
    if unknown:
        raise ValueError(f"no peer is called {unknown[0]!r}; there are {', '.join(PEERS)}")
    return names


def _measure(
    options: argparse.Namespace, workloads: Sequence[Workload], peers: list[str], threads: int, rounds: int
) -> report.Run:
    result = report.Run([], peers, threads, rounds)
    pythons = _interpreters(options, result)
    deadline = time.monotonic() + _QUICK_SECONDS if options.quick else math.inf
    ours = participants.raggrad_in(participants.HERE, threads)
    company: list[Participant] = [ours]
    copied = -math.inf

    def before(workload: Workload) -> None:
        nonlocal copied
        say(workload.name)
        if workload.traffic is not None and time.monotonic() > copied + _COPY_SECONDS:
            result.bandwidths.append(ours.copy_bandwidth())
            copied = time.monotonic()

    try:
        if options.cpp:
            _join(company, result, "raggrad-c++", lambda: participants.CppBenchmarks(options.cpp, threads))
        for peer in peers:
            if peer == PLAIN:
                _join(company, result, peer, lambda: participants.raggrad_in(participants.HERE, threads, PLAIN, PLAIN))
            elif peer in pythons:
                _join(company, result, peer, lambda peer=peer: Process(peer, peer, pythons[peer], threads))
        result.versions = {participant.name: participant.about for participant in company}
        with progress(len(workloads) * (rounds + 1)) as (say, step):
            result.outcomes = measure.run(workloads, company, rounds, deadline=deadline, before=before, step=step)
    finally:
        for participant in company:
            participant.close()
    if options.quick:
        result.cuts = _cuts(workloads, result)
    return result


def _interpreters(options: argparse.Namespace, result: report.Run) -> dict[str, str]:
    """The interpreter of each peer. Installs peers that are asked for and missing."""
    pythons = dict(options.python)
    for peer in result.peers:
        if peer in pythons or peer == PLAIN:
            continue
        try:
            if not environments.is_installed(peer, options.envs):
                if options.no_install:
                    raise environments.CannotInstall(f"not installed in {options.envs}")
                print(f"installing {peer} into {options.envs} ...", file=sys.stderr, flush=True)
                environments.install(peer, options.envs)
            pythons[peer] = str(environments.python_of(peer, options.envs))
        except environments.CannotInstall as reason:
            _miss(result, peer, reason)
    return pythons


def _join(company: list[Participant], result: report.Run, name: str, start: Callable[[], Participant]) -> None:
    try:
        company.append(start())
    except Failed as reason:
        _miss(result, name, reason)


def _miss(result: report.Run, name: str, reason: Exception) -> None:
    result.missing[name] = str(reason)
    print(f"missing: {name}: {reason}", file=sys.stderr)


def _cuts(workloads: Sequence[Workload], result: report.Run) -> list[str]:
    """Lines that say what --quick left out."""
    lines = [f"{len(workloads)} of {len(WORKLOADS)} workloads, {result.rounds} rounds instead of {_ROUNDS}"]
    short = [o.workload.name for o in result.outcomes if o.rounds < result.rounds]
    short += [f"{workload.name} (not timed)" for workload in workloads[len(result.outcomes) :]]
    if short:
        lines.append(f"fewer rounds, because {_QUICK_SECONDS} s were over: {', '.join(short)}")
    return lines


def _write(options: argparse.Namespace, result: report.Run) -> None:
    for path in (options.json, options.png, options.markdown):
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
    if options.json:
        write_json(options.json, report.as_json(result))
    if options.markdown:
        options.markdown.write_text(report.measurement(result).markdown() + "\n")
    if options.png:
        chart.draw(result, options.png)
