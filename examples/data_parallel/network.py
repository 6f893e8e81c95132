"""The model that the workers share: a hidden layer on a batch of rows, and its gradient.

All functions work on one large batch. It makes no difference whether its rows come from one worker or eight.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

Parameters = dict[str, np.ndarray]


class Activations(NamedTuple):
    """Intermediate results of the forward pass that the gradients need."""

    rows: np.ndarray
    hidden: np.ndarray
    output: np.ndarray


def make_parameters(rng: np.random.Generator, inputs: int = 2, hidden: int = 32) -> Parameters:
    return {
        "hidden_weight": rng.normal(size=(inputs, hidden)).astype(np.float32),
        "hidden_bias": np.zeros(hidden, np.float32),
        "output_weight": (rng.normal(size=(hidden, 1)) / np.sqrt(hidden)).astype(np.float32),
    }


def forward(parameters: Parameters, rows: np.ndarray) -> Activations:
    hidden = np.tanh(rows @ parameters["hidden_weight"] + parameters["hidden_bias"])
    return Activations(rows, hidden, hidden @ parameters["output_weight"])


def gradients(parameters: Parameters, a: Activations, d_output: np.ndarray) -> Parameters:
    """Gradients of the parameters, given the gradient of the output, `d_output`, with one row for each of the batch."""
    d_hidden = (d_output @ parameters["output_weight"].T) * (1 - np.square(a.hidden))
    return {
        "hidden_weight": a.rows.T @ d_hidden,
        "hidden_bias": d_hidden.sum(axis=0),
        "output_weight": a.hidden.T @ d_output,
    }


def loss_and_gradient(output: np.ndarray, target: np.ndarray) -> tuple[float, np.ndarray]:
    """The sum of squared errors, and its gradient."""
    error = output - target
    return float(np.square(error).sum()), 2 * error
