"""Trains unchanged Keras models with TensorFlow's kernels and with raggrad's, in processes of their own.

Fails unless all weights are the same bits after all steps.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path


def train(kernels: str, steps: int) -> dict[str, dict[str, str | float]]:
    """What train.py prints: the weights and the seconds of each model."""
    program = Path(__file__).with_name("train.py")
    done = subprocess.run([sys.executable, program, kernels, str(steps)], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100)
    steps = parser.parse_args().steps
    print(f"{'model':10}{'weights after':>16}{'TensorFlow':>14}{'raggrad':>12}{'sparse part':>14}")
    same = True
    results, with_raggrad = train("stock", steps), train("raggrad", steps)
    for model, stock in results.items():
        ours = with_raggrad[model]
        equal = stock["weights"] == ours["weights"]
        same &= equal
        print(f"{model:10}{steps:5} steps: {'same' if equal else 'DIFFER'}{stock['seconds'] * 1e3:11.1f} ms"
              f"{ours['seconds'] * 1e3:9.1f} ms{stock['seconds'] / ours['seconds']:9.1f} times")
    sys.exit(0 if same else 1)


if __name__ == "__main__":
    main()
