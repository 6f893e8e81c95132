"""Explains order-free sums: the same terms in two orders, one after the other and on a grid."""

from __future__ import annotations

import math

import numpy as np
from raggrad import ops

from .svg import WIDTH, Picture, Point, number, numbers

_TERMS = np.float32([2e7, 0.1, -2e7, 1])
_ORDERS = {"in one order": np.arange(4), "in another": np.arange(4)[::-1]}


def _sum(terms: np.ndarray, mode: str) -> np.float32:
    """All terms are gradients of the same row."""
    places = np.arange(len(terms))
    rows = ops.sparse_segment_sum_grad(terms[:, None], np.zeros_like(places), places, num_rows=1, accumulation=mode)
    return rows.values[0, 0]


def _bits(value: np.float32) -> str:
    return f"{number(value)}, bits {value.view(np.uint32):08x}"


def order_free_sums() -> Picture:
    picture = Picture(520, "Sums that depend on the order of their terms, and sums that do not")
    picture.words(24, 34, "Sequential: every addition rounds, so the order decides", "head")
    for (name, order), x in zip(_ORDERS.items(), (104, 424), strict=True):
        terms = _TERMS[order]
        picture.words(x, 66, name, "soft", 13)
        cells = picture.cells(x, 76, [numbers(terms), numbers(np.cumsum(terms, dtype=np.float32))], width=64)
        picture.words(x + 256, 152, _bits(_sum(terms, "sequential")), "ink", 14, "end", mono=True)
    picture.words(94, cells.left(0).y + 5, "terms", "soft", 13, "end")
    picture.words(94, cells.left(1).y + 5, "sum so far", "soft", 13, "end")
    picture.words(94, 152, "result", "soft", 13, "end")

    picture.words(24, 206, "Reproducible: round each term to a grid first; then no addition rounds", "head")
    exponent = math.floor(math.log2(np.abs(_TERMS).max()))
    bits = len(_TERMS).bit_length()
    power = exponent + bits - 51
    note = f"The largest term has exponent {exponent}, and the number of terms, {len(_TERMS)}, has {bits} bits. So the "
    note += f"grid has the multiples of g = 2^({exponent} + {bits} - 51) = 2^{power}, in every order. "
    picture.paragraph(24, 232, note + "One term, from near:")
    _number_line(picture, 330, float(_TERMS[1]) / 2.0**power)

    for (name, order), x in zip(_ORDERS.items(), (104, 424), strict=True):
        picture.words(x, 404, name, "soft", 13)
        cells = picture.cells(x, 414, [numbers(_TERMS[order])], width=64)
        picture.words(x + 256, 462, _bits(_sum(_TERMS[order], "reproducible")), "ink", 14, "end", mono=True)
    picture.words(94, cells.left(0).y + 5, "terms", "soft", 13, "end")
    picture.words(94, 462, "result", "soft", 13, "end")
    picture.words(24, 500, "Sums of multiples of g are exact in float64; only the result is rounded, once.", "soft", 13)
    return picture


def _number_line(picture: Picture, y: float, term: float) -> None:
    """A term, counted in steps of the grid, among the nearest multiples."""
    first, step, x = math.floor(term) - 2, 110, 85
    picture.line(Point(40, y), Point(WIDTH - 40, y))
    for i in range(6):
        picture.line(Point(x + i * step, y - 7), Point(x + i * step, y + 7))
        picture.words(x + i * step, y + 26, f"{first + i} g", "soft", 13, "middle", mono=True)
    at, nearest = x + (term - first) * step, x + (round(term) - first) * step
    picture.box(at - 5, y - 5, 10, 10, "b", radius=5)
    picture.words(at, y - 34, number(_TERMS[1]), "ink", 14, "middle", mono=True)
    picture.line(Point(at, y - 28), Point(at, y - 8), "to-b")
    picture.arrow(Point(at, y), Point(nearest, y), "to-b")
