"""A small writer of SVG: boxes, cells, arrows and words, for readers in the light and in the dark.

Colours are classes of a style sheet that asks the reader's system. Every picture has a background of its own, because
the page around it may have chosen otherwise. Nobody looks at a picture that a program draws again, so words that leave
the picture, leave their cell or meet other words are an error.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

WIDTH = 720
_MARGIN = 10

# Class: fill and stroke in the light, fill and stroke in the dark. Lines to boxes of a colour have that colour.
_CLASSES = {
    "page": ("#ffffff", "#d0d7de", "#161b22", "#3d444d"),
    "cell": ("#eef1f4", "#9aa4af", "#2a313a", "#6b7580"),
    "empty": ("none", "#c4ccd4", "none", "#4a525c"),
    "a": ("#cfe3fb", "#2f76b8", "#1b4472", "#66aef0"),
    "b": ("#fddcb8", "#bf6a12", "#6a3d0d", "#f2a550"),
    "c": ("#cfeed7", "#2f8a50", "#1c5231", "#62c586"),
    "d": ("#e6dafa", "#7d55c0", "#47316e", "#b99af0"),
    "frame": ("none", "#bf6a12", "none", "#f2a550"),
    "line": ("none", "#6b7580", "none", "#9aa4af"),
    "to-a": ("none", "#2f76b8", "none", "#66aef0"),
    "to-b": ("none", "#bf6a12", "none", "#f2a550"),
    "to-c": ("none", "#2f8a50", "none", "#62c586"),
    "to-d": ("none", "#7d55c0", "none", "#b99af0"),
    "ink": ("#1f2328", "none", "#e6edf3", "none"),
    "head": ("#1f2328", "none", "#e6edf3", "none"),
    "soft": ("#57606a", "none", "#9da7b3", "none"),
}
_SANS = "system-ui, -apple-system, 'Segoe UI', 'Noto Sans', Helvetica, Arial, sans-serif"
_MONO = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'Liberation Mono', monospace"


class Point(NamedTuple):
    x: float
    y: float


class Grid(NamedTuple):
    """Where cells lie. Arrows begin and end at the middles of their sides."""

    x: float
    y: float
    width: float  # of a cell
    height: float
    rows: int
    columns: int

    def left(self, row: int) -> Point:
        return Point(self.x, self.y + (row + 0.5) * self.height)

    def right(self, row: int) -> Point:
        return Point(self.x + self.columns * self.width, self.y + (row + 0.5) * self.height)

    def top(self, column: int) -> Point:
        return Point(self.x + (column + 0.5) * self.width, self.y)

    def bottom(self, column: int) -> Point:
        return Point(self.x + (column + 0.5) * self.width, self.y + self.rows * self.height)


class _Words(NamedTuple):
    text: str
    left: float
    top: float
    right: float
    bottom: float

    def meet(self, other: _Words) -> bool:
        across = self.left < other.right and other.left < self.right
        return across and self.top < other.bottom and other.top < self.bottom


def number(value: float) -> str:
    """As people write it: 3, not 3.0."""
    return f"{float(value):g}"


def numbers(values: Sequence[float]) -> list[str]:
    return [number(value) for value in values]


class Picture:
    def __init__(self, height: float, title: str) -> None:
        self.height = height
        self.title = title
        self._elements: list[str] = []
        self._words: list[_Words] = []
        self.box(0.5, 0.5, WIDTH - 1, height - 1, "page", radius=8)

    def words(
        self,
        x: float,
        y: float,
        text: str,
        kind: str = "ink",
        size: float = 14,
        align: str = "start",
        mono: bool = False,
    ) -> None:
        """One line; y is its base line. `align` is start, middle or end."""
        width = _width_of(text, size, "mono" if mono else kind)
        left = x - {"start": 0, "middle": width / 2, "end": width}[align]
        placed = _Words(text, left, y - 0.75 * size, left + width, y + 0.22 * size)
        if left < _MARGIN or placed.right > WIDTH - _MARGIN or placed.top < _MARGIN or y > self.height - _MARGIN:
            raise ValueError(f"{self.title}: {text!r} leaves the picture")
        for other in self._words:
            if placed.meet(other):
                raise ValueError(f"{self.title}: {text!r} meets {other.text!r}")
        self._words.append(placed)
        names = f"{kind} mono" if mono else kind
        anchor = "" if align == "start" else f' text-anchor="{align}"'
        self._add(f'<text class="{names}" x="{x:g}" y="{y:g}" font-size="{size:g}"{anchor}>{escape(text)}</text>')

    def paragraph(self, x: float, y: float, text: str, kind: str = "soft", size: float = 13) -> None:
        """Lines as long as the picture allows, up to a margin of 24."""
        for i, line in enumerate(wrapped(text, x, kind, size)):
            self.words(x, y + 20 * i, line, kind, size)

    def box(self, x: float, y: float, width: float, height: float, kind: str = "cell", radius: float = 3) -> None:
        self._add(f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{radius:g}"/>')

    def line(self, start: Point, end: Point, kind: str = "line") -> None:
        self._add(f'<path class="{kind}" d="M{start.x:g} {start.y:g}L{end.x:g} {end.y:g}"/>')

    def arrow(self, start: Point, end: Point, kind: str = "line") -> None:
        """A line with a head, and a little air at both ends."""
        angle = math.atan2(end.y - start.y, end.x - start.x)
        air = Point(3 * math.cos(angle), 3 * math.sin(angle))
        start, end = Point(start.x + air.x, start.y + air.y), Point(end.x - air.x, end.y - air.y)
        self.line(start, end, kind)
        one, other = (Point(end.x - 8 * math.cos(angle + t), end.y - 8 * math.sin(angle + t)) for t in (-0.4, 0.4))
        self._add(
            f'<path class="{kind}" d="M{one.x:.4g} {one.y:.4g}L{end.x:.4g} {end.y:.4g}L{other.x:.4g} {other.y:.4g}"/>'
        )

    def cells(
        self,
        x: float,
        y: float,
        texts: Sequence[Sequence[str]],
        kinds: Sequence[Sequence[str]] | str = "cell",
        width: float = 44,
        height: float = 28,
    ) -> Grid:
        """Rows of texts in boxes; `kinds` has a class for each, or one for all."""
        for i, row in enumerate(texts):
            for j, text in enumerate(row):
                if _width_of(text, 14, "mono") > width - 4:
                    raise ValueError(f"{self.title}: {text!r} leaves its cell")
                kind = kinds if isinstance(kinds, str) else kinds[i][j]
                self.box(x + j * width, y + i * height, width, height, kind)
                if text:
                    middle = Point(x + (j + 0.5) * width, y + (i + 0.5) * height + 5)
                    self.words(middle.x, middle.y, text, align="middle", mono=True)
        return Grid(x, y, width, height, len(texts), max((len(row) for row in texts), default=0))

    def svg(self) -> str:
        size = f'width="{WIDTH}" height="{self.height:g}" viewBox="0 0 {WIDTH} {self.height:g}"'
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">\n<title>{escape(self.title)}</title>\n'
        return head + _style() + "\n".join(self._elements) + "\n</svg>\n"

    def _add(self, element: str) -> None:
        self._elements.append(element)


def wrapped(text: str, x: float, kind: str, size: float) -> list[str]:
    """The lines of a paragraph that begins at x."""
    return textwrap.wrap(text, int((WIDTH - 24 - x) / _width_of("n", size, kind)))


def _width_of(text: str, size: float, kind: str) -> float:
    """A little more than common fonts need."""
    return len(text) * size * {"mono": 0.61, "head": 0.62}.get(kind, 0.56)


def _style() -> str:
    def rules(light: bool) -> str:
        chosen = {name: colors[:2] if light else colors[2:] for name, colors in _CLASSES.items()}
        return "\n".join(f".{name} {{ fill: {fill}; stroke: {stroke} }}" for name, (fill, stroke) in chosen.items())

    return (
        f"<style>\ntext {{ font-family: {_SANS} }}\n.mono {{ font-family: {_MONO} }}\n.head {{ font-weight: 600 }}\n"
        f"path {{ stroke-width: 1.6; stroke-linecap: round }}\n.frame {{ stroke-width: 2.5 }}\n"
        f".empty {{ stroke-dasharray: 3 3 }}\n{rules(True)}\n"
        f"@media (prefers-color-scheme: dark) {{\n{rules(False)}\n}}\n</style>\n"
    )
