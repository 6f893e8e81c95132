"""The chart of a run: for each workload, how many times faster raggrad is than each peer."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from .report import Row, Run, rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLORS = {"tensorflow": "#d55e00", "torch": "#0072b2", "jax": "#009e73", "fbgemm": "#cc79a7", "plain": "#888888"}
_NAMES = {"plain": "itself without plan and fusion"}
_TARGET, _BEHIND = "#222222", "#b00000"

Bar = tuple[Row, str, float]  # row, peer, ratio


def draw(run: Run, path: Path) -> None:
    try:
        from matplotlib.figure import Figure
        from matplotlib.lines import Line2D
        from matplotlib.patches import Patch
    except ImportError:
        print(f"no picture in {path}: matplotlib is not installed", file=sys.stderr)
        return
    groups = [[(row, peer, ratio) for peer in run.peers if (ratio := row.ratio(peer))] for row in rows(run)]
    groups = [group for group in groups if group]
    if not groups:
        print(f"no picture in {path}: no peer was measured", file=sys.stderr)
        return

    panels = _split(groups)
    longest = max(sum(map(_height, panel)) for panel in panels)
    figure = Figure(figsize=(8 * len(panels), 1.6 + 0.17 * longest), layout="constrained")
    ratios = [ratio for group in groups for _, _, ratio in group]
    limits = (min(0.8, 0.7 * min(ratios)), 2.5 * max(ratios))
    for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        _draw_panel(axes, panel, limits, longest)
    wanted = [ratio >= target.factor for group in groups for row, peer, ratio in group if (target := row.target(peer))]
    title = f"How many times faster raggrad is: {sum(wanted)} of {len(wanted)} targets reached"
    conditions = f"{run.machine}; {run.threads} threads for everybody, medians of {run.rounds} rounds"
    figure.suptitle(f"{title}\n{conditions}", x=0.01, ha="left", fontsize=11)
    shown = dict.fromkeys(peer for group in groups for _, peer, _ in group)
    handles = [Patch(color=COLORS[peer], label=f"than {_NAMES.get(peer, peer)}") for peer in shown]
    handles.append(Line2D([], [], color=_TARGET, linewidth=2, label="target"))
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), fontsize=9, frameon=False)
    figure.savefig(path, dpi=120)


def _height(group: list[Bar]) -> float:
    return len(group) + 0.7


def _split(groups: list[list[Bar]]) -> list[list[list[Bar]]]:
    """Two panels of about the same height, or one if it is not too high."""
    half = sum(map(_height, groups)) / 2
    if half < 15:
        return [groups]
    cut = next(n for n in range(len(groups)) if sum(map(_height, groups[: n + 1])) >= half)
    return [groups[: cut + 1], groups[cut + 1 :]]


def _draw_panel(axes: Axes, groups: list[list[Bar]], limits: tuple[float, float], height: float) -> None:
    place = 0.0
    middles = []
    for group in groups:
        middles.append(place + len(group) / 2)
        for row, peer, ratio in group:
            middle = place + 0.5
            axes.barh(middle, ratio - 1, left=1, height=0.85, color=COLORS[peer])
            target = row.target(peer)
            if target:
                axes.plot([target.factor] * 2, [place, place + 1], color=_TARGET, linewidth=2)
            behind = target is not None and ratio < target.factor
            label = f"{ratio:.1f}x, wanted {target.factor:g}x" if behind else f"{ratio:.1f}x"
            style = {"color": _BEHIND, "weight": "bold"} if behind else {}
            end = max(1, ratio, target.factor if target else 0)
            axes.annotate(label, (end, middle), (4, 0), textcoords="offset points", va="center", fontsize=7, **style)
            place += 1
        place += _height(group) - len(group)
    low, high = limits
    ticks = [factor * 10**power for power in range(-2, 4) for factor in (1, 2, 5) if low <= factor * 10**power <= high]
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    axes.set_xticks(ticks, [f"{tick:g}x" for tick in ticks], fontsize=8)
    axes.minorticks_off()
    axes.axvline(1, color=_TARGET, linewidth=1)
    axes.axvspan(low, 1, color="#f4e0e0", zorder=0)
    axes.grid(axis="x", color="#dddddd")
    axes.set_axisbelow(True)
    axes.set_yticks(middles, [group[0][0].name for group in groups], fontsize=8)
    axes.set_ylim(height, -0.3)
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
