"""Pictures of pooled rows: sparse_segment and bags."""

from __future__ import annotations

import numpy as np
from raggrad import raw_ops

from .svg import Picture, Point, numbers

_COLORS = "abcd"


def sparse_segment() -> Picture:
    table = np.arange(1, 11, dtype=np.float32).reshape(5, 2)
    indices, segment_ids = np.array([3, 1, 3]), np.array([0, 0, 1])
    pooled = raw_ops.SparseSegmentMean(data=table, indices=indices, segment_ids=segment_ids)
    grad = np.float32([[1, 2], [3, 4]])
    rows = raw_ops.SparseSegmentMeanGradV2(
        grad=grad, indices=indices, segment_ids=segment_ids, dense_output_dim0=len(table)
    )
    of_ids = [_COLORS[s] for s in segment_ids]
    of_segments = [[_COLORS[s]] * 2 for s in range(len(grad))]

    picture = Picture(520, "Rows of a table, pooled by segment, and the gradient of that")
    picture.words(24, 34, "SparseSegmentMean: a segment is the mean of the rows that its ids name", "head")
    picture.words(128, 72, f"data {list(table.shape)}", "soft", 13, "middle", mono=True)
    used = [["cell" if row in indices else "empty"] * 2 for row in range(len(table))]
    data = picture.cells(84, 82, [numbers(row) for row in table], used)
    for row in range(len(table)):
        picture.words(74, data.left(row).y + 5, str(row), "soft", 13, "end", mono=True)
    ids = _ids(picture, 262, 110, {"indices": indices, "segment_ids": segment_ids}, of_ids)
    picture.words(592, 100, f"output {list(pooled.shape)}", "soft", 13, "middle", mono=True)
    output = picture.cells(548, 124, [numbers(row) for row in pooled], of_segments)
    for i, (index, segment) in enumerate(zip(indices, segment_ids, strict=True)):
        picture.arrow(data.right(index), ids.left(i), f"to-{of_ids[i]}")
        picture.arrow(ids.right(i), output.left(segment), f"to-{of_ids[i]}")

    picture.words(24, 278, "SparseSegmentMeanGradV2: a row sums up what the segments send back", "head")
    picture.words(592, 332, f"grad {list(grad.shape)}", "soft", 13, "middle", mono=True)
    upstream = picture.cells(548, 356, [numbers(row) for row in grad], of_segments)
    scales = [f"1/{np.count_nonzero(segment_ids == s)}" for s in segment_ids]
    ids = _ids(picture, 222, 342, {"indices": indices, "segment_ids": segment_ids, "scale": scales}, of_ids)
    picture.words(128, 332, f"output {list(rows.output.shape)}", "soft", 13, "middle", mono=True)
    gradient = picture.cells(84, 356, [numbers(row) for row in rows.output])
    places = {int(index): place for place, index in enumerate(rows.sorted_unique_indices)}
    for index, place in places.items():
        picture.words(74, gradient.left(place).y + 5, str(index), "soft", 13, "end", mono=True)
    for i, (index, segment) in enumerate(zip(indices, segment_ids, strict=True)):
        picture.arrow(upstream.left(segment), ids.right(i), f"to-{of_ids[i]}")
        picture.arrow(ids.left(i), gradient.right(places[int(index)]), f"to-{of_ids[i]}")
    note = "The result has the rows that some id names, each once, in ascending order. Their numbers, at the left, are "
    picture.paragraph(24, 470, note + "sorted_unique_indices. Nothing has the size of the table.")
    return picture


def _ids(picture: Picture, x: float, y: float, columns: dict[str, object], colors: list[str]):
    """Ids side by side, with their names above."""
    width = 96
    for j, name in enumerate(columns):
        picture.words(x + (j + 0.5) * width, y - 10, name, "soft", 13, "middle", mono=True)
    texts = [[str(text) for text in row] for row in zip(*columns.values(), strict=True)]
    return picture.cells(x, y, texts, [[color] * len(columns) for color in colors], width)


def bags() -> Picture:
    """CutIntoBags is internal to C++, so NumPy computes the example."""
    ids, offsets, padding_id = np.array([7, 2, 0, 5, 7, 0, 4]), np.array([0, 3, 3, 5]), 0
    bag_of = np.searchsorted(offsets, np.arange(len(ids)), side="right") - 1
    kept = np.flatnonzero(ids != padding_id)

    picture = Picture(330, "Bags of ids become ids with segment ids")
    picture.words(24, 34, "CutIntoBags: where bags begin becomes the bag of every id", "head")
    width, x = 52, 150
    colors = [[_COLORS[bag] if i in kept else "empty" for i, bag in enumerate(bag_of)]]
    picture.words(x - 14, 111, "ids", "soft", 13, "end", mono=True)
    given = picture.cells(x, 92, [[str(i) for i in ids]], colors, width)
    picture.words(x - 14, 73, "offsets", "soft", 13, "end", mono=True)
    for bag, offset in enumerate(offsets):
        again = np.count_nonzero(offsets[:bag] == offset)  # an empty bag begins where the next one does
        middle = x + offset * width + 8 + 26 * again
        picture.words(middle, 73, str(offset), "ink", 14, "middle", mono=True)
        picture.arrow(Point(middle, 76), Point(middle, 93), f"to-{_COLORS[bag]}")

    left = x + (len(ids) - len(kept)) * width / 2
    results = {"ids": ids[kept], "segment_ids": bag_of[kept], "positions": kept}
    colors = [[_COLORS[bag_of[i]] for i in kept]] * len(results)
    output = picture.cells(left, 172, [[str(i) for i in row] for row in results.values()], colors, width)
    for row, name in enumerate(results):
        picture.words(left - 14, output.left(row).y + 5, name, "soft", 13, "end", mono=True)
    for place, i in enumerate(kept):
        picture.arrow(given.bottom(i), output.top(place), f"to-{_COLORS[bag_of[i]]}")
    empty = next(bag for bag in range(len(offsets)) if bag not in bag_of)
    note = f"Ids that equal padding_id, here {padding_id}, are left out; positions say where the others were. "
    picture.paragraph(24, 288, note + f"Bag {empty} is empty: no id has its number.")
    return picture
