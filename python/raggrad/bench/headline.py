"""The first screen of README.md: one workload per operator family, as a table and a picture."""

from __future__ import annotations

import sys
from pathlib import Path

from .chart import COLORS
from .report import Row, Run, replace_block, rows, time_text

_WORKLOADS = {
    "segment-A-zipf-f32-int64": "Gradient of pooled embeddings, 1.3 million ids",
    "fill-A": "Gradient of filled empty rows, 10 million entries",
    "slice-A": "Gradient of a sparse slice, 4 million entries",
    "ragged-A": "Gradient of ragged rows, 16,384 of them",
    "unbatch-A-2-threads": "Gradient of a batch that two threads share",
}
_PEERS = {"tensorflow": "TensorFlow", "torch": "PyTorch", "jax": "JAX"}


def write(run: Run, page: Path, picture: Path) -> None:
    """Replaces the block between the headline marks of the page, and draws the picture."""
    found = {row.outcome.workload.name: row for row in rows(run) if row.language == "python"}
    lines = [(text, found[name]) for name, text in _WORKLOADS.items() if name in found]
    if not lines:
        print(f"{page} is unchanged: the run has none of its workloads", file=sys.stderr)
        return
    replace_block(page, "headline", _table(run, lines))
    _draw(lines, picture)


def _table(run: Run, lines: list[tuple[str, Row]]) -> str:
    table = [f"| | raggrad | {' | '.join(_PEERS.values())} |", "|---" * (2 + len(_PEERS)) + "|"]
    for text, row in lines:
        ours = time_text(row.ours.seconds) if row.ours else "-"
        table.append(f"| {text} | {ours} | {' | '.join(_cell(row, peer) for peer in _PEERS)} |")
    table += ["", f"{run.machine}; {run.threads} threads for everybody; `make bench`, {run.when[:10]}."]
    return "\n".join(table)


def _cell(row: Row, peer: str) -> str:
    theirs, ratio = row.outcome.best(peer), row.ratio(peer)
    return f"{time_text(theirs.seconds)} ({ratio:.1f}x)" if theirs and ratio else "-"


def _draw(lines: list[tuple[str, Row]], path: Path) -> None:
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError:
        print(f"no picture in {path}: matplotlib is not installed", file=sys.stderr)
        return
    matplotlib.rcParams["svg.hashsalt"] = "raggrad"  # the same run draws the same file
    figure = Figure(figsize=(8, 3.6), layout="constrained")
    axes = figure.subplots()
    for place, (_, row) in enumerate(lines):
        for offset, peer in zip((-0.25, 0.0, 0.25), _PEERS, strict=True):
            ratio = row.ratio(peer)
            if ratio is None:
                continue
            first = peer not in {bars.get_label() for bars in axes.containers}
            axes.barh(place + offset, ratio, height=0.23, color=COLORS[peer], label=peer if first else None)
            axes.annotate(f"{ratio:.1f}x", (ratio, place + offset), (3, 0), textcoords="offset points", va="center",
                          fontsize=8)  # fmt: skip
    axes.axvline(1, color="#222222", linewidth=1)
    axes.set_yticks(range(len(lines)), [text for text, _ in lines], fontsize=9)
    axes.invert_yaxis()
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("times faster than the peer; the line is equal speed", fontsize=9)
    axes.spines[["top", "right", "left"]].set_visible(False)
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(handles, [_PEERS[label] for label in labels], loc="lower right", fontsize=9, frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
