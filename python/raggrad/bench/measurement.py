"""A measurement: tables of figures, with what was measured, when, on which machine and by which command.

Benchmark programs print their tables row by row, and write them as JSON to the file that --json names.
docs/measurements/ has such files, and `make pictures` makes the tables and charts of the documentation of them.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

Cell = str | float

_OUTPUTS = ("--json", "--png", "--markdown")  # options that name files to write: no part of the command
_PLAIN_ENGLISH = {**os.environ, "LC_ALL": "C"}


def add_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the tables, with date, machine and command")


@dataclass
class Table:
    columns: list[str]
    rows: list[list[Cell]] = field(default_factory=list)

    def add(self, *cells: Cell) -> None:
        """Prints the row; the first one also prints the head. Numbers keep three digits, strings are left alone."""
        if not self.rows:
            print(self._line(self.columns))
        self.rows.append([cell if isinstance(cell, str | int) else float(f"{cell:.3g}") for cell in cells])
        print(self._line(self.rows[-1]), flush=True)

    def _line(self, cells: Sequence[Cell]) -> str:
        """As wide as most first cells and the heads of the others need: later rows are not known yet."""
        first, *others = (text(cell) for cell in cells)
        widths = (max(10, len(column) + 2) for column in self.columns[1:])
        return f"{first:52}" + "".join(map(str.rjust, others, widths))


@dataclass
class Measurement:
    title: str
    conditions: list[str] = field(default_factory=list)  # versions, numbers of rounds, other load of the machine
    machine: str = field(default_factory=lambda: describe_machine())
    date: str = field(default_factory=lambda: datetime.date.today().isoformat())
    command: str = field(default_factory=lambda: command_line())
    tables: dict[str, Table] = field(default_factory=dict)

    def table(self, name: str, *columns: str) -> Table:
        return self.tables.setdefault(name, Table(list(columns)))

    def write(self, path: Path | None) -> None:
        if path is not None:
            write_json(path, asdict(self))

    @classmethod
    def read(cls, path: Path) -> Measurement:
        """Files may have more than that, such as every round of a run."""
        content = json.loads(path.read_text())
        tables = {name: Table(**table) for name, table in content["tables"].items()}
        return cls(**{**{key.name: content[key.name] for key in fields(cls)}, "tables": tables})

    def markdown(self, *names: str) -> str:
        """These tables, or all, without empty ones, and a line that says where their figures come from."""
        tables = (self.tables[name] for name in names or self.tables)
        source = "; ".join([self.machine, *self.conditions, f"`{self.command}`, {self.date}."])
        return "\n\n".join([*(markdown(table) for table in tables if table.rows), source])


def write_json(path: Path, content: object) -> None:
    """Every row of a table is one line, so that people can read a change of figures."""
    spread = json.dumps(content, indent=1, ensure_ascii=False)
    lines = re.sub(r"\[\n[^\[\]{}]*\]", lambda row: re.sub(r"\n *", " ", row[0]), spread)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(lines + "\n")


def text(cell: Cell) -> str:
    return cell if isinstance(cell, str) else f"{cell:,.15g}"


def markdown(table: Table) -> str:
    """Columns of figures are aligned to the right."""
    texts = [[text(cell) for cell in row] for row in table.rows]
    figures = (i > 0 and all(row[i][:1] in "0123456789-" for row in texts) for i in range(len(table.columns)))
    lines = [table.columns, ["---:" if right else "---" for right in figures], *texts]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def aligned(table: Table) -> str:
    """For a terminal."""
    lines = [table.columns, *([text(cell) for cell in row] for row in table.rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


def describe_machine(device: str = "") -> str:
    """The processors, how busy they are, and before them the device that did the work, if it was another."""
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
    load = os.getloadavg()[0]
    busy = f" with a load of {load:.1f} at the start" if load >= 0.5 else ""
    processors = f"{model}, {len(os.sched_getaffinity(0))} processors{busy}, {memory:.0f} GiB, {system}"
    return f"{device}; {processors}" if device else processors


def command_line() -> str:
    """How this program was called, without the files it writes and without the folder it lies in."""
    program = Path(sys.argv[0])
    words, arguments = [], iter(sys.argv[1:])
    for argument in arguments:
        option, equals, _ = argument.partition("=")
        if option not in _OUTPUTS:
            words.append(argument)
        elif not equals:
            next(arguments, None)
    name = "python -m raggrad" if program.name == "__main__.py" else f"{program.parent.name}/{program.name}"
    return f"{name} {shlex.join(words)}".strip()
