"""PYTHON start_worker.py PEER THREADS: worker.main() in an environment that has no raggrad, or another one.

The folder of this file becomes a package of its own, under another name.
"""

import importlib.util
import sys
from pathlib import Path

sys.path.pop(0)  # the names in this folder are nobody else's business
_spec = importlib.util.spec_from_file_location("raggrad_bench", Path(__file__).resolve().with_name("__init__.py"))
_package = sys.modules["raggrad_bench"] = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_package)
importlib.import_module("raggrad_bench.worker").main()
