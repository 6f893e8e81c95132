"""The code for arrays on a GPU, run with arrays in host memory: torch and JAX compute with ids and weights.

gpu/ has the tests that need a GPU.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import raggrad
from conftest import same_bits
from device_calls import CALLS, IN_PLACE, INDICES, ROUNDED, SPLITS, TABLE, UNSORTED, WEIGHTS, flat, is_array
from device_errors import BAD_IDS
from raggrad import IndexedSlices, Ragged, _arrays, ops, optimizers
from raggrad.errors import InvalidArgumentError

FRAMEWORKS = {"torch": "Tensor", "jax": "Array"}


class Pretended:
    """Arrays of a framework in host memory that raggrad takes for arrays on a GPU."""

    def __init__(self, name: str) -> None:
        self.module = pytest.importorskip(name)
        self.kind = getattr(self.module, FRAMEWORKS[name])
        self.name = name

    def put(self, array: np.ndarray) -> Any:
        if self.name == "torch":
            return self.module.from_dlpack(raggrad.Tensor(np.array(array)))
        return self.module.numpy.asarray(array)

    def device_of(self, array: Any) -> str:
        return "cuda:0" if isinstance(array, self.kind) else _arrays.HOST


@pytest.fixture(params=FRAMEWORKS)
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Pretended:
    pretended = Pretended(request.param)
    if request.param == "jax":
        x64 = pretended.module.config.jax_enable_x64
        pretended.module.config.update("jax_enable_x64", True)
        request.addfinalizer(lambda: pretended.module.config.update("jax_enable_x64", x64))
    monkeypatch.setattr(_arrays, "device_of", pretended.device_of)
    return pretended


def numpy(item: Any) -> Any:
    return raggrad.Tensor(item).numpy() if is_array(item) else item


def check_same(name: str, got: Any, want: Any) -> None:
    got, want = flat(got), flat(want)
    assert list(got) == list(want)
    for place, expected in want.items():
        found = numpy(got[place])
        if is_array(expected) and name in ROUNDED:
            np.testing.assert_allclose(found, expected, rtol=1e-6, err_msg=place)
        elif is_array(expected):
            index = place.endswith("indices") and found.dtype.kind == "i"  # int32 or int64
            assert same_bits(found.astype(expected.dtype) if index else found, expected), f"{name}: {place}"
        else:
            assert found == expected, f"{name}: {place}"


@pytest.mark.parametrize("name", CALLS)
def test_calls(device: Pretended, name: str) -> None:
    check_same(name, CALLS[name](device.put), CALLS[name](np.array))


@pytest.mark.parametrize("name", IN_PLACE)
def test_in_place(device: Pretended, name: str) -> None:
    if device.name == "jax":
        with pytest.raises(InvalidArgumentError, match="changed in place"):
            IN_PLACE[name](device.put)
        return
    check_same(name, IN_PLACE[name](device.put), IN_PLACE[name](np.array))


@pytest.mark.parametrize("name", CALLS)
def test_results_have_the_kind_of_the_operands(device: Pretended, name: str) -> None:
    for place, item in flat(CALLS[name](device.put)).items():
        if is_array(item) and ".splits" not in place:
            assert isinstance(item, device.kind), place


def test_states_are_made_by_the_framework(device: Pretended) -> None:
    for dtype, wide in (("float16", "float32"), ("float64", "float64")):
        table = device.put(TABLE.astype(dtype))
        state = optimizers.Adagrad.for_table(table, 0.1, initial_accumulator=0.25).accumulator
        assert isinstance(state, device.kind)
        assert same_bits(numpy(state), np.full(TABLE.shape, 0.25, wide))


@pytest.mark.parametrize("name", BAD_IDS)
def test_errors_have_the_words_of_host_memory(device: Pretended, name: str) -> None:
    with pytest.raises(InvalidArgumentError) as expected:
        BAD_IDS[name](np.array)
    with pytest.raises(InvalidArgumentError, match=f"^{re.escape(str(expected.value))}$"):
        BAD_IDS[name](device.put)


def test_splits_on_the_device(device: Pretended) -> None:
    want = ops.embedding_lookup_sparse(TABLE, Ragged([SPLITS], INDICES))
    ids = Ragged([device.put(SPLITS)], device.put(INDICES))
    assert same_bits(numpy(ops.embedding_lookup_sparse(device.put(TABLE), ids)), want)
    weighted = ops.embedding_lookup_sparse(device.put(TABLE), ids, Ragged([SPLITS], device.put(WEIGHTS)))
    want = ops.embedding_lookup_sparse(TABLE, Ragged([SPLITS], INDICES), WEIGHTS)
    assert same_bits(numpy(weighted), want)


def elsewhere(name: str, first: str, got: str) -> str:
    there = "cuda:0" if got == _arrays.HOST else _arrays.HOST
    return re.escape(f"operands are on different devices [{name}: expected that of {first} ({there}), got {got}]")


def test_operands_on_different_devices(device: Pretended) -> None:
    there, ids = device.put(TABLE), Ragged([SPLITS], device.put(INDICES))
    host = _arrays.HOST
    for text, call in [
        (elsewhere("segment_ids", "data", host), lambda: ops.segment_sum(device.put(TABLE), UNSORTED)),
        (elsewhere("segment_ids", "data", host), lambda: ops.segment_sum(device.put(TABLE), UNSORTED.tolist())),
        (elsewhere("segment_ids", "data", "cuda:0"), lambda: ops.segment_sum(TABLE, device.put(UNSORTED))),
        (elsewhere("segment_ids", "grad", host), lambda: ops.segment_mean_grad(device.put(TABLE), UNSORTED)),
        (elsewhere("ids", "params", host), lambda: ops.embedding_lookup_sparse(device.put(TABLE), [[1], [2, 3]])),
        (elsewhere("ids", "params", "cuda:0"), lambda: ops.embedding_lookup_sparse(TABLE, ids)),
        (elsewhere("weights", "ids", host), lambda: ops.embedding_lookup_sparse(device.put(TABLE), ids, WEIGHTS)),
        (elsewhere("params[1]", "params[0]", host), lambda: ops.embedding_lookup_sparse([there, TABLE], ids)),
        (elsewhere("grad", "params", host), lambda: ops.embedding_lookup_sparse_grad(TABLE[:5], there, ids)),
    ]:
        with pytest.raises(InvalidArgumentError, match=text):
            call()


def test_conversions_that_need_host_memory_say_so(device: Pretended) -> None:
    ragged = Ragged([SPLITS], device.put(WEIGHTS))
    slices = IndexedSlices(device.put(TABLE), device.put(UNSORTED), (11, 3))
    pytest.importorskip("scipy")
    for function, call in [
        ("Ragged.to_lists", ragged.to_lists),
        ("Ragged.to_scipy", lambda: ragged.to_scipy(INDICES, 11)),
        ("Ragged.__arrow_c_array__", ragged.__arrow_c_array__),
        ("IndexedSlices.to_scipy", slices.to_scipy),
    ]:
        text = f"{function}: an operand is on the wrong device [values: expected host memory, got cuda:0]"
        with pytest.raises(InvalidArgumentError, match=f"^{re.escape(text)}$"):
            call()
    with pytest.raises(InvalidArgumentError, match=r"Ragged: an operand is on the wrong device \[nested_splits\[0\]: "):
        Ragged([device.put(SPLITS)], device.put(WEIGHTS))[0]


def test_repr(device: Pretended) -> None:
    assert repr(Ragged([SPLITS], device.put(WEIGHTS))) == "Ragged(<on cuda:0>, dtype='float32', shape=[5, (None)])"
    assert Ragged([SPLITS], device.put(WEIGHTS))._repr_html_().startswith("<pre>Ragged(&lt;on cuda:0&gt;")


def test_torch_records_nothing(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pretended = Pretended("torch")
    monkeypatch.setattr(_arrays, "device_of", pretended.device_of)
    table, weights = (pretended.put(array).requires_grad_() for array in (TABLE, WEIGHTS))
    ids = Ragged([SPLITS], pretended.put(INDICES))
    with pytest.warns(UserWarning, match="no gradient will flow back"):
        pooled = ops.embedding_lookup_sparse(table, ids, weights)
    assert not pooled.requires_grad
    assert not (IndexedSlices(table, pretended.put(UNSORTED), (11, 3)) * 2).values.requires_grad
    assert torch.is_grad_enabled()


def test_where_arrays_are() -> None:
    for array in (TABLE, [1.0], 2, raggrad.Tensor(TABLE)):
        assert _arrays.device_of(array) == "host memory"

    class OnDevice:
        def __dlpack_device__(self) -> tuple[int, int]:
            return 2, 3

    assert _arrays.device_of(OnDevice()) == "cuda:3"


@pytest.mark.parametrize("name", ["torch", "jax"])
def test_sizes_beyond_the_ids(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bound that int32 does not hold."""
    pretended = Pretended(name)
    monkeypatch.setattr(_arrays, "device_of", pretended.device_of)
    ids = pretended.put(np.int32([1, 2**31 - 1]))
    with _arrays.of(ids) as xp:
        assert numpy(xp.reaches(ids, 2**32)).tolist() == [False, False]
        assert numpy(xp.reaches(ids, 2**31 - 1)).tolist() == [False, True]
