"""A child process that answers cases and is replaced when it dies."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Sequence
from typing import IO, Any

Json = dict[str, Any]


class Worker:
    """Writes one JSON case per line to a command and reads one JSON answer per line."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = list(command)
        self._process = self._start()

    def run(self, cases: Sequence[Json]) -> list[Json | None]:
        """The answers, in order; None for a case during which the process died."""
        answers: list[Json | None] = []
        while len(answers) < len(cases):
            answers += self._answers(cases[len(answers):])
            if len(answers) < len(cases):
                answers.append(None)
                self.close()
                self._process = self._start()
        return answers

    def close(self) -> None:
        assert self._process.stdin and self._process.stdout
        try:
            self._process.stdin.close()
        except BrokenPipeError:
            pass  # the process died before it read all cases
        self._process.stdout.close()
        self._process.wait()

    def _start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def _answers(self, cases: Sequence[Json]) -> list[Json]:
        assert self._process.stdin and self._process.stdout
        # A second thread writes: both pipes are small, and two blocked sides would wait for ever.
        writer = threading.Thread(target=_write_lines, args=(self._process.stdin, cases))
        writer.start()
        answers = []
        for _ in cases:
            line = self._process.stdout.readline()
            if not line.endswith("\n"):
                break  # the output ended, maybe in the middle of a line
            answers.append(json.loads(line))
        writer.join()
        return answers


def _write_lines(pipe: IO[str], cases: Sequence[Json]) -> None:
    try:
        for case in cases:
            pipe.write(json.dumps(case) + "\n")
        pipe.flush()
    except BrokenPipeError:
        pass  # the reader notices it, too, and knows which case it was
