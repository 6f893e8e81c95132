"""Ragged data of other packages in operators and through DLPack; packages that are missing."""

from __future__ import annotations

import doctest
import gc
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from conftest import ROOT, address, same_bits
from raggrad import Ragged, Tensor, raw_ops


def test_dlpack_of_splits_and_values() -> None:
    jnp = pytest.importorskip("jax.numpy")
    ragged = Ragged([np.int32([0, 2, 3])], np.zeros(3, ml_dtypes.bfloat16))
    for part in (ragged.values, ragged.nested_splits[0]):
        shared = jnp.from_dlpack(Tensor(part))
        assert shared.unsafe_buffer_pointer() == address(part) or address(part) % 64  # jax wants aligned memory
        assert same_bits(np.asarray(shared), part)


def test_dlpack_of_arrow_memory_in_torch(pa: Any, torch: Any) -> None:
    ragged = Ragged.from_arrow(pa.array([[1.0, 2.0], [3.0]]))
    for part in (ragged.values, ragged.nested_splits[0]):
        assert torch.from_dlpack(part).data_ptr() == address(part)


def test_operators_take_what_was_shared(pa: Any) -> None:
    ragged = Ragged.from_arrow(pa.array([[[1.0], [2.0, 3.0]], [], [[4.0]]]))
    pieces = raw_ops.RaggedTensorToVariant(
        rt_nested_splits=ragged.nested_splits, rt_dense_values=ragged.values, batched_input=True
    )
    assert [piece.to_lists() for piece in pieces] == ragged.to_lists()


@pytest.mark.parametrize("package", ["torch", "jax", "tensorflow"])
def test_pieces_are_of_the_kind_of_the_values(package: str) -> None:
    framework = pytest.importorskip(package)
    make = {
        "torch": lambda x: framework.tensor(x), "jax": lambda x: framework.numpy.asarray(x),
        "tensorflow": lambda x: framework.constant(x),
    }[package]  # fmt: skip
    values = make(np.float32([1, 2, 3]))
    splits = [make(np.int32([0, 2, 2])), make(np.int32([0, 1, 3]))]
    pieces = raw_ops.RaggedTensorToVariant(rt_nested_splits=splits, rt_dense_values=values, batched_input=True)
    piece = pieces[0]
    assert type(piece.values) is type(values)
    assert type(piece.nested_splits[0]) is type(values)
    del pieces
    gc.collect()
    assert piece.to_lists() == [[1], [2, 3]]
    again = raw_ops.RaggedTensorToVariant(rt_nested_splits=splits, rt_dense_values=values, batched_input=True)
    back = raw_ops.RaggedTensorFromVariant(
        encoded_ragged=again, input_ragged_rank=-1, output_ragged_rank=2, Tvalues="float32", Tsplits="int32"
    )
    assert type(back.output_dense_values) is type(values)
    assert np.asarray(back.output_nested_splits[1]).tolist() == [0, 1, 3]


def test_documentation() -> None:
    for package in ("pyarrow", "awkward"):
        pytest.importorskip(package)
    assert doctest.testfile(str(ROOT / "docs" / "ragged.md"), module_relative=False).failed == 0


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    for module, convert in {
        "awkward": Ragged.from_awkward, "torch": Ragged.from_torch, "tensorflow": Ragged.from_tf,
        "scipy.sparse": Ragged.from_scipy,
    }.items():  # fmt: skip
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(ImportError, match=f"needs the package {module.split('.')[0]}"):
            convert(None)
