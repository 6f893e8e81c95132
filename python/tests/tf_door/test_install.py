"""install() and status(): when kernels are replaced, and what is said if they are not."""

from __future__ import annotations

import json

import pytest
from raggrad import doctor_doors
from raggrad.tf import on_demand

from .door import calls, door, operators, run, run_anew, tf

LATE = """
import json, warnings
import tensorflow as tf
def pool(ids):
    return tf.sparse.segment_sum(tf.ones([3, 2]), ids, tf.constant([0, 0]))
{before}
import raggrad.tf
from raggrad.tf._load import calls
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    raggrad.tf.install()
    raggrad.tf.install()
counts = []
for ids in (tf.constant([0, 1]), tf.constant([0, 1], tf.int64)):
    before = calls("SparseSegmentSum")
    pool(ids)
    counts.append(calls("SparseSegmentSum") - before)
print(json.dumps([[str(warning.message) for warning in caught], counts, raggrad.tf.status()["SparseSegmentSum"]]))
"""


def _late(before: str) -> tuple[list[str], list[int], str]:
    texts, counts, status = json.loads(run(LATE.format(before=before)).splitlines()[-1])
    return texts, counts, status


def test_early_install_says_nothing() -> None:
    assert _late("tf.config.threading.set_intra_op_parallelism_threads(1)") == ([], [1, 1], "raggrad")


def test_install_after_other_operators_says_nothing() -> None:
    assert _late("tf.reduce_sum(tf.ones([3]))") == ([], [1, 1], "raggrad")


def test_install_after_an_eager_call_names_the_operator() -> None:
    texts, counts, status = _late("pool(tf.constant([0, 1]))")
    assert len(texts) == 1
    assert "SparseSegmentSum (float32 int32 int32)" in texts[0]
    assert "SparseSegmentMean" not in texts[0]
    assert counts == [0, 1]
    assert status.startswith("stock: called eagerly with float32 int32 int32")


def test_install_does_not_start_tensorflow() -> None:
    run_anew(
        "import raggrad.tf, tensorflow as tf; raggrad.tf.install(); tf.config.set_logical_device_configuration("
        "tf.config.list_physical_devices('CPU')[0], [tf.config.LogicalDeviceConfiguration()] * 2)"
    )


def test_import_alone_changes_nothing() -> None:
    program = "import raggrad.tf; print(set(raggrad.tf.status().values()))"
    assert "'raggrad'" not in run(program)


def test_status() -> None:
    status = door.status()
    built = set(on_demand.OPERATORS) if on_demand.loaded() else set()
    assert {name for name, answer in status.items() if answer == "raggrad"} == {*operators(), *built}
    others = {name: answer for name, answer in status.items() if answer != "raggrad"}
    assert set(others) == set(on_demand.OPERATORS) - built
    assert all(answer.startswith("stock: ") for answer in others.values())
    assert all(hasattr(tf.raw_ops, name) for name in status)
    assert ("raggrad.tf", "works") in doctor_doors.rows()


@pytest.mark.parametrize("operator", operators())
def test_kernels_have_every_type_that_tensorflows_have(operator: str) -> None:
    """Except resources and variants, which are handles and not data."""
    from tensorflow.python.framework import kernels

    types: dict[int, set[str]] = {0: set(), 1: set()}
    for kernel in kernels.get_registered_kernels_for_op(operator).kernel:
        if kernel.device_type == "CPU":
            types[kernel.priority] |= {
                tf.as_dtype(number).name
                for constraint in kernel.constraint if constraint.name == "T"
                for number in constraint.allowed_values.list.type
            }  # fmt: skip
    assert types[1] == types[0] - {"resource", "variant"}


def test_types_without_a_kernel_stay_with_tensorflow() -> None:
    with pytest.raises(tf.errors.NotFoundError):
        tf.raw_ops.SparseFillEmptyRows(
            indices=tf.zeros([1, 1], tf.int64), values=tf.bitcast(tf.zeros([1], tf.int8), tf.qint8),
            dense_shape=tf.ones([1], tf.int64), default_value=tf.bitcast(tf.zeros([], tf.int8), tf.qint8),
        )  # fmt: skip
    resources = tf.raw_ops.SparseSlice(
        indices=tf.zeros([1, 1], tf.int64), values=tf.stack([tf.Variable(1.0).handle]), shape=tf.ones([1], tf.int64),
        start=tf.zeros([1], tf.int64), size=tf.ones([1], tf.int64),
    )  # fmt: skip
    assert resources.output_values.shape == [1]


def test_errors_are_tensorflows_with_our_text() -> None:
    before = calls("SparseSegmentMean")
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"SparseSegmentMean: .*indices\[1\] == 9 out of range"):
        tf.sparse.segment_mean(tf.ones([3, 2]), [0, 9], [0, 0])
    with pytest.raises(tf.errors.InvalidArgumentError, match="out of range"):
        tf.function(tf.sparse.segment_mean)(tf.ones([3, 2]), [0, 9], [0, 0])
    assert calls("SparseSegmentMean") == before + 2


def test_a_tensorflow_without_the_modules_that_tell_is_served() -> None:
    program = """
import sys, warnings
import tensorflow as tf
tf.sparse.segment_sum(tf.ones([3, 2]), [0, 1], [0, 0])
sys.modules["tensorflow.python.eager.context"] = None
del sys.modules["tensorflow.python.eager"].context
import raggrad.tf
with warnings.catch_warnings():
    warnings.simplefilter("error")
    raggrad.tf.install()
print(raggrad.tf.status()["SparseSegmentMean"])
"""
    assert run(program).splitlines()[-1] == "raggrad"


ANOTHER = """
import sys, types
sys.modules["tensorflow"] = {tensorflow}
try:
    import raggrad.tf
except ImportError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("tensorflow", "reason"),
    [
        ("None", "no TensorFlow can be imported"),
        ("types.SimpleNamespace(__version__='2.19.1')", "this is TensorFlow 2.19.1"),
    ],
)
def test_a_tensorflow_that_is_missing_or_too_old_is_one_line(tensorflow: str, reason: str) -> None:
    printed = run_anew(ANOTHER.format(tensorflow=tensorflow))
    assert printed == f"raggrad.tf needs TensorFlow 2.20 or newer, and {reason}\n"
