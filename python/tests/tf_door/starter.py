"""A process that has imported TensorFlow and forks one child per program: importing takes 5 s of a processor's time.

Reads requests from standard input, one JSON object per line, and answers each with the exit status of its child. A
child finds nothing done but the import, and ends as every interpreter does.
"""

from __future__ import annotations

import json
import os
import signal
import sys

import tensorflow  # noqa: F401  for the children

SECONDS = 300  # a child that is not finished by then ends by a signal

for line in sys.stdin:
    request = json.loads(line)
    child = os.fork()
    if child == 0:
        signal.alarm(SECONDS)
        for stream in (1, 2):
            os.dup2(os.open(request["output"][stream - 1], os.O_WRONLY), stream)
        os.environ |= request["environment"]
        exec(compile(request["program"], "<program>", "exec"), {"__name__": "__main__"})
        break
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
