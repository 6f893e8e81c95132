"""Train a small recommender on generated clicks, with raggrad."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import numpy as np
import raggrad
from raggrad.optimizers import Adagrad
from tqdm import tqdm

from data import Batch, ClickLog, Sizes, generate
from gradcheck import MAX_RELATIVE_ERROR, check_gradients, failures, print_findings
from metrics import Score, log_loss, logit, score
from model import Recommender
from plot import Curves, draw

LEARNING_RATE = 0.15


class OneLineParser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (see --help)\n")


def whole_number(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def positive_number(text: str) -> int:
    if (number := whole_number(text)) == 0:
        raise argparse.ArgumentTypeError("it must be at least 1")
    return number


def picture_path(text: str) -> Path:
    path = Path(text)
    if path.suffix != ".png":
        raise argparse.ArgumentTypeError(f"{text!r} does not end in .png")
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"there is no directory {str(path.parent)!r}")
    return path


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = OneLineParser(prog="train.py", description=__doc__)
    parser.add_argument(
        "--steps", type=positive_number, default=2000, help="training steps (%(default)s)"
    )
    parser.add_argument(
        "--batch", type=positive_number, default=512, help="impressions per step (%(default)s)"
    )
    parser.add_argument(
        "--seed", type=whole_number, default=0, help="seed of the data and the model (%(default)s)"
    )
    parser.add_argument(
        "--plot", type=picture_path, default="recommender.png", metavar="PATH",
        help="where to draw the loss (%(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--threads", type=positive_number, help="threads of raggrad (its own choice)"
    )
    return parser.parse_args(arguments)


def predict(model: Recommender, batches: list[Batch]) -> np.ndarray:
    return np.concatenate([model.forward(batch).logits for batch in batches])


def evaluation_steps(steps: int) -> set[int]:
    """Every tenth of the run, and more steps at its start, where the loss changes fastest."""
    tenth = max(1, steps // 10)
    return {steps, *range(tenth, steps, tenth), *(tenth >> halvings for halvings in range(1, 8))}


def train(
    model: Recommender, log: ClickLog, rng: np.random.Generator, steps: int, batch_size: int
) -> Curves:
    rules = {
        name: Adagrad.for_table(table, LEARNING_RATE, initial_accumulator=1e-8)
        for name, table in model.parameters.items()
    }
    heldout = log.heldout_batches()
    evaluate_at = evaluation_steps(steps)
    curves = Curves()
    # A terminal redraws the bar in place; in a log file every redraw would be one more line.
    redraw_seconds = 0.1 if sys.stderr.isatty() else 30
    with tqdm(total=steps, desc="  training", unit="step", mininterval=redraw_seconds) as bar:
        for step in range(1, steps + 1):
            batch = log.sample(rng, batch_size)
            activations = model.forward(batch)
            for name, gradient in model.gradients(batch, activations).items():
                gradient.apply_(model.parameters[name], rules[name])
            curves.train_loss.append(log_loss(activations.logits, batch.clicked))

            recent_loss = np.mean(curves.train_loss[-100:])
            if step in evaluate_at:
                heldout_loss = log_loss(predict(model, heldout), log.heldout.clicked)
                curves.heldout_steps.append(step)
                curves.heldout_loss.append(heldout_loss)
                bar.write(f"  step {step:>5}  loss {recent_loss:.4f}  held-out {heldout_loss:.4f}")
            bar.set_postfix_str(f"loss {recent_loss:.4f}", refresh=False)
            bar.update()
    return curves


def print_scores(scores: dict[str, Score]) -> None:
    print(f"  {'':22} {'log loss':>9} {'AUC':>9}")
    for name, (loss, area) in scores.items():
        print(f"  {name:<22} {loss:>9.4f} {area:>9.4f}")


def run(options: argparse.Namespace) -> None:
    if options.threads:
        raggrad.set_num_threads(options.threads)

    print(f"\nEvery gradient against central differences, bound {MAX_RELATIVE_ERROR:g}\n")
    findings = check_gradients()
    print_findings(findings)
    if wrong := failures(findings):
        sys.exit(f"train.py: not training with wrong gradients: {', '.join(wrong)}")

    rng = np.random.default_rng(options.seed)
    log = generate(Sizes(), options.seed)
    base_rate = log.train.clicked.mean()
    print(
        f"\nTraining on {log.sizes.impressions:,} impressions of {log.sizes.items} items, "
        f"{base_rate:.1%} of them clicked\n"
    )
    model = Recommender(log, rng)
    curves = train(model, log, rng, options.steps, options.batch)

    clicked = log.heldout.clicked
    base = score(np.full(len(clicked), logit(base_rate)), clicked)
    learned = score(predict(model, log.heldout_batches()), clicked)
    best = score(logit(log.heldout.true_probability), clicked)
    print(f"\nResult on {len(clicked):,} held-out impressions\n")
    print_scores({"always the base rate": base, "this model": learned, "true probabilities": best})
    draw(curves, base, learned, best, options.plot)
    print(f"\nPicture: {options.plot}")


def main(arguments: Sequence[str] | None = None) -> None:
    try:
        run(parse_arguments(arguments))
    except OSError as error:
        sys.exit(f"train.py: {error}")
    except KeyboardInterrupt:
        sys.exit("train.py: interrupted")


if __name__ == "__main__":
    main()
