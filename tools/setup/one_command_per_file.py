#!/usr/bin/env python3
"""Keeps one compile command for each source: clang-tidy would read row loops once per instruction-set level."""

import json
import sys
from pathlib import Path

database = Path(sys.argv[1])
commands = {command["file"]: command for command in json.loads(database.read_text())}
database.write_text(json.dumps(list(commands.values()), indent=1))
