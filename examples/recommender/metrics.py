"""Quality of predicted clicks: log loss and AUC, and their worst and best values."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Score(NamedTuple):
    log_loss: float
    auc: float


def log_loss(logits: np.ndarray, clicked: np.ndarray) -> float:
    """Mean of -log p(outcome), safe for logits of any size."""
    return float(np.mean(np.logaddexp(0, logits) - clicked * logits))


def auc(logits: np.ndarray, clicked: np.ndarray) -> float:
    """The probability that a clicked impression outscores another one; ties count half."""
    _, group, sizes = np.unique(logits, return_inverse=True, return_counts=True)
    last_ranks = np.cumsum(sizes)
    ranks = (last_ranks - (sizes - 1) / 2)[group]
    clicks = np.count_nonzero(clicked)
    wins = ranks[clicked].sum() - clicks * (clicks + 1) / 2
    return float(wins / (clicks * (len(clicked) - clicks)))


def score(logits: np.ndarray, clicked: np.ndarray) -> Score:
    return Score(log_loss(logits, clicked), auc(logits, clicked))


def logit(probability: np.ndarray | float) -> np.ndarray:
    return np.log(probability) - np.log1p(-np.asarray(probability))
