"""Pictures of pieces that are cut and joined: ragged_variant and batching."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from raggrad import Ragged, raw_ops
from raggrad.batching import Runtime

from .svg import Grid, Picture, numbers

_COLORS = "abcd"


def ragged_variant() -> Picture:
    splits, values = np.array([0, 2, 3, 3, 5]), np.float32([1, 2, 3, 4, 5])
    elements = raw_ops.RaggedTensorToVariant(rt_nested_splits=[splits], rt_dense_values=values, batched_input=True)
    rows = [np.asarray(element.values) for element in elements]
    # Nothing has used the second element, so it has no gradient.
    grads = [np.float32([10, 20]), None, np.float32([]), np.float32([40, 50])]
    joined = raw_ops.RaggedTensorToVariantGradient(
        encoded_ragged_grad=[None if grad is None else Ragged([], grad) for grad in grads],
        row_splits=splits,
        dense_values_shape=np.int32([len(values)]),
        Tvalues="float32",
    )
    row_of = np.repeat(np.arange(len(rows)), np.diff(splits))
    colors = [[_COLORS[row] for row in row_of]]

    picture = Picture(500, "A ragged tensor is cut into its rows, and the gradient of that")
    picture.words(24, 34, "RaggedTensorToVariant: one element for every row", "head")
    picture.words(186, 77, "row_splits", "soft", 13, "end", mono=True)
    picture.cells(200, 58, [[str(split) for split in splits]])
    picture.words(186, 113, "values", "soft", 13, "end", mono=True)
    dense = picture.cells(200, 94, [numbers(values)], colors)
    pieces = _elements(picture, 172, rows)
    for place, row in enumerate(row_of):
        picture.arrow(dense.bottom(place), pieces[row].top(place - splits[row]), f"to-{_COLORS[row]}")

    picture.words(24, 258, "RaggedTensorToVariantGradient: the gradients of the elements, joined", "head")
    pieces = _elements(picture, 282, grads)
    picture.words(186, 405, "dense_values_grad", "soft", 13, "end", mono=True)
    dense = picture.cells(200, 386, [numbers(joined)], colors)
    for place, row in enumerate(row_of):
        if grads[row] is not None:
            picture.arrow(pieces[row].bottom(place - splits[row]), dense.top(place), f"to-{_COLORS[row]}")
    note = "An element that nothing has used has no gradient; its values get zeros. An empty row is an element without "
    picture.paragraph(24, 458, note + "values. Bits are copied, whatever the type.")
    return picture


def _elements(picture: Picture, y: float, rows: Sequence[np.ndarray | None]) -> list[Grid]:
    """Elements side by side, with their numbers beneath or what they lack inside."""
    grids = []
    for i, row in enumerate(rows):
        x = 100 + 140 * i
        if row is None or not len(row):
            picture.box(x, y, 88, 28, "empty")
            picture.words(x + 44, y + 19, "missing" if row is None else "no values", "soft", 13, "middle")
        grids.append(picture.cells(x, y, [[] if row is None else numbers(row)], _COLORS[i]))
        picture.words(x - 8, y + 19, str(i), "soft", 13, "end", mono=True)
    return grids


def batching() -> Picture:
    calls = {"A": np.float32([[1]]), "B": np.float32([[2], [3]]), "C": np.float32([[4]])}
    grads = {name: rows / 10 for name, rows in calls.items()}
    met = _meet(calls, grads)
    colors = dict(zip(calls, _COLORS, strict=False))
    order = [name for name, begin, end in met.index for _ in range(begin, end)]

    picture = Picture(400, "Calls of three threads meet in a batch")
    heads = ["Batch: the last call,", "Unbatch: every call", "UnbatchGrad: the owner"]
    more = ["the owner, gets all rows", "gets its own results", "gets all gradients"]
    brought = [calls, met.answers, grads]
    batched = [met.batch, 10 * met.batch, met.joined]
    for panel in range(3):
        x = 24 + 232 * panel
        picture.words(x, 34, heads[panel], "head")
        picture.words(x, 54, more[panel], "head")
        whole = picture.cells(x + 140, 96, [numbers(row) for row in batched[panel]], [[colors[name]] for name in order])
        y, place = 84.0, 0
        for name, rows in brought[panel].items():
            mine = picture.cells(x + 24, y, [numbers(row) for row in rows], colors[name])
            picture.words(x + 14, y + 19, name, "soft", 14, "end")
            for row in range(len(rows)):
                ends = mine.right(row), whole.left(place)
                picture.arrow(*(reversed(ends) if panel == 1 else ends), f"to-{colors[name]}")
                place += 1
            y += 28 * len(rows) + 14
    picture.words(24, 256, "batch_index", "soft", 13, mono=True)
    table = [[name, str(begin), str(end)] for name, begin, end in met.index]
    picture.cells(24, 266, table, [[colors[row[0]]] * 3 for row in table])
    picture.words(24, 370, "call, first row, end", "soft", 13)
    note = f"Three threads call, in this order. {met.owner} comes last and owns the batch: it alone sees batch_index "
    note += "and does the work of all. Each call waits where it needs rows of another, and every wait has an end. "
    picture.paragraph(210, 286, note + "Bits are copied: the results are those of one thread with all rows.")
    return picture


class _Met(NamedTuple):
    owner: str
    index: list[tuple[str, int, int]]  # call, first row, end
    batch: np.ndarray
    answers: dict[str, np.ndarray]  # of a model that multiplies by 10
    joined: np.ndarray


def _meet(calls: dict[str, np.ndarray], grads: dict[str, np.ndarray]) -> _Met:
    """Futures of one thread, so that the calls come in this order."""
    total = sum(len(rows) for rows in calls.values())
    options = {"num_batch_threads": 1, "max_batch_size": total, "batch_timeout_micros": 600_000_000}
    with Runtime() as runtime:
        futures = {name: runtime.batch_future(in_tensors=[rows], **options) for name, rows in calls.items()}
        batches = {name: future.result() for name, future in futures.items()}
        rows = {name: batch.batched_tensors[0] for name, batch in batches.items()}
        keys = {name: {"batch_index": batch.batch_index, "id": batch.id} for name, batch in batches.items()}
        futures = {name: runtime.unbatch_future(batched_tensor=10 * rows[name], **keys[name]) for name in calls}
        answers = {name: future.result() for name, future in futures.items()}
        futures = {
            name: runtime.unbatch_grad_future(original_input=rows[name], grad=grads[name], **keys[name])
            for name in calls
        }
        joined = {name: future.result() for name, future in futures.items()}
    owner = next(name for name in calls if len(rows[name]))
    names = {int(batch.id): name for name, batch in batches.items()}
    index = [(names[int(key)], int(begin), int(end)) for key, begin, end in batches[owner].batch_index]
    return _Met(owner, index, rows[owner], answers, joined[owner])
