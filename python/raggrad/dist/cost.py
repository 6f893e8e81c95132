"""explain: what a step costs, with the table on every rank or divided among them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ._model import Sent, Step
from ._options import check_accumulation


class Network(NamedTuple):
    """The cost of messages between ranks. The defaults are assumed: 10 Gbit/s. raggrad.dist.measure() measures them."""

    bandwidth: float = 1.25e9  # bytes a second that a rank sends
    latency: float = 50e-6  # seconds that a message takes


NETWORK = Network()

_NOTE = "Ranks that share rows make sparse all-reduce cheaper: give frequencies, or unique_rows and all_rows."


class Cost(NamedTuple):
    """One way to train a table: what a rank sends in a step, and what it keeps."""

    name: str
    bytes: float
    messages: float
    seconds: float
    memory: float  # bytes of the table and its gradient on a rank


class Costs(NamedTuple):
    """The answer of explain(). Prints as a table."""

    question: str
    ways: tuple[Cost, ...]  # dense all-reduce, gather, sparse all-reduce, sharding, and that with hot rows if it pays
    note: str

    @property
    def best(self) -> Cost:
        """The fastest way, the gather apart: its time grows with the ids, and its result has rows more than once."""
        return min((way for way in self.ways if not way.name.startswith("gather")), key=lambda way: way.seconds)

    def __str__(self) -> str:
        lines = [self.question, f"{'':44}{'MB sent':>12}{'messages':>10}{'ms':>12}{'MB kept':>12}"]
        for way in self.ways:
            mark = "  <- fastest" if way is self.best else ""
            lines.append(
                f"{way.name:44}{way.bytes / 1e6:12.3f}{way.messages:10.0f}{way.seconds * 1e3:12.3f}"
                f"{way.memory / 1e6:12.1f}{mark}"
            )
        return "\n".join([*lines, self.note])


def _check_number(argument: str, value: Any) -> None:
    if not hasattr(value, "__float__"):
        raise TypeError(f"raggrad.dist.explain: {argument}: expected a number, got {value!r}")


def _check(argument: str, value: float | None, least: float, most: float | None = None) -> None:
    if value is None:
        return
    _check_number(argument, value)
    if not (value >= least and (most is None or value <= most)):
        expected = f"at least {least}" if most is None else f"{least} to {most}"
        raise ValueError(f"raggrad.dist.explain: {argument}: expected {expected}, got {value}")


def _numbers_of_rows(frequencies: Any, rows: int) -> np.ndarray:
    try:
        numbers = np.asarray(frequencies, dtype=np.float64)
    except (TypeError, ValueError):
        numbers = None
    if numbers is None or not (numbers.ndim == 1 and len(numbers) <= rows and (numbers >= 0).all()):
        raise ValueError(
            f"raggrad.dist.explain: frequencies: expected up to {rows} numbers of at least 0, one for each row"
        )
    return numbers


def explain(
    rows: int,
    width: int,
    ids: float,
    ranks: int,
    bandwidth: float = NETWORK.bandwidth,
    *,
    latency: float = NETWORK.latency,
    bags: float | None = None,
    frequencies: Any = None,
    unique_rows: float | None = None,
    all_rows: float | None = None,
    element_bytes: int = 4,
    accumulation: str | None = None,
) -> Costs:
    """Bytes and messages of a rank in a training step of one table, by every way to train it.

    `ids` and `bags` are those of one rank in one step; without `bags` every id is one. `frequencies` is an array that
    says how often the ids of one rank and step name each row on average; rows that it leaves out are never named.
    Without it ids are taken as drawn evenly. Ranks are taken as independent of each other. `unique_rows` is how many
    rows the ids of a rank name, and `all_rows` how many those of all ranks name together, if you have counted them.
    `element_bytes` is 2 for bfloat16, 4 for float32. `bandwidth` is in bytes a second that a rank can send, `latency`
    in seconds a message: explain(..., **raggrad.dist.measure()._asdict()). A step takes latency * messages + bytes /
    bandwidth. Computing is left out: it is much the same everywhere.

    The bytes are those that raggrad.dist.traffic() counts, to about 2 % if ids are as described. ShardedEmbeddingBag
    sends rows ahead where the frequencies say that it pays.

    >>> import raggrad.dist as rd
    >>> rd.explain(rows=1_000, width=64, ids=65_536 * 20, bags=65_536, ranks=8).best.name
    'dense all-reduce (torch)'
    >>> print(rd.explain(rows=10_000_000, width=64, ids=20_000, bags=1_000, ranks=8))
    10,000,000 x 64 values of 4 bytes, 20,000 ids in 1,000 bags on each of 8 ranks: 19,980 rows each, 158,727 in all
                                                     MB sent  messages          ms     MB kept
    dense all-reduce (torch)                        4480.000        14    3584.700      5120.0
    gather of all ids' rows (torch)                   36.960        14      30.268      2601.0
    sparse all-reduce (rd.all_reduce, register)       40.670        42      34.636      2601.9
    sharding (rd.ShardedEmbeddingBag)                  6.338        56       7.871       320.7  <- fastest
    Ranks that share rows make sparse all-reduce cheaper: give frequencies, or unique_rows and all_rows.
    """
    check_accumulation("explain", accumulation)
    for argument, value in {"rows": rows, "width": width, "ids": ids, "ranks": ranks, "bandwidth": bandwidth}.items():
        _check_number(argument, value)
    if not (ranks >= 1 and rows >= 1 and width >= 1 and ids >= 0 and bandwidth > 0):
        raise ValueError(
            "raggrad.dist.explain: expected rows, width and ranks of at least 1, ids of at least 0, bandwidth above 0, "
            f"got rows={rows}, width={width}, ids={ids}, ranks={ranks}, bandwidth={bandwidth}"
        )
    _check("latency", latency, 0)
    _check("element_bytes", element_bytes, 1)
    _check("bags", bags, 0)
    _check("unique_rows", unique_rows, 0, rows)
    _check("all_rows", all_rows, 0, rows)
    named = None if frequencies is None else _numbers_of_rows(frequencies, rows)
    step = Step(rows, width, ids, ids if bags is None else bags, ranks, element_bytes, accumulation == "reproducible")
    mine = step.named_rows(named, 1) if unique_rows is None else unique_rows
    if all_rows is None:
        all_rows = rows * (1 - (1 - mine / rows) ** ranks) if named is None else step.named_rows(named, ranks)

    def cost(sent: Sent) -> Cost:
        seconds = sent.messages * latency + sent.bytes / bandwidth
        return Cost(sent.name, sent.bytes, sent.messages, seconds, sent.memory)

    ways = [step.dense(), step.gathered(), step.reduced(mine, all_rows), step.sharded(mine)]
    costs = [cost(way) for way in ways]
    with_hot_rows = cost(step.sharded(mine, *step.best_hot_rows(named)))
    if with_hot_rows.seconds < costs[-1].seconds:
        costs.append(with_hot_rows)
    question = (
        f"{rows:,} x {width} values of {element_bytes} bytes, {ids:,.0f} ids in {step.bags:,.0f} bags on each of "
        f"{ranks} ranks: {mine:,.0f} rows each, {all_rows:,.0f} in all"
    )
    return Costs(question, tuple(costs), _NOTE)
