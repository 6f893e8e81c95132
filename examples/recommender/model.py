"""The recommender: its parameters, its forward pass, and its gradients through raggrad.

    logit = <mean of the clicked items' vectors, item vector>    taste, from the history
          + smooth maximum over the tags of <tag, item vector>   taste, from the profile
          + sum of the clicked items' weights / sqrt(number)     zeal; newcomers have `cold_start`
          + value of the (item, hour) slot                       time

Every gradient of a parameter comes out of a raggrad operator (see GRADIENT_PATHS); what NumPy does
on the way is the inner products only.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import EllipsisType
from typing import NamedTuple

import numpy as np
import raggrad
from raggrad import raw_ops

from data import DAYPART_HOURS, HOURS, Batch, ClickLog
from forward import (
    FilledRows,
    ragged_fill_empty_rows,
    ragged_to_variant,
    segment_mean,
    segment_sqrt_n,
    sparse_slice,
)

GRADIENT_PATHS = {
    "history_table": ["SparseSegmentMeanGradV2"],
    "item_table": ["SparseSegmentSumGradV2"],
    "tag_table": ["RaggedTensorToVariantGradient", "SparseSegmentSumGradV2"],
    "click_weight": ["SparseSegmentSqrtNGrad", "RaggedFillEmptyRowsGrad", "SparseSegmentSumGradV2"],
    "cold_start": ["SparseSegmentSqrtNGrad", "RaggedFillEmptyRowsGrad"],
    "slot_value": ["SparseSegmentSumGrad", "SparseSliceGrad"],
}


class Gradient(NamedTuple):
    """`values` belong to `rows` of the parameter (`...`: all of it); elsewhere it is zero."""

    values: np.ndarray
    rows: np.ndarray | EllipsisType = ...


@dataclass(frozen=True)
class Activations:
    """What the forward pass keeps for the gradients."""

    logits: np.ndarray
    item_vectors: np.ndarray
    history: FilledRows
    history_vectors: np.ndarray
    weights: FilledRows
    tag_attention: list[np.ndarray | None]
    tag_focus: np.ndarray
    block_start: np.ndarray
    block_indices: np.ndarray
    block_position: np.ndarray


class Recommender:
    def __init__(
        self, log: ClickLog, rng: np.random.Generator, width: int = 16, dtype: type = np.float32
    ) -> None:
        def table(*shape: int) -> np.ndarray:
            return (0.1 * rng.normal(size=shape)).astype(dtype)

        self.slots = log.slots
        # A user without history is given this extra item; it learns what newcomers like.
        self.newcomer_id = log.sizes.items
        self.parameters = {
            "history_table": table(log.sizes.items + 1, width),
            "item_table": table(log.sizes.items, width),
            "tag_table": table(log.sizes.tags, width),
            "click_weight": np.zeros(log.sizes.items, dtype),
            "cold_start": np.zeros((), dtype),
            "slot_value": np.zeros(len(log.slots), dtype),
        }

    def forward(self, batch: Batch) -> Activations:
        p = self.parameters
        item_vectors = p["item_table"][batch.item]

        clicked, users = batch.history, batch.history.row_ids
        history = ragged_fill_empty_rows(users, clicked.ids, len(batch), self.newcomer_id)
        history_vectors = segment_mean(p["history_table"][history.values], history.row_ids)

        click_weights = p["click_weight"][clicked.ids]
        weights = ragged_fill_empty_rows(users, click_weights, len(batch), p["cold_start"])
        zeal = segment_sqrt_n(weights.values, weights.row_ids)

        tag_vectors = ragged_to_variant(batch.tags.splits, p["tag_table"][batch.tags.ids])
        attention: list[np.ndarray | None] = [None] * len(batch)
        tag_focus, tag_affinity = np.zeros_like(item_vectors), np.zeros_like(zeal)
        for u, vectors in enumerate(tag_vectors):
            if batch.tags_shown[u] and len(vectors):
                attention[u], tag_affinity[u] = _smooth_maximum(vectors @ item_vectors[u])
                tag_focus[u] = attention[u] @ vectors

        start = np.array([0, batch.daypart * DAYPART_HOURS])
        size = np.array([len(p["item_table"]), DAYPART_HOURS])
        block_indices, block_values = sparse_slice(self.slots, p["slot_value"], start, size)
        slot_keys = block_indices @ [HOURS, 1]
        block_position = np.searchsorted(slot_keys, batch.item * HOURS + batch.hour - start[1])

        logits = np.sum(history_vectors * item_vectors, axis=1)
        logits += tag_affinity + zeal + block_values[block_position]
        return Activations(
            logits, item_vectors, history, history_vectors, weights, attention, tag_focus,
            start, block_indices, block_position,
        )  # fmt: skip

    def gradients(self, batch: Batch, a: Activations) -> dict[str, Gradient]:
        """Gradients of the mean log loss for every parameter."""
        d_logits = (_sigmoid(a.logits) - batch.clicked) / len(batch)
        d_item_vectors = d_logits[:, None] * (a.history_vectors + a.tag_focus)
        d_click_weights, d_cold_start = self._zeal_gradients(a, d_logits)
        return {
            "history_table": self._history_gradient(a, d_logits),
            "item_table": self._gather_gradient("item_table", batch.item, d_item_vectors),
            "tag_table": self._tag_gradient(batch, a, d_logits),
            "click_weight": self._gather_gradient(
                "click_weight", batch.history.ids, d_click_weights
            ),
            "cold_start": Gradient(d_cold_start),
            "slot_value": Gradient(self._slot_gradient(a, d_logits)),
        }

    def _history_gradient(self, a: Activations, d_logits: np.ndarray) -> Gradient:
        return Gradient(
            *raw_ops.SparseSegmentMeanGradV2(
                grad=d_logits[:, None] * a.item_vectors,
                indices=a.history.values,
                segment_ids=a.history.row_ids,
                dense_output_dim0=len(self.parameters["history_table"]),
            )
        )

    def _zeal_gradients(
        self, a: Activations, d_logits: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        entries = len(a.weights.row_ids)
        d_filled = raw_ops.SparseSegmentSqrtNGrad(
            grad=d_logits,
            indices=np.arange(entries),
            segment_ids=a.weights.row_ids,
            output_dim0=entries,
        )
        return raw_ops.RaggedFillEmptyRowsGrad(
            reverse_index_map=a.weights.reverse_index_map, grad_values=d_filled
        )

    def _tag_gradient(self, batch: Batch, a: Activations, d_logits: np.ndarray) -> Gradient:
        d_item_dot = d_logits[:, None] * a.item_vectors
        # A user whose tags took no part is a missing element, which the operator reads as zeros.
        elements = [
            None if attention is None else raggrad.Ragged([], np.outer(attention, d_item_dot[u]))
            for u, attention in enumerate(a.tag_attention)
        ]
        d_tag_vectors = raw_ops.RaggedTensorToVariantGradient(
            encoded_ragged_grad=elements,
            row_splits=batch.tags.splits,
            dense_values_shape=[len(batch.tags.ids), a.item_vectors.shape[1]],
            Tvalues=a.item_vectors.dtype.name,
        )
        return self._gather_gradient("tag_table", batch.tags.ids, d_tag_vectors)

    def _slot_gradient(self, a: Activations, d_logits: np.ndarray) -> np.ndarray:
        d_block = raw_ops.SparseSegmentSumGrad(
            grad=d_logits,
            indices=a.block_position,
            segment_ids=np.arange(len(d_logits)),
            output_dim0=len(a.block_indices),
        )
        return raw_ops.SparseSliceGrad(
            backprop_val_grad=d_block,
            input_indices=self.slots,
            input_start=a.block_start,
            output_indices=a.block_indices,
        )

    def _gather_gradient(self, name: str, rows: np.ndarray, d_gathered: np.ndarray) -> Gradient:
        """Reading rows of a table is a segment sum in which every segment has one entry."""
        return Gradient(
            *raw_ops.SparseSegmentSumGradV2(
                grad=d_gathered,
                indices=rows,
                segment_ids=np.arange(len(rows)),
                dense_output_dim0=len(self.parameters[name]),
            )
        )


class Adagrad:
    """Touches only the rows a gradient names, so a step costs the same however large the table."""

    def __init__(self, parameters: dict[str, np.ndarray], learning_rate: float) -> None:
        self.parameters = parameters
        self.learning_rate = learning_rate
        self.squares = {name: np.full_like(value, 1e-8) for name, value in parameters.items()}

    def step(self, gradients: dict[str, Gradient]) -> None:
        for name, (values, rows) in gradients.items():
            self.squares[name][rows] += np.square(values)
            scaled = values / np.sqrt(self.squares[name][rows])
            self.parameters[name][rows] -= self.learning_rate * scaled


def _sigmoid(logits: np.ndarray) -> np.ndarray:
    return 0.5 * (1 + np.tanh(0.5 * logits))


def _smooth_maximum(scores: np.ndarray) -> tuple[np.ndarray, np.floating]:
    """log(mean(exp(scores))) and its gradient, the softmax of the scores."""
    top = scores.max()
    exponentials = np.exp(scores - top)
    total = exponentials.sum()
    return exponentials / total, top + np.log(total / len(scores))
