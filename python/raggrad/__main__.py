"""The command line: python -m raggrad."""

from __future__ import annotations

import argparse
import sys
from typing import NoReturn

from . import __version__, conformance, doctor
from .bench import cli as bench


class _Parser(argparse.ArgumentParser):
    """A parser that reports a wrong argument in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (see --help)\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="python -m raggrad",
        description="Operators on irregular data (sparse, ragged, batched) and their gradients. They give TensorFlow's "
        "exact results and do not need TensorFlow.",
        epilog="Example: python -m raggrad doctor. Each command has a --help of its own.",
    )
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser(
        "doctor",
        help="report version, instruction set, threads and the frameworks found",
        description="Reports what works on this machine, one line each: version, instruction set, threads, memory "
        "limit, the frameworks found, their packages of raggrad, their GPUs. Exit status: 0, or 1 if operators cannot "
        "be called.",
        epilog="Example: RAGGRAD_NUM_THREADS=4 python -m raggrad doctor",
    )
    run = commands.add_parser(
        "conformance",
        help="run golden files and compare bits",
        description="Runs the cases of golden files (.jsonl, recorded from TensorFlow) and compares results bit for "
        "bit. Exit status: 0 all passed, 1 some failed, 2 a file is missing or broken.",
        epilog="Example, in a checkout: python -m raggrad conformance goldens",
    )
    run.add_argument("paths", nargs="+", metavar="DIR", help="a directory, searched for .jsonl files, or a file")
    run.add_argument("--skip-unknown", action="store_true", help="skip cases of operators that raggrad lacks")
    run.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="where the operands lie (cpu)")
    run.add_argument(
        "--framework", choices=conformance.FRAMEWORKS, default="torch", help="whose arrays hold them on a GPU (torch)"
    )
    bench.add_arguments(commands.add_parser("bench", help="measure raggrad, and other libraries beside it"))
    return parser


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    if options.command == "conformance":
        framework = options.framework if options.device == "cuda" else None
        return conformance.run_files(options.paths, options.skip_unknown, framework)
    if options.command == "bench":
        return bench.run(options)
    lines, healthy = doctor.report()
    print("\n".join(lines))
    return 0 if healthy else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        sys.exit(141)
