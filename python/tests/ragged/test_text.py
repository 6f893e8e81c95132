"""repr and HTML of Ragged and VariantArray."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import raggrad
from raggrad import Ragged, VariantArray

SPLITS = np.array([0, 2, 2, 3])


def test_repr_of_small_ones() -> None:
    assert repr(Ragged([SPLITS], np.float32([1, 2, 3]))) == (
        "Ragged([[1., 2.],\n        [],\n        [3.]], dtype='float32', shape=[3, (None)])"
    )
    nested = Ragged([[0, 1, 1], [0, 2]], np.array([b"a", b"b\0"], object))
    assert repr(nested) == "Ragged([[[b'a', b'b\\x00']],\n        []], dtype='string', shape=[2, (None), (None)])"
    assert repr(Ragged([[0, 1]], [7])) == "Ragged([[7]], shape=[1, (None)])"
    assert repr(Ragged([], raggrad.Tensor([1, 2], "qint8"))) == "Ragged([1, 2], dtype='qint8', shape=[2])"
    assert "bfloat16" in repr(Ragged([], np.zeros(2, ml_dtypes.bfloat16)))
    assert repr(Ragged([], 2.5)) == "Ragged(2.5, shape=[])"


def test_repr_of_large_ones_is_short() -> None:
    splits = np.arange(0, 100_001, 10)
    vectors = repr(Ragged([splits], np.arange(100_000)))
    assert vectors.count("\n") == 6
    assert "...," in vectors
    assert vectors.endswith("dtype='int64', shape=[10000, (None)])")
    matrices = repr(Ragged([splits], np.ones((100_000, 64))))
    assert matrices.count("\n") < 10
    assert matrices.endswith("shape=[10000, (None), 64])")
    deep = repr(Ragged([splits, np.arange(0, 1_000_001, 10), np.arange(1_000_002)], np.ones(1_000_001)))
    assert deep.startswith("Ragged(nested_splits=")  # 100,000 rows, but the level above has 100,001
    assert len(deep) < 300


def test_repr_of_what_is_no_ragged_tensor() -> None:
    class Nothing:
        pass

    assert repr(Ragged([[0, 5]], [1.0])) == "Ragged(nested_splits=[[0, 5]], values=[1.])"
    assert "Nothing" in repr(Ragged([Nothing()], Nothing()))
    assert "nested_splits" in repr(Ragged([[[0, 1]]], [1.0]))


def test_repr_of_variant_arrays() -> None:
    one = Ragged([], np.float32([1]))
    assert repr(VariantArray([one, None])) == (
        "VariantArray([\n    Ragged([1.], dtype='float32', shape=[1]),\n    None,\n], shape=(2,))"
    )
    assert repr(VariantArray(None)) == "VariantArray(None, shape=())"
    assert repr(VariantArray([])) == "VariantArray([], shape=(0,))"
    assert "    ... 94 more ...\n" in repr(VariantArray([None] * 100))


def test_html() -> None:
    html = Ragged.from_lists([[b"<b>"], []])._repr_html_()
    assert "&lt;b&gt;" in html
    assert "<b>" not in html
    assert html.count("<tr>") == 2
    assert "shape=[2, (None)]" in html
    long = Ragged([np.arange(1001)], np.arange(1000))._repr_html_()
    assert long.count("<tr>") == 7
    assert "<th>999</th>" in long
    assert len(long) < 3000
    for odd in (Ragged([], 2.5), Ragged([[0, 5]], [1.0]), Ragged([], np.zeros((2, 2)))):
        assert odd._repr_html_().endswith(("</pre>", "</table>"))
