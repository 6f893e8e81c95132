"""The picture of both runs: their losses, and how long a step takes."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

TORCH, RAGGRAD = "#e69f00", "#0072b2"


class Run(NamedTuple):
    losses: list[float]
    milliseconds: list[float]  # of every step

    @property
    def step_time(self) -> float:
        return median(self.milliseconds)


def moving_average(values: list[float], window: int) -> np.ndarray:
    """For each place, the mean of up to `window` values that end there."""
    sums = np.cumsum([0.0, *values])
    ends = np.arange(1, len(sums))
    starts = np.maximum(ends - window, 0)
    return (sums[ends] - sums[starts]) / (ends - starts)


def draw(theirs: Run, ours: Run, subtitle: str, path: Path) -> None:
    figure = Figure(figsize=(10, 4.8), layout="constrained")
    curves, bars = figure.subplots(1, 2, width_ratios=[2.4, 1])
    window = max(1, len(theirs.losses) // 20)
    steps = np.arange(1, len(theirs.losses) + 1)
    curves.plot(steps, moving_average(theirs.losses, window), color=TORCH, linewidth=5, alpha=0.6, label="torch")
    curves.plot(steps, moving_average(ours.losses, window), color=RAGGRAD, linewidth=1.6, label="raggrad")
    curves.set(xlabel="step", ylabel=f"log loss, mean of {window} steps", xlim=(1, max(len(steps), 2)))
    curves.set_title("The same model, the same losses", loc="left")
    curves.grid(axis="y", color="#e6e6e6", linewidth=0.8)
    curves.legend(loc="upper right", frameon=False)

    times = [theirs.step_time, ours.step_time]
    bars.bar(["torch", "raggrad"], times, color=[TORCH, RAGGRAD], width=0.6)
    for place, time in enumerate(times):
        bars.annotate(f"{time:.1f} ms", (place, time), ha="center", va="bottom", fontweight="bold")
    bars.set(ylim=(0, 1.15 * max(times)), yticks=[])
    bars.set_title(f"A step: {times[0] / times[1]:.1f} times faster", loc="left")
    for axes in (curves, bars):
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.tick_params(length=0)
    figure.suptitle(subtitle, x=0.01, ha="left", color="#444444", fontsize=10)
    figure.savefig(path, dpi=150)
