"""The picture of a training run."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from metrics import Score

TRAIN, HELDOUT, BASE_RATE, BEST = "#0072b2", "#d55e00", "#666666", "#00875f"


@dataclass
class Curves:
    train_loss: list[float] = field(default_factory=list)
    heldout_steps: list[int] = field(default_factory=list)
    heldout_loss: list[float] = field(default_factory=list)


def moving_average(values: list[float], window: int) -> np.ndarray:
    """For each place, the mean of up to `window` values that end there."""
    sums = np.cumsum(np.concatenate([[0.0], values]))
    ends = np.arange(1, len(sums))
    starts = np.maximum(ends - window, 0)
    return (sums[ends] - sums[starts]) / (ends - starts)


def draw(curves: Curves, base_rate: Score, model: Score, best: Score, path: Path) -> None:
    steps = np.arange(1, len(curves.train_loss) + 1)
    smooth = moving_average(curves.train_loss, window=max(1, len(steps) // 40))

    figure = Figure(figsize=(9, 5.2), layout="constrained")
    axes = figure.subplots()
    axes.plot(steps, curves.train_loss, color=TRAIN, alpha=0.16, linewidth=0.7)
    axes.plot(steps, smooth, color=TRAIN, linewidth=2, label="training batches, smoothed")
    axes.plot(
        curves.heldout_steps, curves.heldout_loss, color=HELDOUT, linewidth=2, marker="o",
        markersize=5, markeredgecolor="white", label="held-out impressions",
    )  # fmt: skip
    for level, color, text, side in (
        (base_rate.log_loss, BASE_RATE, "always the base rate", "bottom"),
        (best.log_loss, BEST, "knowing the true probabilities", "top"),
    ):
        axes.axhline(level, color=color, linewidth=1.3, linestyle=(0, (5, 3)))
        axes.annotate(
            f"{text}  {level:.3f}", (1, level), xycoords=axes.get_yaxis_transform(), color=color,
            xytext=(0, 4 if side == "bottom" else -4), textcoords="offset points",
            ha="right", va=side, bbox={"color": "white", "alpha": 0.7, "pad": 1},
        )  # fmt: skip
    axes.annotate(
        f"{model.log_loss:.3f}", (steps[-1], model.log_loss), color=HELDOUT, fontweight="bold",
        xytext=(10, 0), textcoords="offset points", va="center", annotation_clip=False,
    )  # fmt: skip

    axes.set_title(
        "A small recommender, trained with raggrad", loc="left", fontsize=15, pad=28
    )
    axes.annotate(
        f"Held-out AUC {model.auc:.3f}  (base rate {base_rate.auc:.3f}, best {best.auc:.3f})",
        (0, 1), xycoords="axes fraction", xytext=(0, 8), textcoords="offset points",
        color="#444444", fontsize=11,
    )  # fmt: skip
    axes.set(xlabel="step", ylabel="log loss", xlim=(0, steps[-1]))
    axes.set_ylim(best.log_loss - 0.03, max(curves.train_loss[0], base_rate.log_loss) + 0.02)
    axes.grid(axis="y", color="#e6e6e6", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(length=0)
    axes.legend(loc="upper right", frameon=False)
    figure.savefig(path, dpi=150)
