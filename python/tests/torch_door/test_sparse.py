"""index_add, coalesce, fill_empty_rows and sparse_slice: values and gradients."""

from __future__ import annotations

from typing import Any

import pytest

from .door import FLOATS, random_bags, rt, tolerance, torch

PLACES = torch.tensor([[3, 0, 3, 3, 1], [1, 2, 1, 0, 2]])
SHAPE = (5, 4)


def leaf(*shape: int, dtype: Any = torch.float64, seed: int = 1) -> Any:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()


def coo(values: Any, places: Any = PLACES, shape: tuple[int, ...] = SHAPE) -> Any:
    return torch.sparse_coo_tensor(places, values, (*shape, *values.shape[1:]), check_invariants=True)


def check_gradients(ours: Any, theirs: Any, *leaves: Any) -> None:
    torch.testing.assert_close(ours, theirs, **tolerance(ours.dtype))
    upstream = leaf(*ours.shape, dtype=ours.dtype, seed=9).detach()

    def gradients(output: Any) -> tuple[Any, ...]:
        return torch.autograd.grad(output, leaves, upstream, retain_graph=True)

    for mine, wanted in zip(gradients(ours), gradients(theirs), strict=True):
        torch.testing.assert_close(mine, wanted, **tolerance(mine.dtype))


@pytest.mark.parametrize("alpha", [1.0, -0.5])
@pytest.mark.parametrize("ids", [torch.int32, torch.int64])
@pytest.mark.parametrize("dtype", FLOATS)
def test_index_add(dtype: Any, ids: Any, alpha: float) -> None:
    index = random_bags(ids, bags=20, rows=9).ids[:30]
    table, source = leaf(9, 5, dtype=dtype), leaf(30, 5, dtype=dtype, seed=2)
    before = table.detach().clone()
    ours = rt.index_add(table, 0, index, source, alpha=alpha)
    exact = torch.index_add(table.double(), 0, index, source.double(), alpha=alpha)
    torch.testing.assert_close(ours, exact.to(dtype), **tolerance(dtype))
    upstream = leaf(9, 5, dtype=dtype, seed=9).detach()
    for mine, wanted in zip(
        torch.autograd.grad(ours, (table, source), upstream),
        torch.autograd.grad(exact, (table, source), upstream.double()),
        strict=True,
    ):
        torch.testing.assert_close(mine, wanted.to(dtype), **tolerance(dtype))
    assert torch.equal(table, before)


@pytest.mark.parametrize("dim", [1, -1, 2])
def test_index_add_along_other_dimensions(dim: int) -> None:
    index = torch.tensor([1, 0, 1, 2])
    shape = [3, 4, 5]
    shape[dim] = 4
    table, source = leaf(3, 4, 5), leaf(*shape, seed=2)
    check_gradients(rt.index_add(table, dim, index, source), torch.index_add(table, dim, index, source), table, source)


def test_index_add_of_numbers_and_of_nothing() -> None:
    table = torch.zeros(4)
    assert rt.index_add(table, 0, torch.tensor([3, 3]), torch.tensor([1.0, 2.0])).tolist() == [0, 0, 0, 3]
    assert rt.index_add(table, 0, torch.tensor([], dtype=torch.int64), table[:0]).tolist() == [0, 0, 0, 0]
    strided = torch.arange(12.0).reshape(3, 4).t()
    assert torch.equal(rt.index_add(strided, 0, torch.tensor([1]), torch.ones(1, 3)),
                       torch.index_add(strided, 0, torch.tensor([1]), torch.ones(1, 3)))  # fmt: skip


