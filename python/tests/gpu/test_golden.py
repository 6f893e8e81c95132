"""Golden cases through raw_ops with operands on a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import OPERATORS, ROOT
from raggrad.conformance import FRAMEWORKS, DeviceArrays, compare, read_cases, run_case

from .conftest import OnGpu

FOLDERS = [ROOT / "goldens", ROOT.parent / "shared" / "goldens" / "stateless"]
FILES = [file for folder in FOLDERS for file in sorted(folder.glob("*.jsonl")) if file.stem in [*OPERATORS, "crashes"]]


@pytest.fixture(scope="module", params=FRAMEWORKS)
def device(request: pytest.FixtureRequest) -> DeviceArrays:
    OnGpu(request.param)  # skips
    return DeviceArrays(request.param)


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_goldens(device: DeviceArrays, file: Path) -> None:
    cases = [case for _, case in read_cases(file) if case["op"] in OPERATORS and device.why_not(case) is None]
    failures = {case["name"]: difference for case in cases if (difference := compare(case, run_case(case, device)))}
    assert failures == {}
