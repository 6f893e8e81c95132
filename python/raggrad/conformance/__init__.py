"""The command `conformance`: runs cases recorded from TensorFlow through the operators and compares bits."""

from .files import BrokenFile, find_files, read_cases
from .run import compare, has_operator, run_case, run_files

__all__ = ["BrokenFile", "compare", "find_files", "has_operator", "read_cases", "run_case", "run_files"]