def test_index_add_of_one_place() -> None:
    """Torch takes an index without dimensions, and an input without dimensions."""
    table, source = leaf(4, 2), leaf(1, 2, seed=2)
    for index in (torch.tensor(3), torch.tensor([3])):
        check_gradients(rt.index_add(table, 0, index, source), torch.index_add(table, 0, index, source), table, source)
        across = leaf(4, 1, seed=2)
        assert torch.equal(rt.index_add(table, 1, index // 3, across), torch.index_add(table, 1, index // 3, across))
    number, other = leaf(), leaf(seed=2)
    place = torch.tensor([0])
    check_gradients(rt.index_add(number, 0, place, other), torch.index_add(number, 0, place, other), number, other)


def test_index_add_along_the_first_dimension_unless_told() -> None:
    table, source, index = leaf(4, 2), leaf(3, 2, seed=2), torch.tensor([3, 0, 3])
    assert torch.equal(rt.index_add(table, index=index, source=source), rt.index_add(table, 0, index, source))
    with pytest.raises(TypeError, match=r"raggrad.torch.index_add: index, source: expected tensors, got None"):
        rt.index_add(table, 0, index)


@pytest.mark.parametrize(
    "dtype", [torch.int8, torch.int32, torch.int64, torch.uint8, torch.complex64, torch.complex128]
)
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_index_add_of_numbers_that_are_no_floats(dtype: Any, dim: int) -> None:
    table, source = (leaf(6, 6, seed=seed).detach().mul(20).to(dtype) for seed in (1, 2))
    if dtype.is_complex:
        table, source = table * (1 + 2j), source * (3 - 1j)
    index = torch.tensor([5, 0, 5, 5, 2, 0])
    torch.testing.assert_close(
        rt.index_add(table, dim, index, source, alpha=3), torch.index_add(table, dim, index, source, alpha=3)
    )
    torch.testing.assert_close(rt.index_add(table[0, 0], 0, torch.tensor(0), source[0, 0]), table[0, 0] + source[0, 0])
    if not dtype.is_complex:
        with pytest.raises(ValueError, match=r"index_add: index: expected 0 to 5, got 6"):
            rt.index_add(table, dim, index + 1, source)


def test_gradients_of_complex_numbers() -> None:
    table, source = (torch.complex(leaf(4, 3, seed=seed), leaf(4, 3, seed=9)).detach() for seed in (1, 2))
    operands = table.requires_grad_(), source.requires_grad_()
    index = torch.tensor([2, 0, 2])
    assert torch.autograd.gradcheck(lambda t, x: rt.index_add(t, 1, index, x, alpha=0.5), operands)
    place = torch.tensor([[2, 0, 2, 1]])
    assert torch.autograd.gradcheck(
        lambda x: rt.coalesce(torch.sparse_coo_tensor(place, x, (3, 3))).to_dense(), operands[1:]
    )


@pytest.mark.parametrize("dtype", [torch.int32, torch.bool, torch.complex64])
def test_coalesce_of_numbers_that_are_no_floats(dtype: Any) -> None:
    values = torch.tensor([[1, 2], [0, 1], [1, 0]]).to(dtype)
    coo = torch.sparse_coo_tensor(torch.tensor([[2, 0, 2], [1, 1, 1]]), values, (3, 4, 2))
    ours, theirs = rt.coalesce(coo), coo.coalesce()
    assert ours.is_coalesced()
    assert torch.equal(ours.indices(), theirs.indices())
    assert torch.equal(ours.values(), theirs.values())


def test_index_add_has_the_same_bits_with_any_number_of_threads(threads: None) -> None:
    index, source = random_bags(bags=30_000, rows=50).ids, torch.randn(80_000, 16)
    results = []
    for count in (1, 2, 7):
        torch.set_num_threads(count)
        results.append(rt.index_add(torch.zeros(50, 16), 0, index, source[: len(index)]))
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


@pytest.mark.parametrize("inner", [(), (3,)], ids=["numbers", "rows"])
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("sparse_dims", [1, 2])
def test_coalesce(sparse_dims: int, dtype: Any, inner: tuple[int, ...]) -> None:
    values = leaf(5, *inner, dtype=dtype)
    tensor = coo(values, PLACES[:sparse_dims], SHAPE[:sparse_dims])
    ours, theirs = rt.coalesce(tensor), tensor.coalesce()
    assert ours.is_coalesced()
    assert torch.equal(ours.indices(), theirs.indices())
    check_gradients(ours.values(), theirs.values(), values)


def test_coalesce_of_one_place_without_dimensions() -> None:
    for count in (0, 3):
        values = leaf(count)
        tensor = torch.sparse_coo_tensor(torch.empty(0, count, dtype=torch.int64), values, ())
        ours, theirs = rt.coalesce(tensor), tensor.coalesce()
        assert ours.indices().shape == theirs.indices().shape
        check_gradients(ours.values(), theirs.values(), values)


def test_coalesced_tensors_are_returned_as_they_are() -> None:
    tensor = coo(leaf(5)).coalesce()
    assert rt.coalesce(tensor) is tensor
    empty = torch.sparse_coo_tensor(torch.empty(2, 0, dtype=torch.int64), torch.empty(0), SHAPE)
    assert rt.coalesce(empty)._nnz() == 0


def test_fill_empty_rows() -> None:
    values, default = leaf(5), torch.tensor(2.5, dtype=torch.float64, requires_grad=True)
    filled, empty = rt.fill_empty_rows(coo(values), default)
    assert filled.is_coalesced()
    assert empty.tolist() == [False, False, True, False, True]
    mask = torch.zeros(SHAPE, dtype=torch.float64)
    mask[empty, 0] = 1
    wanted = coo(values).to_dense() + mask * default
    check_gradients(filled.to_dense(), wanted, values, default)
    by_values = filled.values() * torch.arange(1.0, 1 + filled._nnz(), dtype=torch.float64)
    assert torch.autograd.grad(by_values.sum(), default)[0] == 3 + 6  # places of the default in 0 1 (2) 3 3 (4)
    assert torch.equal(rt.fill_empty_rows(coo(values), 2.5)[0].to_dense(), filled.to_dense())


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.bool], ids=str)
def test_entries_that_are_no_floats(dtype: Any) -> None:
    coo = torch.sparse_coo_tensor(torch.tensor([[0, 2, 2], [1, 0, 0]]), torch.ones(3).to(dtype), (4, 3))
    dense = coo.to_dense()
    assert torch.equal(rt.sparse_slice(coo, [1, 0], [2, 2]).to_dense(), dense[1:3, :2])
    dense[[1, 3], 0] = 1
    assert torch.equal(rt.fill_empty_rows(coo, 1)[0].to_dense(), dense)


