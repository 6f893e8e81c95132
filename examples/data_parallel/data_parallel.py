"""Train a small network with several workers that share one batched forward pass and one backward pass."""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Callable, Sequence
from typing import NoReturn

import numpy as np
from raggrad.batching import Limits, Runtime

from network import Parameters, forward, make_parameters
from shared_model import SharedModel

LEARNING_RATE = 0.1


class OneLineParser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (see --help)\n")


def positive_number(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = OneLineParser(prog="data_parallel.py", description=__doc__)
    parser.add_argument("--workers", type=positive_number, default=4, help="threads (%(default)s)")
    parser.add_argument("--steps", type=positive_number, default=1500, help="training steps (%(default)s)")
    parser.add_argument("--rows", type=positive_number, default=64, help="rows of each worker per step (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="seed of data and model (%(default)s)")
    return parser.parse_args(arguments)


def spiral(rng: np.random.Generator, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Points on two arms that wind around each other, and +1 or -1 for the arm of each."""
    arm = rng.integers(0, 2, size=(rows, 1))
    turn = rng.uniform(0.25, 1.25, size=(rows, 1))
    angle = 2 * np.pi * turn + np.pi * arm
    points = turn * np.concatenate([np.cos(angle), np.sin(angle)], axis=1)
    return points.astype(np.float32), (2.0 * arm - 1).astype(np.float32)


class Trainer:
    """Worker threads, with a barrier at the end of each step, after which all see the new parameters."""

    def __init__(self, parameters: Parameters, workers: int, rows: int, seed: int, runtime: Runtime) -> None:
        self.shared = SharedModel(parameters, workers * rows, runtime)
        self.workers = workers
        self.rows = rows
        self.seed = seed
        self.losses: list[float] = []
        self._step_loss = np.zeros(workers)
        self._velocity = {name: np.zeros_like(value) for name, value in parameters.items()}
        self._failures: list[BaseException] = []

    def train(self, steps: int, progress: Callable[[float], None]) -> None:
        end_of_step = threading.Barrier(self.workers, action=lambda: self._end_step(progress))
        threads = [
            threading.Thread(target=self._work, args=(worker, steps, end_of_step)) for worker in range(self.workers)
        ]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                thread.join()
        except KeyboardInterrupt:
            self._stop(end_of_step)
            raise
        if self._failures:
            raise self._failures[0]

    def _work(self, worker: int, steps: int, end_of_step: threading.Barrier) -> None:
        rng = np.random.default_rng([self.seed, worker])
        try:
            for _ in range(steps):
                result = self.shared.step(*spiral(rng, self.rows))
                self._step_loss[worker] = result.loss
                if result.gradients is not None:
                    self._update(result.gradients)
                end_of_step.wait()
        except threading.BrokenBarrierError:  # another worker failed
            pass
        except BaseException as failure:
            self._failures.append(failure)
            self._stop(end_of_step)

    def _stop(self, end_of_step: threading.Barrier) -> None:
        """Ends the waits of all workers."""
        self.shared.cancellation.cancel()
        end_of_step.abort()

    def _update(self, gradients: Parameters) -> None:
        for name, gradient in gradients.items():
            self._velocity[name] *= 0.9
            self._velocity[name] -= LEARNING_RATE / self.shared.rows_per_batch * gradient
            self.shared.parameters[name] += self._velocity[name]

    def _end_step(self, progress: Callable[[float], None]) -> None:
        self.losses.append(float(self._step_loss.sum()) / self.shared.rows_per_batch)
        progress(float(np.mean(self.losses[-100:])))


def accuracy(parameters: Parameters, seed: int) -> float:
    points, arm = spiral(np.random.default_rng([seed, 12345]), 10_000)
    return float(np.mean(np.sign(forward(parameters, points).output) == arm))


def run(options: argparse.Namespace) -> None:
    parameters = make_parameters(np.random.default_rng(options.seed))
    print(f"\n{options.workers} workers, {options.rows} rows each, share every forward and backward pass\n")
    with Runtime(Limits(default_timeout_micros=60_000_000)) as runtime, _bar(options.steps) as progress:
        trainer = Trainer(parameters, options.workers, options.rows, options.seed, runtime)
        trainer.train(options.steps, progress)
        counts = {kind: runtime.resource(kind).statistics() for kind in ("Batch", "Unbatch", "UnbatchGrad")}
    print(f"\n  loss per row   {trainer.losses[0]:.3f} at first, {np.mean(trainer.losses[-50:]):.3f} at the end")
    print(f"  held-out       {accuracy(parameters, options.seed):.1%} of the points on the right arm\n")
    for kind, statistics in counts.items():
        done, failed, left = statistics.succeeded, statistics.failed, statistics.pieces
        print(f"  {kind:<12} {done:>6} calls, {failed} failed, {left} left over")


class _bar:
    """A progress bar if tqdm is installed, otherwise a line from time to time."""

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._done = 0
        self._tqdm = None

    def __enter__(self) -> Callable[[float], None]:
        try:
            from tqdm import tqdm
        except ImportError:
            return self._print
        # A terminal redraws the bar in place; in a log file every redraw would be one more line.
        redraw_seconds = 0.1 if sys.stderr.isatty() else 30
        self._tqdm = tqdm(total=self._steps, desc="  training", unit="step", mininterval=redraw_seconds)
        return self._advance

    def __exit__(self, *_: object) -> None:
        if self._tqdm is not None:
            self._tqdm.close()

    def _advance(self, loss: float) -> None:
        self._tqdm.set_postfix_str(f"loss {loss:.3f}", refresh=False)
        self._tqdm.update()

    def _print(self, loss: float) -> None:
        self._done += 1
        if self._done % max(1, self._steps // 10) == 0:
            print(f"  step {self._done:>6}  loss {loss:.3f}")


def main(arguments: Sequence[str] | None = None) -> None:
    try:
        run(parse_arguments(arguments))
    except KeyboardInterrupt:
        sys.exit("data_parallel.py: interrupted")


if __name__ == "__main__":
    main()
