"""Compare every gradient of the model with central differences, entry by entry, in float64."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import numpy as np
from raggrad import IndexedSlices

from data import Batch, Sizes, generate
from metrics import log_loss
from model import GRADIENT_PATHS, Recommender

STEP = 1e-5
MAX_RELATIVE_ERROR = 1e-6

# Small enough to try every entry, large enough for repeated ids, empty histories, users without tags, hidden tags, and
# slots outside the sliced block.
CHECK_SIZES = Sizes(items=15, users=40, topics=3, tags_per_topic=3, impressions=400, heldout=4)
CHECK_BATCH = 48


@dataclass(frozen=True)
class Finding:
    parameter: str
    entries: int
    largest: float
    relative_error: float

    @property
    def passed(self) -> bool:
        # A gradient of zeros only would also pass for a parameter that has no effect.
        return self.largest > 0 and self.relative_error <= MAX_RELATIVE_ERROR


def check_gradients(seed: int = 0) -> list[Finding]:
    rng = np.random.default_rng(seed)
    log = generate(CHECK_SIZES, seed)
    model = Recommender(log, rng, width=3, dtype=np.float64)
    for name in ("click_weight", "cold_start", "slot_value"):
        model.parameters[name] += rng.normal(size=model.parameters[name].shape)
    batch = log.sample(rng, CHECK_BATCH)

    gradients = model.gradients(batch, model.forward(batch))
    return [_compare(name, model, batch, gradients[name]) for name in model.parameters]


def _compare(name: str, model: Recommender, batch: Batch, gradient: IndexedSlices) -> Finding:
    parameter = model.parameters[name]
    analytic = gradient.to_dense()
    numeric = np.zeros_like(parameter)
    for entry in np.ndindex(parameter.shape):
        numeric[entry] = _central_difference(parameter, entry, model, batch)
    largest = float(np.abs(numeric).max())
    error = float(np.abs(analytic - numeric).max())
    return Finding(name, parameter.size, largest, error / largest if largest else np.inf)


def _central_difference(
    parameter: np.ndarray, entry: tuple[int, ...], model: Recommender, batch: Batch
) -> float:
    def loss_at(value: float) -> float:
        parameter[entry] = value
        return log_loss(model.forward(batch).logits, batch.clicked)

    original = float(parameter[entry])
    slope = (loss_at(original + STEP) - loss_at(original - STEP)) / (2 * STEP)
    parameter[entry] = original
    return slope


def print_findings(findings: list[Finding]) -> None:
    print(f"  {'parameter':<13} {'entries':>7} {'max. error':>10}         through")
    for finding in findings:
        first, *later = GRADIENT_PATHS[finding.parameter]
        print(
            f"  {finding.parameter:<13} {finding.entries:>7} {finding.relative_error:>10.1e} "
            f"{'ok' if finding.passed else 'WRONG':>6}  {first}"
        )
        for operator in later:
            print(f"{'':41}> {operator}")


def failures(findings: list[Finding]) -> list[str]:
    return [finding.parameter for finding in findings if not finding.passed]


def main() -> None:
    findings = check_gradients()
    print_findings(findings)
    if wrong := failures(findings):
        sys.exit(f"gradcheck: wrong gradient for {', '.join(wrong)}")


if __name__ == "__main__":
    main()
