"""build(), and the variant operators, whose kernels it compiles for the TensorFlow of this process."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from raggrad.tf import on_demand

from .door import calls, run, tf

compiled = pytest.mark.skipif(not on_demand.loaded(), reason="no C++ compiler")

STATUS = """
import json, os, raggrad.tf
texts = []
{before}
raggrad.tf.install()
print(json.dumps([texts, raggrad.tf.status()[os.environ.get("reported", "RaggedTensorToVariant")]]))
"""
REFUSED = """
try:
    raggrad.tf.build()
except RuntimeError as error:
    texts.append(str(error))
"""


def _status(cache: Path, before: str = "", **environment: str) -> tuple[list[str], str]:
    texts, status = json.loads(
        run(STATUS.format(before=before), XDG_CACHE_HOME=str(cache), **environment).splitlines()[-1]
    )
    return texts, status


def test_without_build_tensorflows_kernels_stay(tmp_path: Path) -> None:
    _, status = _status(tmp_path)
    assert status.startswith("stock: TensorFlow's C++ interface differs between versions")
    assert ("raggrad.tf.build() compiles them" in status) == on_demand.loaded()
    assert not (tmp_path / "raggrad").exists()


def test_without_a_compiler_one_line_says_so(tmp_path: Path) -> None:
    texts, status = _status(tmp_path, REFUSED, CXX="no-such-compiler")
    assert len(texts) == 1
    assert texts[0].startswith("raggrad.tf.build: to compile them, a C++ compiler is needed: g++, c++ or")
    assert "a C++ compiler is needed" in status


def test_a_compiler_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    texts, status = _status(tmp_path, REFUSED, CXX="false")
    assert len(texts) == 1
    assert texts[0].startswith("raggrad.tf.build: ")
    assert texts[0].endswith("failed: no message")
    assert status.startswith("stock: ")
    assert not list(tmp_path.rglob("*.so"))


def test_a_library_that_cannot_be_loaded_leaves_the_other_operators(tmp_path: Path) -> None:
    broken = "from raggrad.tf import on_demand; file = on_demand._place(); file.parent.mkdir(); file.write_bytes(b'no')"
    _, status = _status(tmp_path, broken, reported="SparseSegmentSum")
    assert status == "raggrad"
    _, status = _status(tmp_path)
    assert status.startswith("stock: the library of raggrad.tf.build() cannot be loaded: ")
    assert str(tmp_path) in status


def test_without_a_place_for_the_library_one_line_says_so() -> None:
    texts, status = _status(Path("/dev/null"), REFUSED, reported="SparseSegmentSum")
    assert len(texts) == 1
    assert texts[0].startswith("raggrad.tf.build: no place for the library: ")
    assert "XDG_CACHE_HOME" in texts[0]
    assert status == "raggrad"


def test_a_user_without_a_home_can_install() -> None:
    homeless = """
import pathlib
def home():
    raise RuntimeError("no home")
pathlib.Path.home = home
"""
    environment = {"XDG_CACHE_HOME": "", "reported": "SparseSegmentSum"}
    assert json.loads(run(STATUS.format(before=homeless), **environment).splitlines()[-1])[1] == "raggrad"


@compiled
def test_a_library_that_was_built_is_found_without_a_compiler() -> None:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    assert _status(cache, REFUSED, CXX="no-such-compiler") == ([], "raggrad")


@compiled
@pytest.mark.parametrize("width", [1, 16])  # rows that need a copy, and rows that TensorFlow reads where they lie
def test_map_over_ragged_rows_and_its_gradient(width: int) -> None:
    before = {name: calls(name) for name in on_demand.VARIANT_OPERATORS}
    values = tf.Variable(np.arange(6 * width, dtype=np.float32).reshape(6, width))
    with tf.GradientTape() as tape:
        ragged = tf.RaggedTensor.from_row_splits(values, [0, 2, 2, 5, 6])
        doubled = tf.map_fn(lambda row: row * tf.cast(tf.shape(row)[0], tf.float32), ragged)
        loss = tf.reduce_sum(doubled.flat_values * doubled.flat_values)
    lengths = np.float32([2, 2, 3, 3, 3, 1]).reshape(6, 1)
    np.testing.assert_array_equal(doubled.flat_values, values * lengths)
    np.testing.assert_array_equal(tape.gradient(loss, values), 2 * values * lengths * lengths)
    assert all(calls(name) > before[name] for name in on_demand.VARIANT_OPERATORS)


@compiled
@pytest.mark.parametrize("name", ["int8", "bool", "complex128", "string", "bfloat16"])
def test_elements_survive_their_tensor(name: str) -> None:
    """Elements may be slices of one tensor: each must keep it alive, and be readable by TensorFlow's own kernels."""
    dtype = tf.as_dtype(name)
    values = tf.as_string(tf.range(64)) if dtype == tf.string else tf.cast(tf.range(64) % 2, dtype)
    array = tf.raw_ops.RaggedTensorToVariant(
        rt_nested_splits=[tf.constant([0, 3, 64])], rt_dense_values=values, batched_input=True
    )
    expected = values[3:]
    del values
    last = array[1]
    del array
    _, joined = tf.raw_ops.RaggedTensorFromVariant(
        encoded_ragged=tf.stack([last]), input_ragged_rank=0, output_ragged_rank=1, Tvalues=dtype, Tsplits=tf.int32
    )
    assert tf.reduce_all(joined == expected)


@compiled
def test_install_after_an_eager_call_names_the_operator() -> None:
    program = """
import json, warnings
import tensorflow as tf
tf.raw_ops.RaggedTensorToVariant(rt_nested_splits=[tf.constant([0, 1])], rt_dense_values=[1.0], batched_input=True)
import raggrad.tf
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    raggrad.tf.install()
print(json.dumps([str(warning.message) for warning in caught]))
"""
    (text,) = json.loads(run(program).splitlines()[-1])
    assert "RaggedTensorToVariant (float32 int32)" in text
    assert "RaggedTensorFromVariant" not in text


def test_the_compiler_is_looked_for_where_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert on_demand.compiler() is None
    monkeypatch.delenv("CXX")
    assert on_demand.compiler() == next(filter(None, map(shutil.which, ("g++", "c++", "clang++"))), None)
