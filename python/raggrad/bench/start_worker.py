"""PYTHON start_worker.py PEER THREADS: runs worker.main() in an environment that has no raggrad, or another one.

It loads the folder of this file as a package of its own, named raggrad_bench.
"""

import importlib.util
import sys
from pathlib import Path

sys.path.pop(0)  # modules of this folder must not hide others of the same name
_spec = importlib.util.spec_from_file_location("raggrad_bench", Path(__file__).resolve().with_name("__init__.py"))
_package = sys.modules["raggrad_bench"] = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_package)
importlib.import_module("raggrad_bench.worker").main()