BOXES = [((0, 0), SHAPE), ((1, 0), (3, 2)), ((3, 1), (9, 9)), ((5, 4), (1, 1)), ((0, 0), (0, 2))]


@pytest.mark.parametrize("box", BOXES)
def test_sparse_slice(box: tuple[tuple[int, int], tuple[int, int]]) -> None:
    (row, column), (rows, columns) = box
    values = leaf(5)
    ours = rt.sparse_slice(coo(values), [row, column], torch.tensor([rows, columns]))
    assert ours.is_coalesced()
    wanted = coo(values).to_dense()[row : row + rows, column : column + columns]
    check_gradients(ours.to_dense(), wanted, values)


def test_second_derivatives() -> None:
    places = torch.tensor([[0, 1], [2, 0], [2, 3]])
    sums = torch.ops.raggrad
    values, default, table = leaf(3), leaf(), leaf(4, 2)
    calls: list[tuple[Any, ...]] = [
        (lambda v, d: sums.fill_empty_rows(v, d, places, [4, 4])[0], values, default),
        (lambda v: sums.sparse_slice(v, places, [4, 4], [1, 0], [3, 2])[0], values),
        (lambda t, s: rt.index_add(t, 0, torch.tensor([3, 0, 3]), s, alpha=2), table, leaf(3, 2, seed=3)),
    ]
    for call, *leaves in calls:
        assert torch.autograd.gradcheck(call, leaves)
        assert torch.autograd.gradgradcheck(call, leaves)


def test_functions_on_sparse_tensors_in_torch_func() -> None:
    places = torch.tensor([[0, 0, 2], [1, 1, 0]])

    def loss(values: Any) -> Any:
        coo = torch.sparse_coo_tensor(places, values, (4, 3))
        filled, _ = rt.fill_empty_rows(coo, 2.0)
        return (filled.to_dense() + rt.coalesce(coo).to_dense()).sin().sum() + rt.sparse_slice(
            coo, [0, 0], [3, 1]
        ).to_dense().cos().sum()

    values = leaf(3)
    torch.testing.assert_close(torch.func.grad(loss)(values.detach()), torch.autograd.grad(loss(values), values)[0])


def test_compiled_code_calls_functions_on_sparse_tensors_between_its_graphs() -> None:
    coo = torch.sparse_coo_tensor(torch.tensor([[0, 0, 2], [1, 1, 0]]), leaf(3).detach(), (4, 3))
    for function in (
        lambda coo: rt.coalesce(coo).values() * 2,
        lambda coo: rt.fill_empty_rows(coo, 2.0)[0].values() * 2,
        lambda coo: rt.sparse_slice(coo, [0, 0], [3, 1]).values() * 2,
    ):
        torch._dynamo.reset()
        assert torch.equal(torch.compile(function, backend="aot_eager")(coo), function(coo))


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_transforms_of_index_add() -> None:
    table, source, index = leaf(4, 2).detach(), leaf(3, 2, seed=3).detach(), torch.tensor([3, 0, 3])
    wanted = torch.func.jacrev(torch.index_add, (0, 3))(table, 0, index, source)
    for transform in (torch.func.jacrev, torch.func.jacfwd):
        torch.testing.assert_close(transform(rt.index_add, (0, 3))(table, 0, index, source), wanted)
    torch.testing.assert_close(torch.func.jacfwd(rt.index_add, 3)(table, 0, index, source), wanted[1])
