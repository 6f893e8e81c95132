"""The recommender of examples/: its gradients are right, its check can fail, and it learns."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from raggrad import IndexedSlices, ops

pytest.importorskip("matplotlib")
pytest.importorskip("tqdm")

RECOMMENDER = Path(__file__).parents[3] / "examples" / "recommender"
sys.path.insert(0, str(RECOMMENDER))

import data  # noqa: E402
import gradcheck  # noqa: E402
import metrics  # noqa: E402
import model  # noqa: E402
import train  # noqa: E402

OPERATORS = sorted({op for path in model.GRADIENT_PATHS.values() for op in path})


def scaled(result: Any) -> Any:
    """The first output a little too large, the way a wrong factor in a kernel would show."""
    if isinstance(result, IndexedSlices):
        return IndexedSlices(result.values * 1.001, result.indices, result.dense_shape)
    if isinstance(result, tuple):
        return type(result)(result[0] * 1.001, *result[1:])
    return result * 1.001


def replace_operator(monkeypatch: pytest.MonkeyPatch, name: str, wrap: Any) -> None:
    home = model if name == "IndexedSlices" else ops
    original = getattr(home, name)
    monkeypatch.setattr(home, name, lambda *inputs, **named: wrap(original(*inputs, **named)))


def test_gradients_agree_with_finite_differences() -> None:
    findings = gradcheck.check_gradients()
    assert [finding.parameter for finding in findings] == list(model.GRADIENT_PATHS)
    assert not gradcheck.failures(findings)


@pytest.mark.parametrize("operator", OPERATORS)
def test_a_wrong_operator_is_found(monkeypatch: pytest.MonkeyPatch, operator: str) -> None:
    replace_operator(monkeypatch, operator, scaled)
    # The first output of the fill gradient belongs to the entries, the second to the default.
    expected = {name for name, path in model.GRADIENT_PATHS.items() if operator in path}
    if operator == "fill_empty_rows_grad":
        expected.remove("cold_start")
    assert set(gradcheck.failures(gradcheck.check_gradients())) == expected


def test_a_wrong_default_gradient_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    replace_operator(
        monkeypatch,
        "fill_empty_rows_grad",
        lambda result: result._replace(d_default_value=result.d_default_value * 1.001),
    )
    assert gradcheck.failures(gradcheck.check_gradients()) == ["cold_start"]


def test_a_wrong_gradient_stops_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    replace_operator(monkeypatch, "slice_grad", scaled)
    with pytest.raises(SystemExit, match="wrong gradients: slot_value"):
        train.main([])


def test_the_loss_falls_below_the_base_rate() -> None:
    rng = np.random.default_rng(0)
    log = data.generate(data.Sizes(items=80, users=300, impressions=50_000, heldout=4_000), 0)
    recommender = model.Recommender(log, rng)
    curves = train.train(recommender, log, rng, steps=30, batch_size=256)
    base_rate = metrics.log_loss(metrics.logit(log.train.clicked.mean()), log.heldout.clicked)
    assert np.mean(curves.train_loss[-5:]) < np.mean(curves.train_loss[:5])
    assert curves.heldout_loss[-1] < base_rate - 0.02


def test_a_batch_of_one_works() -> None:
    rng = np.random.default_rng(0)
    log = data.generate(gradcheck.CHECK_SIZES, 0)
    recommender = model.Recommender(log, rng)
    curves = train.train(recommender, log, rng, steps=20, batch_size=1)
    assert np.all(np.isfinite(curves.train_loss))


def test_auc_counts_ties_as_half() -> None:
    clicked = np.array([False, True, False, True])
    assert metrics.auc(np.zeros(4), clicked) == 0.5
    assert metrics.auc(np.array([0.0, 1.0, 1.0, 2.0]), clicked) == 0.875


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--steps", "0"], "at least 1"),
        (["--batch", "many"], "not a whole number"),
        (["--plot", "loss.txt"], "does not end in .png"),
        (["--plot", "no/such/place/loss.png"], "there is no directory"),
        (["--colour"], "unrecognized arguments"),
    ],
)
def test_bad_arguments_give_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        train.main(arguments)
    complaint = capsys.readouterr().err
    assert stopped.value.code == 2
    assert message in complaint and complaint.count("\n") == 1
