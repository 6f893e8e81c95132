"""The workers of examples/data_parallel: their gradients are those of one thread, they learn, and they end."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from conftest import same_bits
from raggrad.batching import Runtime

EXAMPLE = Path(__file__).parents[3] / "examples" / "data_parallel"
sys.path.insert(0, str(EXAMPLE))

import data_parallel  # noqa: E402
import network  # noqa: E402
import shared_model  # noqa: E402


def test_gradients_agree_with_finite_differences() -> None:
    rng = np.random.default_rng(0)
    parameters = {name: value.astype(np.float64) for name, value in network.make_parameters(rng, hidden=3).items()}
    rows, target = rng.normal(size=(5, 2)), rng.normal(size=(5, 1))

    def loss() -> float:
        return network.loss_and_gradient(network.forward(parameters, rows).output, target)[0]

    activations = network.forward(parameters, rows)
    got = network.gradients(parameters, activations, network.loss_and_gradient(activations.output, target)[1])
    for name, value in parameters.items():
        for at in np.ndindex(value.shape):
            before, step = value[at], 1e-6
            value[at] = before + step
            above = loss()
            value[at] = before - step
            assert got[name][at] == pytest.approx((above - loss()) / (2 * step), rel=1e-4, abs=1e-6)
            value[at] = before


class Recording(shared_model.SharedModel):
    """Remembers the batch. Its rows are in the order in which workers came."""

    def _forward(self, rows: np.ndarray) -> network.Activations:
        if len(rows):
            self.batch = rows
        return super()._forward(rows)


@pytest.mark.parametrize("workers", [1, 2, 8, 32])
def test_gradients_are_exactly_those_of_one_thread(workers: int) -> None:
    parameters = network.make_parameters(np.random.default_rng(0))
    with Runtime() as runtime:
        model = Recording(parameters, 16 * workers, runtime)
        shares = [data_parallel.spiral(np.random.default_rng(worker), 16) for worker in range(workers)]
        with ThreadPoolExecutor(workers) as executor:
            results = list(executor.map(lambda share: model.step(*share), shares))
    (owner,) = (result for result in results if result.gradients is not None)
    order = [
        next(worker for worker in range(workers) if same_bits(shares[worker][0], rows))
        for rows in np.split(model.batch, workers)
    ]
    assert sorted(order) == list(range(workers))
    activations = network.forward(parameters, model.batch)
    targets = np.concatenate([shares[worker][1] for worker in order])
    _, d_output = network.loss_and_gradient(activations.output, targets)
    for name, expected in network.gradients(parameters, activations, d_output).items():
        assert same_bits(owner.gradients[name], expected)


@pytest.mark.parametrize("workers", [1, 3])
def test_the_loss_falls(workers: int) -> None:
    parameters = network.make_parameters(np.random.default_rng(0))
    with Runtime() as runtime:
        trainer = data_parallel.Trainer(parameters, workers, 32, 0, runtime)
        trainer.train(300, lambda loss: None)
        assert runtime.resource("UnbatchGrad").statistics().succeeded == 300 * workers
    assert len(trainer.losses) == 300
    assert np.mean(trainer.losses[-20:]) < 0.7 * np.mean(trainer.losses[:5])


def test_a_worker_that_fails_ends_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = threading.Lock()
    left = [10]

    def failing_spiral(rng: np.random.Generator, rows: int) -> tuple[np.ndarray, np.ndarray]:
        with calls:
            left[0] -= 1
            if left[0] == 0:
                raise RuntimeError("out of data")
        return spiral(rng, rows)

    spiral = data_parallel.spiral
    monkeypatch.setattr(data_parallel, "spiral", failing_spiral)
    with Runtime() as runtime:
        trainer = data_parallel.Trainer(network.make_parameters(np.random.default_rng(0)), 4, 8, 0, runtime)
        with pytest.raises(RuntimeError, match="out of data"):
            trainer.train(100, lambda loss: None)


def test_the_program(capsys: pytest.CaptureFixture[str]) -> None:
    data_parallel.main(["--steps", "20", "--workers", "2", "--rows", "8"])
    output = capsys.readouterr().out
    assert "40 calls, 0 failed, 0 left over" in output
    with pytest.raises(SystemExit) as stopped:
        data_parallel.main(["--workers", "0"])
    assert stopped.value.code == 2
    assert "whole number of at least 1" in capsys.readouterr().err


def test_it_needs_no_tqdm() -> None:
    code = f"import sys; sys.path.insert(0, {str(EXAMPLE)!r}); sys.modules['tqdm'] = None\n"
    code += "import data_parallel; data_parallel.main(['--steps', '10'])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert "step     10  loss" in run.stdout
    assert run.stderr == ""
