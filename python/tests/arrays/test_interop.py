"""torch, JAX and TensorFlow arrays as operands: results are of the same kind, and nothing is copied."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import raggrad
from conftest import FLOATS, NUMBERS, same_bits, values_of
from raggrad import Ragged, Tensor, raw_ops


class Torch:
    def __init__(self) -> None:
        self.torch = pytest.importorskip("torch")
        self.kind = self.torch.Tensor

    def make(self, array: np.ndarray) -> Any:
        return self.torch.from_dlpack(Tensor(array.copy()))

    def numpy(self, array: Any) -> np.ndarray:
        return Tensor(array).numpy()

    def address(self, array: Any) -> int:
        return array.data_ptr()


class Jax(Torch):
    def __init__(self) -> None:
        self.jax = pytest.importorskip("jax")
        self.jax.config.update("jax_enable_x64", True)
        self.kind = self.jax.Array

    def make(self, array: np.ndarray) -> Any:
        return self.jax.numpy.asarray(array)

    def address(self, array: Any) -> int:
        return array.unsafe_buffer_pointer()


class TensorFlow(Torch):
    def __init__(self) -> None:
        self.tf = pytest.importorskip("tensorflow")
        self.kind = self.tf.Tensor

    def make(self, array: np.ndarray) -> Any:
        return self.tf.constant(array)

    def address(self, array: Any) -> int:
        return np.from_dlpack(array).ctypes.data


@pytest.fixture(params=[Torch, Jax, TensorFlow], ids=["torch", "jax", "tensorflow"])
def framework(request: pytest.FixtureRequest) -> Torch:
    return request.param()


@pytest.mark.parametrize("dtype", NUMBERS)
def test_every_number_type(framework: Torch, dtype: str) -> None:
    values = values_of(dtype, 6)
    got = raw_ops.SparseFillEmptyRowsGrad(
        reverse_index_map=framework.make(np.array([4, 0])), grad_values=framework.make(values)
    )
    expected = raw_ops.SparseFillEmptyRowsGrad(reverse_index_map=[4, 0], grad_values=values)
    for mine, numpys in zip(got, expected, strict=True):
        assert isinstance(mine, framework.kind)
        assert same_bits(framework.numpy(mine), numpys)


@pytest.mark.parametrize("dtype", FLOATS)
def test_segment_grads(framework: Torch, dtype: str) -> None:
    grad, indices, segments = values_of(dtype, 8).reshape(2, 4), np.array([3, 1, 3]), np.int32([0, 1, 1])
    expected = raw_ops.SparseSegmentMeanGradV2(grad=grad, indices=indices, segment_ids=segments, dense_output_dim0=4)
    got = raw_ops.SparseSegmentMeanGradV2(
        grad=framework.make(grad),
        indices=framework.make(indices),
        segment_ids=framework.make(segments),
        dense_output_dim0=framework.make(np.int32(4)),
    )
    for mine, numpys in zip(got, expected, strict=True):
        assert isinstance(mine, framework.kind)
        assert same_bits(framework.numpy(mine), numpys)


def test_the_value_input_decides(framework: Torch) -> None:
    values = np.float32([1, 2])
    got = raw_ops.SparseFillEmptyRowsGrad(reverse_index_map=framework.make(np.array([0])), grad_values=values)
    assert isinstance(got.d_values, np.ndarray)
    got = raw_ops.SparseFillEmptyRowsGrad(reverse_index_map=[0], grad_values=framework.make(values))
    assert isinstance(got.d_values, framework.kind)


def test_inputs_are_shared(framework: Torch) -> None:
    array = framework.make(np.arange(64, dtype=np.float32))
    assert Tensor(array).numpy().ctypes.data == framework.address(array)


def test_outputs_are_shared(framework: Torch) -> None:
    out = raw_ops.SparseFillEmptyRowsGrad(
        reverse_index_map=np.arange(64), grad_values=Tensor(np.arange(64, dtype=np.float32))
    ).d_values
    if isinstance(framework, TensorFlow):
        shared = framework.tf.experimental.dlpack.from_dlpack(out.__dlpack__())
    elif isinstance(framework, Jax):
        shared = framework.jax.numpy.from_dlpack(out)
    else:
        shared = framework.torch.from_dlpack(out)
    assert framework.address(shared) == out.numpy().ctypes.data
    del out
    assert framework.numpy(shared).tolist() == list(range(64))


def test_empty_arrays(framework: Torch) -> None:
    got = raw_ops.SparseFillEmptyRowsGrad(
        reverse_index_map=framework.make(np.zeros(0, np.int64)), grad_values=framework.make(np.zeros(0, np.float32))
    )
    assert isinstance(got.d_values, framework.kind)
    assert tuple(got.d_values.shape) == (0,)


def test_wrong_dtypes_are_refused(framework: Torch) -> None:
    with pytest.raises(raggrad.errors.InvalidArgumentError, match=r"reverse_index_map .*int32"):
        raw_ops.SparseFillEmptyRowsGrad(
            reverse_index_map=framework.make(np.int32([0])), grad_values=framework.make(np.float32([1]))
        )


def test_variants_and_dtype_objects(framework: Torch) -> None:
    values = framework.make(np.array([True, False]))
    got = raw_ops.RaggedTensorToVariantGradient(
        encoded_ragged_grad=[None, Ragged([], values)],
        row_splits=[0, 1, 3],
        dense_values_shape=[3],
        Tvalues=values.dtype,
    )
    assert isinstance(got, framework.kind)
    assert framework.numpy(got).tolist() == [False, True, False]


def fill(values: Any) -> Any:
    return raw_ops.SparseFillEmptyRowsGrad(reverse_index_map=[1], grad_values=values)


def test_torch_tensors_in_autograd_are_read_as_detached(torch: Any) -> None:
    leaf = torch.tensor([1.0, 2.0], requires_grad=True)
    for values in (leaf, leaf * 2, torch.nn.Parameter(leaf.detach())):
        with warnings.catch_warnings():  # test_recorded.py tests the warning
            warnings.simplefilter("ignore")
            got = fill(values)
        assert not got.d_values.requires_grad
        assert got.d_values.item() == values[1].item()


def test_torch_lazy_conjugation_and_negation(torch: Any) -> None:
    values = torch.tensor([1 + 2j, 3 + 4j]).conj()
    assert values.is_conj()
    assert fill(values).d_values.item() == 3 - 4j
    assert values.imag.is_neg()
    assert fill(values.imag).d_values.item() == -4


def test_torch_strides(torch: Any) -> None:
    grad = torch.arange(12, dtype=torch.bfloat16).reshape(3, 4)
    call = {"indices": torch.tensor([0, 9, 1])[::2], "segment_ids": [3, 0], "output_dim0": 2}
    got = raw_ops.SparseSegmentSumGrad(grad=grad.t(), **call)
    assert got.tolist() == grad.t()[[3, 0]].tolist()


@pytest.mark.parametrize("make", ["to_sparse", "to_mkldnn"])
def test_torch_layouts_without_memory_of_their_own(torch: Any, make: str) -> None:
    with pytest.raises(raggrad.errors.InvalidArgumentError, match="cannot read grad_values"):
        fill(getattr(torch.ones(3), make)())


def test_torch_meta_tensors(torch: Any) -> None:
    with pytest.raises(raggrad.errors.InvalidArgumentError, match="cannot read grad_values"):
        fill(torch.ones(3, device="meta"))


def test_torch_small_floats_are_refused_by_name(torch: Any) -> None:
    with pytest.raises(raggrad.errors.InvalidArgumentError, match="float8_e4m3fn"):
        fill(torch.ones(3).to(torch.float8_e4m3fn))


def test_torch_outputs_can_be_written(torch: Any) -> None:
    out = fill(torch.ones(2)).d_values
    out.mul_(3)
    assert out.tolist() == [3.0]


def test_jax_tracers_are_refused() -> None:
    jax = pytest.importorskip("jax")
    with pytest.raises(raggrad.errors.InvalidArgumentError, match="cannot read grad_values"):
        jax.jit(lambda x: fill(x).d_values)(jax.numpy.ones(2))


def test_jax_arrays_of_64_bits_are_whole() -> None:
    """Without jax_enable_x64 JAX makes no such arrays itself, but keeps those that it gets."""
    jax = pytest.importorskip("jax")
    x64 = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", False)
    try:
        rows = jax.numpy.ones((2, 3))
        batch = raw_ops.Batch(
            in_tensors=[rows], num_batch_threads=1, max_batch_size=2, batch_timeout_micros=1000, grad_timeout_micros=0
        )
        assert all(isinstance(array, jax.Array) for array in (batch.batch_index, batch.id))
        assert batch.batch_index.dtype == batch.id.dtype == np.int64
        assert batch.id.tolist() == np.asarray(batch.batch_index)[0, 0]
        again = raw_ops.Unbatch(batched_tensor=batch.batched_tensors[0], batch_index=batch.batch_index, id=batch.id)
        assert isinstance(again, jax.Array)
        assert same_bits(np.asarray(again), np.ones((2, 3), np.float32))
        filled = raw_ops.SparseFillEmptyRows(indices=[[1, 0]], values=rows[0, :1], dense_shape=[2, 1], default_value=0)
        grad = raw_ops.SparseFillEmptyRowsGrad(
            reverse_index_map=filled.reverse_index_map, grad_values=filled.output_values
        )
        assert grad.d_values.tolist() == [1.0]
    finally:
        jax.config.update("jax_enable_x64", x64)


def test_tensorflow_strings_and_quantized_types(tf: Any) -> None:
    def joined(values: Any) -> Any:
        return raw_ops.RaggedTensorToVariantGradient(
            encoded_ragged_grad=[Ragged([], values), None],
            row_splits=[0, 2, 3],
            dense_values_shape=[3],
            Tvalues=values.dtype,
        )

    strings = joined(tf.constant([b"a", b"b\0"]))
    assert isinstance(strings, tf.Tensor)
    assert strings.numpy().tolist() == [b"a", b"b\0", b""]
    quantized = joined(tf.quantization.quantize([1.0, 3.0], -3, 3, tf.qint8).output)
    assert isinstance(quantized, Tensor)
    assert quantized.dtype == "qint8"
    assert quantized.numpy()[1] == 127


def test_tensorflow_variables(tf: Any) -> None:
    assert fill(tf.Variable([1.0, 2.0])).d_values.numpy().tolist() == [2.0]


def test_tensorflow_symbolic_tensors_are_refused(tf: Any) -> None:
    seen = []

    @tf.function(autograph=False)
    def graph(x: Any) -> Any:
        with pytest.raises(raggrad.errors.InvalidArgumentError, match="grad_values"):
            fill(x)
        seen.append(x)
        return x

    graph(tf.ones(2))
    assert seen
