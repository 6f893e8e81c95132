"""Charts of docs/measurements/: bars of times and sizes, and lines of costs that grow."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

from raggrad.bench.measurement import Cell, Measurement, text

from .svg import Picture, Point, wrapped

_MEASUREMENTS = Path(__file__).parents[2] / "docs" / "measurements"
_LEFT, _BAR, _KINDS = 266, 15, ("b", "d", "c", "a")

# One workload of every kind: the name in the measurement, and what it is.
_WORKLOADS = {
    "segment-A-uniform-f32-int64": "Pooled embeddings, uniform ids",
    "segment-A-zipf-f32-int64": "Pooled embeddings, skewed ids",
    "segment-C-f32": "Pooled embeddings, 256 columns",
    "fill-A": "Filled empty rows",
    "slice-A": "Sparse slice",
    "ragged-A": "Ragged rows, 16,384 pieces",
    "ragged-B": "Ragged rows, 100 pieces of 1 MiB",
}


def speed() -> Picture:
    measured = _read("bench_aarch64")
    return _ratios(measured, measured.tables["headline"].rows, {2: "TensorFlow", 3: "PyTorch", 4: "JAX"})


def gradients_on_a_cpu() -> Picture:
    measured = _read("bench_aarch64")
    table = measured.tables["workloads"]
    rows = {str(row[0]): row for row in table.rows}
    peers = {table.columns.index("torch"): "PyTorch", table.columns.index("tensorflow"): "TensorFlow"}
    return _ratios(measured, [[words, *rows[name][1:]] for name, words in _WORKLOADS.items()], peers)


def torch_step() -> Picture:
    return _steps("A training step with SparseAdam on an H200, in milliseconds", _read("torch_step_h200"))


def torch_step_on_a_cpu() -> Picture:
    return _steps("A training step with SparseAdam on a CPU, in milliseconds", _read("torch_step_x86_64"))


def torch_memory() -> Picture:
    title = "Memory of a step with SparseAdam besides table and states, in MB"
    return _steps(title, _read("torch_memory_x86_64"))


def _steps(title: str, measured: Measurement) -> Picture:
    columns = {1: "torch", 2: "raggrad", 3: "raggrad, fused"}
    groups = {str(row[0]): {name: row[i] for i, name in columns.items()} for row in measured.tables["SparseAdam"].rows}
    return _bars(title, groups, measured)


def exchange() -> Picture:
    measured = _read("dist_exchange_aarch64")
    ways = {3: "dense all-reduce", 4: "gather of ids", 5: "rd.all_reduce"}
    chosen = [row for row in measured.tables["exchange"].rows if row[2] in ("12.3%", "21.1%")]
    groups = {
        f"{row[1]} processes, {row[2]} of the rows, {str(row[0]).rpartition('-')[2]} ids": {
            name: row[i] for i, name in ways.items()
        }
        for row in sorted(chosen, key=lambda row: (str(row[0]), row[1]))
    }
    return _bars("Sums of sparse gradients over processes, in milliseconds", groups, measured)


# Names in the measurement, and what they are.
_GROWING = {
    "sparse_segment, uniform, width 64, per id": "gradient of pooled embeddings, random rows of 64",
    "sparse_segment, one-row, width 64, per id": "the same, all ids name one row",
    "sparse_slice, per entry": "gradient of a sparse slice",
    "sparse_fill_empty_rows, sorted, per entry": "gradient of filled empty rows",
}


def growth() -> Picture:
    """Both axes are logarithmic."""
    measured = _read("growth_aarch64")
    table = measured.tables["growth"]
    sizes = [float(column.replace(",", "")) for column in table.columns[1:]]
    rows = {str(row[0]): row[1:] for row in table.rows}
    left, right, top, bottom, least, most = 66, 690, 150, 390, 0.1, 100
    source = _source(measured)

    def place(size: float, nanoseconds: float) -> Point:
        along = math.log(size / 1e3) / math.log(1e8 / 1e3)
        return Point(
            left + along * (right - left),
            bottom - math.log(nanoseconds / least) / math.log(most / least) * (bottom - top),
        )

    picture = Picture(
        bottom + 64 + 20 * len(wrapped(source, 24, "soft", 12)), "What an id or entry costs, by their number"
    )
    picture.words(24, 34, "Nanoseconds per id or entry, from a thousand to 100 million of them", "head")
    for nanoseconds in (0.1, 1, 10, 100):
        picture.line(place(1e3, nanoseconds), place(1e8, nanoseconds), "empty")
        picture.words(left - 8, place(1e3, nanoseconds).y + 4, text(nanoseconds), "soft", 12, "end")
    for size in (1e3, 1e4, 1e5, 1e6, 1e7):
        picture.words(place(size, 1).x, bottom + 18, text(size), "soft", 12, "middle")
    picture.words(right, bottom + 18, text(1e8), "soft", 12, "end")
    for i, ((name, words), kind) in enumerate(zip(_GROWING.items(), _KINDS, strict=True)):
        points = [place(size, float(cell)) for size, cell in zip(sizes, rows[name], strict=True) if cell != ""]
        for begin, end in pairwise(points):
            picture.line(begin, end, f"to-{kind}")
        for point in points:
            picture.box(point.x - 3, point.y - 3, 6, 6, kind)
        picture.box(24, 50 + 20 * i, 13, 13, kind)
        picture.words(44, 61 + 20 * i, words, "ink", 13)
    picture.paragraph(24, bottom + 50, source, "soft", 12)
    return picture


def _source(measured: Measurement) -> str:
    return "; ".join([measured.machine, *measured.conditions, measured.date, measured.command])


def _read(name: str) -> Measurement:
    return Measurement.read(_MEASUREMENTS / f"{name}.json")


def _ratios(measured: Measurement, rows: list[list[Cell]], peers: Mapping[int, str]) -> Picture:
    """How many times as long as raggrad the others take. A cell has that as 3.5x, or no peer."""
    found = {str(row[0]): {name: re.search(r"([\d.]+)x", str(row[i])) for i, name in peers.items()} for row in rows}
    groups = {words: {name: float(x[1]) for name, x in of_peers.items() if x} for words, of_peers in found.items()}
    return _bars("Gradients: how many times as long as in raggrad", groups, measured, "x")


def _bars(title: str, groups: Mapping[str, Mapping[str, Cell]], measured: Measurement, unit: str = "") -> Picture:
    """A bar for each figure; those of a group have one text at their left. With a unit, a line marks one of it."""
    names = list(dict.fromkeys(name for group in groups.values() for name in group))
    kinds = dict(zip(names, _KINDS, strict=False))
    longest = max(float(value) for group in groups.values() for value in group.values())
    width = (640 - _LEFT) / longest
    source = _source(measured)
    heights = [(_BAR + 2) * max(len(group), len(_lines(words))) + 12 for words, group in groups.items()]
    end = 80 + sum(heights)
    foot = end + (44 if unit else 22)

    picture = Picture(foot + 20 * len(wrapped(source, 24, "soft", 12)), title)
    picture.words(24, 34, title, "head")
    x = float(_LEFT)
    for name, kind in kinds.items():
        picture.box(x, 53, 13, 13, kind)
        picture.words(x + 20, 64, name, "ink", 13)
        x += 44 + 8 * len(name)
    y = 84.0
    for (words, group), height in zip(groups.items(), heights, strict=True):
        for i, line in enumerate(_lines(words)):
            picture.words(_LEFT - 12, y + 13 + (_BAR + 2) * i, line, "ink", 13, "end")
        for i, (name, value) in enumerate(group.items()):
            top, length = y + i * (_BAR + 2), float(value) * width
            picture.box(_LEFT, top, length, _BAR, kinds[name], radius=2)
            picture.words(_LEFT + length + 8, top + 12, f"{text(value)}{unit}", "ink", 12)
        y += height
    if unit:
        picture.line(Point(_LEFT + width, 78), Point(_LEFT + width, end), "line")
        picture.words(_LEFT + width, end + 16, f"1{unit}: raggrad", "soft", 12, "middle")
    picture.paragraph(24, foot, source, "soft", 12)
    return picture


def _lines(words: str) -> list[str]:
    """Broken at commas first."""
    return [line for part in words.replace(", ", ",\n").splitlines() for line in textwrap.wrap(part, 32)]
