"""Charts of docs/measurements/."""

from __future__ import annotations

from typing import Any

from .svg import Picture, Point

# One workload of every kind, as on the first page: the name of docs/performance.md, and what it is.
_WORKLOADS = {
    "segment-A-uniform-f32-int64": "Pooled embeddings, uniform ids",
    "segment-A-zipf-f32-int64": "Pooled embeddings, skewed ids",
    "segment-C-f32": "Pooled embeddings, 256 columns",
    "fill-A": "Filled empty rows",
    "slice-A": "Sparse slice",
    "ragged-A": "Ragged rows, 16,384 pieces",
    "ragged-B": "Ragged rows, 100 pieces of 1 MiB",
}
_PEERS = {"torch": ("PyTorch", "b"), "tensorflow": ("TensorFlow", "d")}


def gradients_on_a_cpu(measured: dict[str, Any]) -> Picture:
    """How many times as long as raggrad the others take."""
    ratios = {name: {peer: measured["workloads"][name][peer]["times"] for peer in _PEERS} for name in _WORKLOADS}
    longest = max(ratio for of_peers in ratios.values() for ratio in of_peers.values())
    left, bar, step = 266, 15, 46
    width = (640 - left) / longest

    picture = Picture(140 + step * len(ratios), "Gradients in PyTorch and TensorFlow take longer than in raggrad")
    picture.words(24, 34, "Gradients: how many times as long as in raggrad", "head")
    x = 478.0
    for peer, kind in _PEERS.values():
        picture.box(x, 23, 13, 13, kind)
        picture.words(x + 20, 34, peer, "ink", 13)
        x += 100
    for i, (name, of_peers) in enumerate(ratios.items()):
        y = 58 + i * step
        picture.words(left - 12, y + 21, _WORKLOADS[name], "ink", 13, "end")
        for j, (peer, ratio) in enumerate(of_peers.items()):
            picture.box(left, y + j * (bar + 2), ratio * width, bar, _PEERS[peer][1], radius=2)
            picture.words(left + ratio * width + 8, y + j * (bar + 2) + 12, f"{ratio:.1f}x", "ink", 12)
    end = 58 + step * len(ratios)
    picture.line(Point(left + width, 50), Point(left + width, end), "line")
    picture.words(left + width, end + 18, "1x: raggrad", "soft", 12, "middle")
    picture.words(24, end + 46, measured["machine"], "soft", 12)
    picture.words(24, end + 64, f"{measured['settings']}; {measured['date']}; {measured['command']}", "soft", 12)
    return picture
