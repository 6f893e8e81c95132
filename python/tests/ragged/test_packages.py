"""Ragged data from and to awkward, torch, TensorFlow and SciPy: values, and addresses that show what is shared."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conftest import FLOATS, INTEGERS, address, same_bits, values_of
from raggrad import Ragged, Tensor
from raggrad.errors import InvalidArgumentError


@pytest.mark.parametrize("splits_dtype", [np.int32, np.int64])
@pytest.mark.parametrize("dtype", [t for t in FLOATS + INTEGERS if t != "bfloat16"] + ["bool", "complex64"])
def test_awkward_is_shared_both_ways(ak: Any, dtype: str, splits_dtype: Any) -> None:
    ragged = Ragged([np.array([0, 2, 2, 6], splits_dtype)], values_of(dtype, 6))
    array = ragged.to_awkward()
    assert array.tolist() == ragged.to_lists()
    assert address(array.layout.content.data) == address(ragged.values)
    back = Ragged.from_awkward(array)
    assert same_bits(back.values, ragged.values)
    assert same_bits(back.nested_splits[0], ragged.nested_splits[0])
    assert address(back.values) == address(ragged.values)
    assert address(back.nested_splits[0]) == address(ragged.nested_splits[0])


def test_awkward_levels_slices_and_layouts(ak: Any) -> None:
    rows = [[[1, 2], []], [], [[3]], [[4, 5, 6]]]
    array = ak.Array(rows)
    assert Ragged.from_awkward(array).to_lists() == rows
    assert Ragged.from_awkward(array[2:]).to_lists() == rows[2:]
    assert Ragged.from_awkward(array[[3, 0]]).to_lists() == [rows[3], rows[0]]
    assert Ragged.from_awkward(array[::2]).to_lists() == rows[::2]
    assert Ragged.from_awkward(array[:, ::-1]).to_lists() == [row[::-1] for row in rows]
    assert Ragged.from_awkward(ak.Array([[], []])).to_lists() == [[], []]
    assert Ragged.from_awkward(ak.Array([])).shape == (0,)
    assert Ragged.from_awkward(ak.unflatten(np.zeros((5, 2)), [2, 3])).shape == (2, None, 2)
    regular = ak.to_regular(ak.Array([[[1], [2, 3]], [[], [4]]]), axis=1)
    assert Ragged.from_awkward(regular).to_lists() == [[[1], [2, 3]], [[], [4]]]
    assert Ragged.from_awkward(ak.to_regular(ak.Array([[1, 2], [3, 4]]))).values.tolist() == [[1, 2], [3, 4]]
    assert Ragged.from_awkward(ak.mask(ak.Array([[1], [2]]), [True, True])).to_lists() == [[1], [2]]


def test_awkward_strings(ak: Any) -> None:
    rows = [["a", "bc"], [], ["d\0", ""]]
    expected = [[t.encode() for t in row] for row in rows]
    assert Ragged.from_awkward(ak.Array(rows)).to_lists() == expected
    assert Ragged.from_awkward(ak.Array(rows)[1:]).to_lists() == expected[1:]
    ragged = Ragged.from_lists(rows)
    assert ragged.to_awkward().tolist() == expected
    assert Ragged.from_awkward(ragged.to_awkward()).to_lists() == expected
    assert Ragged.from_lists([[], []], "string").to_awkward().tolist() == [[], []]
    pairs = Ragged([[0, 1, 2]], np.array([[b"a", b"b"], [b"c", b"d"]], object))
    assert pairs.to_awkward().tolist() == [[[b"a", b"b"]], [[b"c", b"d"]]]


def test_awkward_that_cannot_be(ak: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="list 1 is missing"):
        Ragged.from_awkward(ak.Array([[1], None, [2]]))
    with pytest.raises(InvalidArgumentError, match="inner list 2 is missing"):
        Ragged.from_awkward(ak.Array([[1, 2], [None]]))
    with pytest.raises(InvalidArgumentError, match="expected lists of numbers or strings"):
        Ragged.from_awkward(ak.Array([{"x": 1}]))
    with pytest.raises(InvalidArgumentError, match="expected lists of numbers or strings"):
        Ragged.from_awkward(ak.Array([[1], ["a"]]))


@pytest.mark.parametrize("dtype", [*FLOATS, "int64", "uint8"])
def test_torch_jagged_is_shared_both_ways(torch: Any, dtype: str) -> None:
    values = torch.from_dlpack(Tensor(values_of(dtype, 6))).reshape(6, 1)
    offsets = torch.tensor([0, 2, 2, 6])
    ragged = Ragged.from_torch(torch.nested.nested_tensor_from_jagged(values, offsets))
    assert ragged.shape == (3, None, 1)
    assert ragged.values.data_ptr() == values.data_ptr()
    assert ragged.nested_splits[0].data_ptr() == offsets.data_ptr()
    back = ragged.to_torch()
    assert back.values().data_ptr() == values.data_ptr()
    ours = Ragged([np.array([0, 2, 2, 6])], values_of(dtype, 6))
    assert ours.to_torch().values().data_ptr() == address(ours.values)
    assert repr(ragged).endswith("shape=[3, (None), 1])")


def test_torch_layouts(torch: Any) -> None:
    rows = [torch.arange(2.0), torch.arange(0.0), torch.arange(3.0)]
    expected = [row.tolist() for row in rows]
    for layout in (torch.jagged, torch.strided):
        assert Ragged.from_torch(torch.nested.nested_tensor(rows, layout=layout)).to_lists() == expected
    base, starts, lengths = torch.arange(12.0).reshape(3, 4), torch.tensor([0, 1, 2]), torch.tensor([2, 0, 1])
    holes = torch.nested.narrow(base, 1, starts, lengths, layout=torch.jagged)
    assert holes.lengths() is not None
    assert Ragged.from_torch(holes).to_lists() == [[0, 1], [], [10]]


def test_torch_gradients_flow(torch: Any) -> None:
    values = torch.ones(3, requires_grad=True)
    nested = torch.nested.nested_tensor_from_jagged(values, torch.tensor([0, 1, 3]))
    Ragged.from_torch(nested).values.sum().backward()
    assert values.grad.tolist() == [1, 1, 1]


def test_torch_that_cannot_be(torch: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="expected a nested tensor"):
        Ragged.from_torch(torch.zeros(3))
    with pytest.raises(InvalidArgumentError, match="expected one level of splits"):
        Ragged([[0, 1], [0, 1]], [1.0]).to_torch()
    transposed = torch.nested.nested_tensor([torch.zeros(2, 3), torch.zeros(1, 3)], layout=torch.jagged).transpose(1, 2)
    with pytest.raises(InvalidArgumentError, match="ragged dimension"):
        Ragged.from_torch(transposed)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "half", "int8", "string", "bool", "complex64"])
def test_tensorflow(tf: Any, dtype: str) -> None:
    values = values_of(dtype, 3)
    ragged = Ragged([np.array([0, 1, 1]), np.array([0, 3])], values)
    back = ragged.to_tf()
    assert isinstance(back, tf.RaggedTensor)
    assert back.ragged_rank == 2
    again = Ragged.from_tf(back)
    assert again.values is back.flat_values
    assert same_bits(Tensor(again.values).numpy(), values)
    assert again.to_lists() == ragged.to_lists() == back.to_list()
    assert again.to_tf().flat_values is back.flat_values


def test_tensorflow_without_splits_and_quantized(tf: Any) -> None:
    dense = tf.constant([[1, 2]])
    assert Ragged.from_tf(dense).values is dense
    assert Ragged([], np.float32([1])).to_tf().numpy().tolist() == [1]
    assert Ragged([[0, 2]], Tensor([1, 2], "qint8")).to_tf().dtype == tf.qint8
    with pytest.raises(InvalidArgumentError, match=r"expected a tf.RaggedTensor, got list"):
        Ragged.from_tf([[1]])


def test_scipy_csr_is_shared(sparse: Any) -> None:
    matrix = sparse.csr_array(np.float32([[0, 1, 2], [0, 0, 0], [3, 0, 4]]))
    ragged = Ragged.from_scipy(matrix)
    columns = Ragged.from_scipy(matrix, "indices")
    assert ragged.to_lists() == [[1, 2], [], [3, 4]]
    assert columns.to_lists() == [[1, 2], [], [0, 2]]
    assert address(ragged.values) == address(matrix.data)
    assert address(ragged.nested_splits[0]) == address(matrix.indptr)
    assert address(columns.values) == address(matrix.indices)
    back = ragged.to_scipy(columns, 3)
    assert (back.toarray() == matrix.toarray()).all()
    assert address(back.data) == address(matrix.data)
    for other in (matrix.tocsc(), matrix.tocoo(), sparse.csr_matrix(matrix)):
        assert Ragged.from_scipy(other).to_lists() == ragged.to_lists()


def test_scipy_that_cannot_be(sparse: Any) -> None:
    ragged = Ragged([[0, 2]], np.float32([1, 2]))
    with pytest.raises(InvalidArgumentError, match=r"columns: expected shape \(2,\), got \(1,\)"):
        ragged.to_scipy([0], 3)
    with pytest.raises(InvalidArgumentError, match="expected one level of splits over a vector"):
        Ragged([[0, 2]], np.zeros((2, 2))).to_scipy([0, 1], 3)
    with pytest.raises(InvalidArgumentError, match=r"expected a scipy\.sparse matrix, got ndarray"):
        Ragged.from_scipy(np.zeros((2, 2)))
    with pytest.raises(InvalidArgumentError, match="part: expected 'data' or 'indices'"):
        Ragged.from_scipy(sparse.csr_array((2, 2)), "columns")
