"""The recommender: its parameters, its forward pass, and its gradients, through raggrad.

    logit = <mean of the clicked items' vectors, item vector>    taste, from the history
          + smooth maximum over the tags of <tag, item vector>   taste, from the profile
          + sum of the clicked items' weights / sqrt(number)     zeal; newcomers have `cold_start`
          + value of the (item, hour) slot                       time

raggrad computes everything irregular (lists of any length, empty lists, sparse slots), forwards and backwards. NumPy
computes the inner products.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from raggrad import IndexedSlices, Ragged, ops
from raggrad.raw_ops import RaggedFillEmptyRowsOutput, SparseSliceOutput

from data import DAYPART_HOURS, HOURS, Batch, ClickLog

# The functions that compute each gradient. gradcheck.py prints them, and tests break them one by one.
GRADIENT_PATHS = {
    "history_table": ["safe_embedding_lookup_sparse_grad"],
    "item_table": ["IndexedSlices"],
    "tag_table": ["unstack_grad", "IndexedSlices"],
    "click_weight": ["segment_sqrtn_grad", "fill_empty_rows_grad", "IndexedSlices"],
    "cold_start": ["segment_sqrtn_grad", "fill_empty_rows_grad", "IndexedSlices"],
    "slot_value": ["IndexedSlices", "slice_grad"],
}


@dataclass(frozen=True)
class Activations:
    """Intermediate results of the forward pass that the gradients need."""

    logits: np.ndarray
    item_vectors: np.ndarray
    history_vectors: np.ndarray
    weights: RaggedFillEmptyRowsOutput
    tag_vectors: Ragged
    tag_attention: list[np.ndarray | None]
    tag_focus: np.ndarray
    block_start: list[int]
    block: SparseSliceOutput
    block_position: np.ndarray


class Recommender:
    def __init__(self, log: ClickLog, rng: np.random.Generator, width: int = 16, dtype: type = np.float32) -> None:
        def table(*shape: int) -> np.ndarray:
            return (0.1 * rng.normal(size=shape)).astype(dtype)

        self.slots = log.slots
        # Users without history have this extra item, which learns what newcomers like.
        self.newcomer_id = log.sizes.items
        self.parameters = {
            "history_table": table(log.sizes.items + 1, width),
            "item_table": table(log.sizes.items, width),
            "tag_table": table(log.sizes.tags, width),
            "click_weight": np.zeros(log.sizes.items, dtype),
            "cold_start": np.zeros(1, dtype),
            "slot_value": np.zeros(len(log.slots), dtype),
        }

    def forward(self, batch: Batch) -> Activations:
        p = self.parameters
        item_vectors = p["item_table"][batch.item]
        history_vectors = ops.safe_embedding_lookup_sparse(
            p["history_table"], batch.history, combiner="mean", default_id=self.newcomer_id
        )

        lengths = np.diff(batch.history.nested_splits[0])
        weights = ops.ragged_fill_empty_rows(
            np.repeat(np.arange(len(batch)), lengths),
            p["click_weight"][batch.history.values],
            len(batch),
            p["cold_start"][0],
        )
        zeal = ops.segment_sqrtn(weights.output_values, weights.output_value_rowids)

        tag_vectors = Ragged(batch.tags.nested_splits, p["tag_table"][batch.tags.values])
        attention: list[np.ndarray | None] = [None] * len(batch)
        tag_focus, tag_affinity = np.zeros_like(item_vectors), np.zeros_like(zeal)
        for u, tags in enumerate(ops.unstack(tag_vectors)):
            if batch.tags_shown[u] and len(tags):
                attention[u], tag_affinity[u] = _smooth_maximum(tags.values @ item_vectors[u])
                tag_focus[u] = attention[u] @ tags.values

        items = len(p["item_table"])
        start = [0, batch.daypart * DAYPART_HOURS]
        block = ops.slice(self.slots, p["slot_value"], [items, HOURS], start, [items, DAYPART_HOURS])
        slot_keys = block.output_indices @ [HOURS, 1]
        block_position = np.searchsorted(slot_keys, batch.item * HOURS + batch.hour - start[1])

        logits = np.sum(history_vectors * item_vectors, axis=1)
        logits += tag_affinity + zeal + block.output_values[block_position]
        return Activations(
            logits, item_vectors, history_vectors, weights, tag_vectors, attention, tag_focus,
            start, block, block_position,
        )  # fmt: skip

    def gradients(self, batch: Batch, a: Activations) -> dict[str, IndexedSlices]:
        """Gradients of the mean log loss for all parameters, with only the rows that the batch used."""
        p = self.parameters
        d_logits = (_sigmoid(a.logits) - batch.clicked) / len(batch)
        d_products = d_logits[:, None] * a.item_vectors

        d_history = ops.safe_embedding_lookup_sparse_grad(
            d_products, p["history_table"], batch.history, combiner="mean", default_id=self.newcomer_id
        )

        # None, which stands for zeros, for users whose tags took no part.
        d_tags = [
            None if attention is None else Ragged([], np.outer(attention, d_products[u]))
            for u, attention in enumerate(a.tag_attention)
        ]
        d_tag_vectors = ops.unstack_grad(d_tags, a.tag_vectors)

        d_filled = ops.segment_sqrtn_grad(d_logits, a.weights.output_value_rowids)
        d_weights = ops.fill_empty_rows_grad(a.weights.reverse_index_map, d_filled)

        d_block = IndexedSlices(d_logits, a.block_position, a.block.output_values.shape).to_dense()
        d_slots = ops.slice_grad(d_block, self.slots, a.block_start, a.block.output_indices)

        # Rows that were read several times occur several times; IndexedSlices adds them.
        read = {
            "item_table": (d_logits[:, None] * (a.history_vectors + a.tag_focus), batch.item),
            "tag_table": (d_tag_vectors, batch.tags.values),
            "click_weight": (d_weights.d_values, batch.history.values),
            "cold_start": (d_weights.d_default_value.reshape(1), [0]),
            "slot_value": (d_slots, np.arange(len(d_slots))),
        }
        slices = {name: IndexedSlices(values, rows, p[name].shape) for name, (values, rows) in read.items()}
        return {"history_table": d_history, **slices}


def _sigmoid(logits: np.ndarray) -> np.ndarray:
    return 0.5 * (1 + np.tanh(0.5 * logits))


def _smooth_maximum(scores: np.ndarray) -> tuple[np.ndarray, np.floating]:
    """log(mean(exp(scores))) and its gradient, the softmax of the scores."""
    top = scores.max()
    exponentials = np.exp(scores - top)
    total = exponentials.sum()
    return exponentials / total, top + np.log(total / len(scores))
