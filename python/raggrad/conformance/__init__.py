"""The command `conformance`: runs cases recorded from TensorFlow through the operators and compares bits."""

from .devices import FRAMEWORKS, DeviceArrays, NoDevice
from .files import BrokenFile, find_files, read_cases
from .run import compare, has_operator, run_case, run_files

__all__ = [
    "FRAMEWORKS",
    "BrokenFile",
    "DeviceArrays",
    "NoDevice",
    "compare",
    "find_files",
    "has_operator",
    "read_cases",
    "run_case",
    "run_files",
]
