"""Arrays that torch or TensorFlow record: a warning where gradients get lost, and torch's count of changes."""

from __future__ import annotations

import gc
import warnings
import weakref
from typing import Any

import numpy as np
import pytest
from raggrad import IndexedSlices, Tensor, _recorded, errors, ops, optimizers, raw_ops

TABLE = np.arange(8, dtype=np.float32).reshape(4, 2)
IDS = [[1, 2], [3]]
WEIGHTS = np.float32([1, 2, 3])


@pytest.fixture(autouse=True)
def warn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_recorded, "_warned", set())


def forwards(table: Any) -> list[tuple[Any, str]]:
    """Calls that lose gradients, and how their warning begins."""
    return [
        (lambda: ops.segment_sum(table, [0] * table.shape[0]), "segment_sum: data"),
        (lambda: ops.segment_sum_grad(table, [0, 1]), "segment_sum_grad: grad"),
        (lambda: ops.sparse_segment_sum(table, [0, 1], [0, 0]), "sparse_segment_sum: data"),
        (lambda: ops.embedding_lookup_sparse(table, IDS), "embedding_lookup_sparse: params"),
        (lambda: ops.embedding_lookup_sparse(table, IDS, WEIGHTS), "embedding_lookup_sparse: params"),
        (lambda: ops.embedding_lookup_sparse([table, table], IDS), "embedding_lookup_sparse: params"),
        (lambda: ops.embedding_lookup_sparse(TABLE, IDS, table[1:, 0]), "embedding_lookup_sparse: weights"),
        (lambda: raw_ops.SparseSegmentMean(data=table, indices=[0], segment_ids=[0]), "SparseSegmentMean: data"),
        (lambda: ops.embedding_lookup_sparse_grad(table[:2], TABLE, IDS), "embedding_lookup_sparse_grad: grad"),
    ]


def expect_one_warning(call: Any, text: str, framework: str) -> None:
    _recorded._warned.clear()
    with pytest.warns(UserWarning, match=f"^{text} is recorded by {framework}.*no gradient will flow back") as caught:
        call()
        call()
    assert len(caught) == 1
    assert caught[0].filename == __file__


def test_torch_parameters_warn_once() -> None:
    torch = pytest.importorskip("torch")
    for table in (torch.nn.Parameter(torch.tensor(TABLE)), torch.tensor(TABLE, requires_grad=True) * 1):
        for call, text in forwards(table):
            expect_one_warning(call, text, "torch")


def test_torch_without_recording_does_not_warn(torch: Any) -> None:
    parameter = torch.nn.Parameter(torch.tensor(TABLE))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for call, _ in forwards(parameter.detach()):
            call()
        with torch.no_grad():
            for call, _ in forwards(parameter):
                call()
        # No gradient is expected for the table of a gradient, nor for a table that is changed in place.
        grad = ops.embedding_lookup_sparse_grad(TABLE[:2], parameter, IDS, WEIGHTS)
        grad.params.apply_(parameter, optimizers.SGD(0.1))
        optimizers.Adagrad.for_table(parameter, 0.1)
        Tensor(parameter)


def test_tensorflow_tapes_warn_once(tf: Any) -> None:
    constant, variable = tf.constant(TABLE), tf.Variable(TABLE)
    for table in (constant, variable):
        for call, text in forwards(table):
            with tf.GradientTape() as tape:
                tape.watch(constant)
                expect_one_warning(call, text, "a tf.GradientTape")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for table in (constant, variable):
            for call, _ in forwards(table):
                call()
                with tf.GradientTape():
                    forwards(constant)[0][0]()


def test_jax_tracers_are_refused_by_lookups() -> None:
    jax = pytest.importorskip("jax")
    with pytest.raises(errors.InvalidArgumentError, match=r"^embedding_lookup_sparse: cannot read params"):
        jax.grad(lambda t: ops.embedding_lookup_sparse(t, IDS).sum())(jax.numpy.asarray(TABLE))


def updates(table: Any) -> list[Any]:
    slices = IndexedSlices(TABLE[:1], [1], TABLE.shape)
    grad = TABLE[:1]
    return [
        lambda: slices.apply_(table, optimizers.SGD(0.1)),
        lambda: ops.sparse_segment_sum_grad_apply_(table, grad, [1], [0], optimizer=optimizers.SGD(0.1)),
    ]


def test_torch_refuses_a_graph_that_read_the_table_before(torch: Any) -> None:
    for which in range(2):
        table = torch.nn.Parameter(torch.tensor(TABLE))
        loss = (table * table).sum()
        version = table._version
        updates(table)[which]()
        assert table._version == version + 1
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()


def test_torch_states_are_counted_and_failed_steps_are_not(torch: Any) -> None:
    table, accumulator = torch.tensor(TABLE), torch.ones(4, 2)
    IndexedSlices(TABLE[:1], [1], (4, 2)).apply_(table, optimizers.Adagrad(0.1, accumulator))
    assert (table._version, accumulator._version) == (1, 1)
    with pytest.raises(errors.InvalidArgumentError):
        IndexedSlices(TABLE[:1], [7], (4, 2)).apply_(table, optimizers.Adagrad(0.1, accumulator))
    assert (table._version, accumulator._version) == (1, 1)
    with torch.inference_mode():
        uncounted = torch.tensor(TABLE)
    for update in updates(uncounted):
        update()
    assert uncounted[1].tolist() != TABLE[1].tolist()


def test_torch_subclasses_come_back_as_torch(torch: Any) -> None:
    class Mine(torch.Tensor):
        pass

    class Module(torch.nn.Parameter):
        pass

    for table in (torch.tensor(TABLE).as_subclass(Mine), Module(torch.tensor(TABLE), requires_grad=False)):
        assert isinstance(ops.sparse_segment_sum(table, [1], [0]), torch.Tensor)
        assert isinstance(ops.embedding_lookup_sparse(table, IDS, WEIGHTS), torch.Tensor)
        grad = ops.embedding_lookup_sparse_grad(TABLE[:2], table, IDS, WEIGHTS)
        assert isinstance(grad.params.values, torch.Tensor)
        version = table._version
        for update in updates(table):
            update()
        assert table._version == version + 2


def test_kinds_do_not_keep_types_alive() -> None:
    class Base:
        def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
            return TABLE

    gone = []
    for i in range(100):
        kind = type(f"Kind{i}", (Base,), {})
        assert isinstance(ops.sparse_segment_sum(kind(), [1], [0]), np.ndarray)
        gone.append(weakref.ref(kind))
        del kind
    gc.collect()
    assert not [reference for reference in gone if reference() is not None]
