"""The tools that record golden cases and compare with TensorFlow, tested without TensorFlow."""

from __future__ import annotations

import base64
import copy
import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

REPOSITORY = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(REPOSITORY / "tools"))

from goldens import crashes, sparse_slice  # noqa: E402
from goldens.cases import OPERATORS, directed_cases, random_case  # noqa: E402
from goldens.encoding import NUMBERS, QUANTIZED, decode, encode  # noqa: E402
from goldens.values import PALETTES, values  # noqa: E402
from oracle.differential import Journal, run  # noqa: E402
from oracle.worker import Worker  # noqa: E402


def read_golden(name: str) -> list[dict]:
    with open(REPOSITORY / "goldens" / f"{name}.jsonl") as file:
        return [json.loads(line) for line in file]


@pytest.mark.parametrize("dtype", NUMBERS + QUANTIZED + ("bool", "string"))
@pytest.mark.parametrize("palette", PALETTES)
def test_a_tensor_survives_the_encoding(dtype, palette):
    for shape in ((), (0,), (5,), (2, 0, 3), (2, 3)):
        drawn = values(np.random.default_rng(1), dtype, shape, palette)
        assert drawn.array.shape == shape
        encoded = encode(drawn)
        assert encode(decode(json.loads(json.dumps(encoded)))) == encoded


@pytest.mark.parametrize("op", OPERATORS)
def test_every_directed_case_is_recorded(op):
    names = [case["name"] for case in directed_cases(op)]
    assert len(set(names)) == len(names)
    recorded = [case["name"] for case in read_golden(op)]
    assert recorded[:len(names)] == names


@pytest.mark.parametrize("op", OPERATORS)
def test_recorded_cases_have_one_answer(op):
    for case in read_golden(op):
        assert ("outputs" in case) != ("error" in case)
        assert set(case) - {"outputs", "error"} == {"name", "op", "attrs", "inputs", "note"}


@pytest.mark.parametrize("op", OPERATORS)
def test_random_cases_are_reproducible_and_survivable(op):
    for seed in range(400):
        case = random_case(np.random.default_rng(seed), op, 300)
        assert case == random_case(np.random.default_rng(seed), op, 300)
        assert tensorflow_survives(case), case


def test_known_crashes_are_told_apart():
    unsurvivable = [case for case in crashes.all_crashes() if not tensorflow_survives(case)]
    huge = [case for case in crashes.all_crashes() if "rows-two-to" in case["name"]
            or "scratch" in case["name"]]
    assert len(unsurvivable) + len(huge) == len(list(crashes.all_crashes()))


def tensorflow_survives(case: dict) -> bool:
    """Whether TensorFlow gives a defined answer, decided from the case alone."""
    inputs = {name: decode(value) for name, value in case["inputs"].items()}
    if case["op"].endswith("WithNumSegments"):
        return bool(np.all(inputs["num_segments"].array < 2**31))
    if case["op"].startswith("SparseSegment"):
        return "Grad" not in case["op"] or _segment_survives(case["op"], inputs)
    if case["op"] == "SparseSlice":
        shape, start, size = (inputs[name].array for name in ("shape", "start", "size"))
        return not shape.shape == start.shape == size.shape or sparse_slice.survives(shape, start, size)
    if case["op"] == "RaggedTensorToVariantGradient":
        return _variant_survives(case["attrs"]["Tvalues"], inputs)
    if case["op"] == "RaggedTensorFromVariant":
        encoded = inputs["encoded_ragged"]
        splits = [s for e in encoded.elements if e for s in e.splits]
        return not encoded.shape or all(s.array.size or s.array.ndim != 1 for s in splits)
    return True


def _segment_survives(op: str, inputs: dict) -> bool:
    if op.endswith("V2"):
        return True
    grad, dim0 = inputs["grad"].array, inputs["output_dim0"].array
    nothing = inputs["indices"].array.size == 0 and inputs["segment_ids"].array.size == 0
    return not (nothing and grad.ndim and int(dim0) > 0 and math.prod(grad.shape[1:]))


def _variant_survives(dtype: str, inputs: dict) -> bool:
    elements = inputs["encoded_ragged_grad"].elements
    splits, shape = inputs["row_splits"].array, inputs["dense_values_shape"].array
    if shape.ndim != 1:
        return False
    if shape.size and (shape.min() < 0 or math.prod(shape.tolist()) > 2**63 - 1):
        return True  # refused
    if splits.ndim > 1 or (splits.ndim == 1 and (
        not splits.size or splits[0] != 0 or np.any(np.diff(splits) < 0)
    )):
        return True  # refused
    sizes = []
    for i, element in enumerate(elements):
        if element is None:
            if dtype == "string" or splits.ndim == 0 or i + 1 >= len(splits) or not shape.size:
                return False
            sizes.append(int(splits[i + 1] - splits[i]) * math.prod(shape[1:].tolist()))
        elif element.values.dtype != dtype and len(elements) > 1:
            return False
        else:
            sizes.append(element.values.array.size)
    return len(elements) == 1 or sum(sizes) == math.prod(shape.tolist())


