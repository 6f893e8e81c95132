"""Pictures of sparse arrays: sparse_fill_empty_rows and sparse_slice."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from raggrad import raw_ops

from .svg import Picture, Point, number, numbers


def _matrix(shape: Sequence[int], indices: np.ndarray, values: np.ndarray, kinds: Sequence[str]):
    """The texts and classes of a sparse matrix: entries, and holes around them."""
    texts = [[""] * shape[1] for _ in range(shape[0])]
    classes = [["empty"] * shape[1] for _ in range(shape[0])]
    for (row, column), value, kind in zip(indices, values, kinds, strict=True):
        texts[row][column], classes[row][column] = number(value), kind
    return texts, classes


def sparse_fill_empty_rows() -> Picture:
    indices, values, shape = np.array([[0, 1], [2, 0], [2, 2]]), np.float32([1, 2, 3]), [4, 3]
    filled = raw_ops.SparseFillEmptyRows(indices=indices, values=values, dense_shape=shape, default_value=np.float32(9))
    places = filled.reverse_index_map
    kinds = ["a" if place in places else "b" for place in range(len(filled.output_values))]
    grad_values = np.float32([10, 20, 30, 40, 50])
    grads = raw_ops.SparseFillEmptyRowsGrad(reverse_index_map=places, grad_values=grad_values)

    picture = Picture(450, "Empty rows get a default value, and the gradient of that")
    picture.words(24, 34, "SparseFillEmptyRows: every empty row gets one entry, the default value", "head")
    before = picture.cells(60, 58, *_matrix(shape, indices, values, "aaa"))
    after = picture.cells(300, 58, *_matrix(shape, filled.output_indices, filled.output_values, kinds))
    picture.arrow(Point(before.right(0).x + 14, 114), Point(after.x - 14, 114))
    picture.words(470, 92, "reverse_index_map", "soft", 13, mono=True)
    picture.cells(470, 102, [[str(place) for place in places]], "a")
    picture.words(470, 152, "the place of each entry", "soft", 13)
    picture.words(470, 169, "among the entries of the result", "soft", 13)

    picture.words(24, 218, "SparseFillEmptyRowsGrad: the default value gets what is left over", "head")
    x = 190
    picture.words(x - 14, 259, "grad_values", "soft", 13, "end", mono=True)
    upstream = picture.cells(x, 240, [numbers(grad_values)], [kinds])
    picture.words(x - 14, 353, "d_values", "soft", 13, "end", mono=True)
    d_values = picture.cells(x, 334, [numbers(grads.d_values)], "a")
    picture.words(x + 270, 353, "d_default_value", "soft", 13, mono=True)
    d_default = picture.cells(x + 210, 334, [[number(grads.d_default_value)]], "b")
    for i, place in enumerate(places):
        picture.arrow(upstream.bottom(place), d_values.top(i), "to-a")
    for place in range(len(grad_values)):
        if place not in places:
            picture.arrow(upstream.bottom(place), d_default.top(0), "to-b")
    note = "Entry i gets the gradient at reverse_index_map[i]. The gradients that the map does not name belong to "
    picture.paragraph(24, 404, note + "default values: their sum is d_default_value.")
    return picture


def sparse_slice() -> Picture:
    indices = np.array([[0, 1], [1, 1], [1, 3], [2, 2], [3, 4]])
    values, shape, start = np.float32([1, 2, 3, 4, 5]), [4, 5], [1, 1]
    cut = raw_ops.SparseSlice(indices=indices, values=values, shape=shape, start=start, size=[2, 3])
    size, kept = cut.output_shape, len(cut.output_values)
    grad = 10 * np.arange(1, kept + 1, dtype=np.float32)
    val_grad = raw_ops.SparseSliceGrad(
        backprop_val_grad=grad, input_indices=indices, input_start=start, output_indices=cut.output_indices
    )
    inside = np.all((indices >= start) & (indices < start + size), axis=1)

    picture = Picture(490, "A box of a sparse matrix, and the gradient of that")

    def both(y: float, entries: np.ndarray, kept_entries: np.ndarray) -> tuple[Point, Point]:
        kinds = ["a" if within else "cell" for within in inside]
        whole = picture.cells(70, y, *_matrix(shape, indices, entries, kinds))
        frame = Point(whole.x + start[1] * whole.width, whole.y + start[0] * whole.height)
        picture.box(frame.x, frame.y, size[1] * whole.width, size[0] * whole.height, "frame")
        part = picture.cells(470, y + 28, *_matrix(size, cut.output_indices, kept_entries, "a" * kept))
        picture.box(part.x, part.y, size[1] * part.width, size[0] * part.height, "frame")
        return Point(whole.right(0).x + 14, y + 56), Point(part.x - 14, y + 56)

    picture.words(24, 34, "SparseSlice: the entries in a box, moved by -start", "head")
    left, right = both(58, values, cut.output_values)
    picture.arrow(left, right)
    picture.words((left.x + right.x) / 2, left.y - 12, f"start {start}", "soft", 13, "middle", mono=True)
    picture.words((left.x + right.x) / 2, left.y + 24, f"size {size.tolist()}", "soft", 13, "middle", mono=True)

    picture.words(24, 224, "SparseSliceGrad: entries in the box get their gradients, all others 0", "head")
    left, right = both(248, val_grad, grad)
    picture.arrow(right, left)
    picture.words(180, 386, "val_grad", "soft", 13, "middle", mono=True)
    picture.words(536, 358, "backprop_val_grad", "soft", 13, "middle", mono=True)
    note = "A sparse array is a list of entries. Two cursors walk over the entries before and after the slice; where "
    note += "their indices agree, up to start, a gradient has found its entry. Bits are copied: nothing is summed."
    picture.paragraph(24, 426, note)
    return picture
