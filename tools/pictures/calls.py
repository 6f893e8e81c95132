"""The five hops of a call, for one operator. Every file that the picture names is there."""

from __future__ import annotations

from pathlib import Path

from .svg import Picture, Point

_ROOT = Path(__file__).parents[2]

_OPERATOR = "SparseSegmentMeanGradV2"
_HOPS = [
    ("python/raggrad/raw_ops/sparse_segment_grad.py", "names and defaults"),
    ("python/bindings/sparse_segment.cc", "arrays become views, without a copy; the GIL is released"),
    ("raggrad/ops/sparse_segment/grad/grad.cc", "checks of shapes and types; then the device"),
    ("raggrad/ops/sparse_segment/grad/grad_cpu.cc", "or grad_cuda.cu: checks of data, memory, cut of the work"),
    ("raggrad/ops/sparse_segment/grad/sum_rows.cc", "or a kernel: the loop over rows, for every instruction set"),
]
# Who else enters beside the second hop, and beside the third.
_BESIDE_BINDINGS = {"raggrad/capi": "C", "doors": "torch, JAX, TensorFlow"}
_BESIDE_CHECKS = {"raggrad/raggrad.h": "C++"}


def five_hops() -> Picture:
    picture = Picture(490, "The five hops of a call")
    picture.words(24, 34, f"{_OPERATOR}, from Python to the loop", "head")
    picture.words(500, 34, "Others come in here", "head")
    height, step, left, right, middle = 56, 80, 24, 474, 249
    tops = [56 + i * step for i in range(len(_HOPS))]
    for i, ((file, what), y) in enumerate(zip(_HOPS, tops, strict=True)):
        picture.box(left, y, right - left, height, "abbcc"[i], radius=6)
        picture.words(44, y + 34, str(i + 1), "head", 18, "middle")
        picture.words(66, y + 23, _checked(file), "ink", 13, mono=True)
        picture.words(66, y + 44, what, "ink", 12)
        if i:
            picture.arrow(Point(middle, tops[i - 1] + height), Point(middle, y))

    def entry(y: float, file: str, who: str) -> None:
        picture.box(500, y, 200, 26, "cell", radius=6)
        picture.words(510, y + 18, f"{who}: {_checked(file)}", "ink", 12)

    for i, (file, who) in enumerate(_BESIDE_BINDINGS.items()):
        entry(tops[1] + 30 * i, file, who)
    picture.arrow(Point(500, tops[1] + height), Point(right - 40, tops[2]))
    for file, who in _BESIDE_CHECKS.items():
        entry(tops[2] + 15, file, who)
    picture.arrow(Point(500, tops[2] + 28), Point(right, tops[2] + 28))
    picture.words(24, 470, "Tensors, or a Status that says what was wrong, go back the same way.", "soft", 13)
    return picture


def _checked(file: str) -> str:
    if not (_ROOT / file).exists():
        raise FileNotFoundError(f"five_hops names {file}")
    return file