def test_the_list_of_crashes_is_written_and_complete():
    written = read_golden("crashes")
    assert [c["name"] for c in written] == [c["name"] for c in crashes.all_crashes()]
    for case in written:
        assert case["tf"] in ("garbage", "segfault", "abort")
        assert ("outputs" in case) == (case["error"]["code"] == "OK")


DOUBLING_WORKER = """
import json, os, sys
for line in sys.stdin:
    case = json.loads(line)
    if case["value"] is None:
        os._exit(3)
    print(json.dumps({"outputs": 2 * case["value"], "filler": "x" * 3000}), flush=True)
"""


def test_a_worker_that_dies_is_replaced():
    worker = Worker([sys.executable, "-c", DOUBLING_WORKER])
    sent = [1, None, 3, None, None, *range(200), None]
    answers = worker.run([{"value": value, "filler": "y" * 3000} for value in sent])
    assert worker.run([{"value": 8}])[0]["outputs"] == 16
    worker.close()
    got = [answer and answer["outputs"] for answer in answers]
    assert got == [value if value is None else 2 * value for value in sent]


class Recorded:
    """A stand-in for TensorFlow that returns the recorded answers."""

    def run(self, cases):
        return [{key: case[key] for key in ("outputs", "error") if key in case} or None
                for case in cases]


def differences(cases, answers, tmp_path):
    conformance = pytest.importorskip("raggrad.conformance")

    class Library:
        compare = staticmethod(conformance.compare)
        run_case = staticmethod(lambda case: answers[case["name"]])

    journal = Journal(tmp_path / "failures.jsonl")
    return run([cases], Recorded(), Library(), journal=journal, report=lambda text: None), journal


def breakages(case: dict) -> list[dict]:
    """The recorded answer of a case, broken in one way after the other."""
    if "error" in case:
        return [{"error": {**case["error"], "code": "Internal"}}, {"outputs": {}}]
    broken = []
    for name in case["outputs"]:
        missing = {k: v for k, v in case["outputs"].items() if k != name}
        broken.append({"outputs": missing})
    for place in range(len(list(tensors(case["outputs"])))):
        flipped = copy.deepcopy(case["outputs"])
        tensor = list(tensors(flipped))[place]
        data = bytearray(base64.b64decode(tensor["data"]))
        if data:
            data[len(data) // 2] ^= 1
            tensor["data"] = base64.b64encode(data).decode()
            broken.append({"outputs": flipped})
    return broken


def tensors(outputs: object) -> Iterator[dict]:
    """All tensors of a dict of outputs, also those in lists and in elements of variants."""
    if isinstance(outputs, dict) and "data" in outputs:
        yield outputs
    elif isinstance(outputs, (dict, list)):
        for item in outputs.values() if isinstance(outputs, dict) else outputs:
            yield from tensors(item)


@pytest.mark.parametrize("op", OPERATORS)
def test_a_flipped_bit_a_changed_code_and_a_missing_output_are_found(op, tmp_path):
    golden = read_golden(op)
    cases = [
        next(c for c in golden if "outputs" in c and c["note"] == "" and "float32" in c["name"]),
        next(c for c in golden if c.get("error", {}).get("code") == "InvalidArgument"),
    ]
    good = {c["name"]: {k: c[k] for k in ("outputs", "error") if k in c} for c in cases}
    tally, journal = differences(cases, good, tmp_path)
    assert tally.passed.total() == len(cases) and not journal.path.exists()
    for case in cases:
        for answer in breakages(case):
            tally, journal = differences([case], {case["name"]: answer}, tmp_path)
            assert tally.failed.total() == 1, answer
            assert json.loads(journal.path.read_text().splitlines()[-1])["name"] == case["name"]


def test_a_case_without_a_reference_counts_apart(tmp_path):
    case = {"name": "SparseSliceGrad/lost", "op": "SparseSliceGrad"}
    tally, journal = differences([case], {case["name"]: {}}, tmp_path)
    assert (tally.passed.total(), tally.failed.total(), tally.died.total()) == (0, 0, 1)
    assert journal.path.exists()
