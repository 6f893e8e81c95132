"""raggrad.torch on a GPU: the CPU's results, torch's current stream and torch's memory."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest
import raggrad

torch = pytest.importorskip("torch", reason="torch is not installed")
rt = pytest.importorskip("raggrad.torch", reason="raggrad was built without raggrad.torch", exc_type=ImportError)

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no GPU")

ROWS, WIDTH, BAGS = 300, 24, 64
FLOATS = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
MODES = ["sum", "mean", "sqrtn"]
OPTIMIZERS = {
    "SGD": (rt.optim.SparseSGD, torch.optim.SGD),
    "Adagrad": (rt.optim.SparseAdagrad, torch.optim.Adagrad),
    "SparseAdam": (rt.optim.SparseAdam, torch.optim.SparseAdam),
    "RowwiseAdagrad": (rt.optim.RowwiseAdagrad, None),
}
every_optimizer = pytest.mark.parametrize("name", OPTIMIZERS)


def random_bags(ids: Any = torch.int64, seed: int = 0, bags: int = BAGS, rows: int = ROWS) -> tuple[Any, Any]:
    """Bags of 0 to 8 ids; one row of the table is hot."""
    generator = torch.Generator().manual_seed(seed)
    sizes = torch.randint(0, 9, (bags,), generator=generator)
    sizes[0] = sizes[-1] = 0
    numbers = torch.randint(0, rows, (int(sizes.sum()),), generator=generator)
    numbers[torch.rand(len(numbers), generator=generator) < 0.3] = 7
    return numbers.to(ids), (torch.cumsum(sizes, 0) - sizes).to(ids)


def random_table(dtype: Any = torch.float32, rows: int = ROWS, width: int = WIDTH, seed: int = 1) -> Any:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, width, generator=generator, dtype=torch.float64).to(dtype)


def assert_same_bits(one: Any, other: Any) -> None:
    torch.testing.assert_close(one, other, rtol=0, atol=0, check_device=False)


def upstream_like(output: Any) -> Any:
    """A gradient with the same bits on every device, which torch's functions would not give."""
    return torch.linspace(-1, 1, output.numel(), dtype=torch.float64).reshape(output.shape).to(output)


def tolerance(dtype: Any) -> dict[str, float]:
    eps = torch.finfo(dtype).eps
    return {"rtol": 64 * eps, "atol": 64 * eps}


def pooled_and_grad(device: str, table: Any, arguments: tuple[Any, ...], **options: Any) -> tuple[Any, Any]:
    """The pooled rows and the table's gradient, on the host; a sparse gradient as its rows and values."""
    weight = table.to(device).requires_grad_()
    pooled = rt.embedding_bag(arguments[0].to(device), weight, *[a.to(device) for a in arguments[1:]], **options)
    pooled.backward(upstream_like(pooled))
    grad = weight.grad.cpu()
    if grad.is_sparse:
        assert grad.is_coalesced()
        return pooled.detach().cpu(), (grad.indices(), grad.values())
    return pooled.detach().cpu(), grad


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("ids", [torch.int32, torch.int64])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("sparse", [False, True])
def test_bags_have_the_bits_of_the_cpu(dtype: Any, ids: Any, mode: str, sparse: bool) -> None:
    numbers, offsets = random_bags(ids)
    whole = torch.cat([offsets, torch.tensor([len(numbers) - 3], dtype=ids)])
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        ((numbers, offsets), {}),
        ((numbers, offsets), {"padding_idx": 7}),
        ((numbers, whole.clamp(max=len(numbers) - 3)), {"include_last_offset": True}),
        ((numbers[:60].reshape(12, 5),), {}),
        ((numbers[:0], offsets[:0]), {}),
        ((numbers[:0], offsets[:5] * 0), {"padding_idx": 3}),
    ]
    for arguments, options in calls:
        both = [
            pooled_and_grad(
                device, random_table(dtype), arguments, mode=mode, sparse=sparse, accumulation="sequential", **options
            )
            for device in ("cpu", "cuda")
        ]
        assert_same_bits(*both)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("mode", ["sum", "mean"])
@pytest.mark.parametrize("sparse", [False, True])
def test_bags_against_torch_on_the_gpu(dtype: Any, mode: str, sparse: bool) -> None:
    """In the default order, which is not the CPU's. Torch rounds sums of 16-bit types after every addition."""
    numbers, offsets = (tensor.cuda() for tensor in random_bags())
    mine, stock = (random_table(dtype).cuda().requires_grad_() for _ in range(2))
    ours = rt.embedding_bag(numbers, mine, offsets, mode=mode, sparse=sparse)
    theirs = torch.nn.functional.embedding_bag(numbers, stock, offsets, mode=mode, sparse=sparse)
    torch.testing.assert_close(ours, theirs, **tolerance(dtype))
    upstream = torch.linspace(-1, 1, ours.numel(), device="cuda", dtype=dtype).reshape(ours.shape)
    ours.backward(upstream)
    theirs.backward(upstream)
    grads = [weight.grad.to_dense() if sparse else weight.grad for weight in (mine, stock)]
    torch.testing.assert_close(*grads, **tolerance(dtype))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_weights_of_samples(dtype: Any, mode: str) -> None:
    numbers, offsets = random_bags()
    results = []
    for device in ("cpu", "cuda"):
        weight = random_table(dtype).to(device).requires_grad_()
        weights = torch.linspace(-1, 1, len(numbers), dtype=dtype).to(device).requires_grad_()
        arguments = numbers.to(device), weight, offsets.to(device)
        pooled = rt.embedding_bag(
            *arguments, mode=mode, per_sample_weights=weights, padding_idx=7, accumulation="sequential"
        )
        pooled.sum().backward()
        results.append([pooled.detach().cpu(), weight.grad.cpu(), weights.grad.cpu()])
    torch.testing.assert_close(results[0], results[1], **tolerance(dtype))


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("dtype", FLOATS)
def test_embeddings(dtype: Any, sparse: bool) -> None:
    numbers, _ = random_bags()
    grads = []
    for device in ("cpu", "cuda"):
        weight = random_table(dtype).to(device).requires_grad_()
        rows = rt.embedding(
            numbers[:60].reshape(5, 12).to(device), weight, padding_idx=7, sparse=sparse, accumulation="sequential"
        )
        assert_same_bits(rows.detach(), weight.detach()[numbers[:60].reshape(5, 12)])
        rows.backward(upstream_like(rows))
        grads.append(weight.grad.cpu().to_dense())
    assert_same_bits(*grads)


def train(device: str, make: Any, dtype: Any, steps: int = 5, fused: bool = False) -> tuple[Any, Any]:
    bag = rt.EmbeddingBag(ROWS, WIDTH, mode="mean", sparse=True, _weight=random_table(dtype)).to(device)
    optimizer = make(bag.parameters(), lr=0.1, **({"fused": True} if fused else {}))
    for step in range(steps):
        numbers, offsets = random_bags(seed=step)
        optimizer.zero_grad()
        bag(numbers.to(device), offsets.to(device)).tanh().sum().backward()
        assert (bag.weight.grad is None) == fused
        optimizer.step()
    states = [
        {key: value.cpu() if isinstance(value, torch.Tensor) else value for key, value in state.items()}
        for state in optimizer.state_dict()["state"].values()
    ]
    return bag.weight.detach().cpu(), states


@every_optimizer
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("fused", [False, True])
def test_optimizers_have_the_bits_of_the_cpu(name: str, dtype: Any, fused: bool) -> None:
    """The gradient of the pooled rows is given, so that no operator of torch makes it."""
    results = []
    for device in ("cpu", "cuda"):
        bag = rt.EmbeddingBag(ROWS, WIDTH, mode="mean", sparse=True, _weight=random_table(dtype)).to(device)
        optimizer = OPTIMIZERS[name][0](bag.parameters(), lr=0.1, fused=fused)
        for step in range(5):
            numbers, offsets = random_bags(seed=step)
            optimizer.zero_grad()
            with raggrad.accumulation("sequential"):
                pooled = bag(numbers.to(device), offsets.to(device))
                upstream = torch.linspace(-1, 1, pooled.numel(), dtype=torch.float64).reshape(pooled.shape).to(dtype)
                pooled.backward(upstream.to(device))
                optimizer.step()
        results.append(bag.weight.detach().cpu())
    assert not torch.equal(results[0], random_table(dtype))
    assert_same_bits(*results)


@every_optimizer
@pytest.mark.parametrize("dtype", FLOATS)
def test_fused_and_separate_optimizers_agree(name: str, dtype: Any) -> None:
    assert_same_bits(train("cuda", OPTIMIZERS[name][0], dtype, fused=True), train("cuda", OPTIMIZERS[name][0], dtype))


@pytest.mark.parametrize("name", ["SGD", "Adagrad", "SparseAdam"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_optimizers_against_torch(name: str, dtype: Any) -> None:
    ours, theirs = OPTIMIZERS[name]
    mine, _ = train("cuda", ours, dtype, steps=20)
    stock, _ = train("cuda", theirs, dtype, steps=20)
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(mine, stock, rtol=4096 * eps, atol=4096 * eps)


@every_optimizer
@pytest.mark.parametrize("fused", [False, True])
def test_the_same_bits_twice(name: str, fused: bool) -> None:
    first, second = (train("cuda", OPTIMIZERS[name][0], torch.float32, fused=fused) for _ in range(2))
    assert_same_bits(first, second)


@pytest.mark.parametrize("sparse", [False, True])
def test_collections(sparse: bool) -> None:
    tables = {"a": (100, 8), "b": (60, 16), "c": (40, 8)}
    features = {name: random_bags(seed=i, rows=rows) for i, (name, (rows, _)) in enumerate(tables.items())}
    results = []
    torch.manual_seed(0)
    start = rt.EmbeddingBagCollection(tables, sparse=sparse).state_dict()
    for device in ("cpu", "cuda"):
        collection = rt.EmbeddingBagCollection(tables, sparse=sparse, device=device)
        collection.load_state_dict(start)
        with raggrad.accumulation("sequential"):
            pooled = collection({name: (ids.to(device), at.to(device)) for name, (ids, at) in features.items()})
            sum(rows.sum() for rows in pooled.values()).backward()
        results.append(
            [[rows.detach().cpu() for rows in pooled.values()],
             [weight.grad.cpu().to_dense() for weight in collection.parameters()]]
        )  # fmt: skip
    assert_same_bits(*results)
    bad = {name: (ids.cuda(), at.cuda()) for name, (ids, at) in features.items()}
    bad["b"] = torch.full((3, 2), 60, device="cuda")
    with pytest.raises(ValueError, match=r"feature 'b'.*out of range"):
        collection(bad)


CALLS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "segment_sum": lambda data, ids, _: rt.segment_sum(data, ids, 9, accumulation="sequential"),
    "segment_mean": lambda data, ids, _: rt.segment_mean(data, ids, accumulation="sequential"),
    "segment_sqrtn": lambda data, ids, _: rt.segment_sqrtn(data, ids, 9, accumulation="sequential"),
    "sparse_segment_mean": lambda data, ids, _: rt.sparse_segment_mean(
        data, ids, ids.sort().values, 9, accumulation="sequential"
    ),
    "index_add": lambda data, ids, other: rt.index_add(other, 0, ids, data, alpha=0.5, accumulation="sequential"),
    "coalesce": lambda data, ids, _: rt.coalesce(
        torch.sparse_coo_tensor(ids[None], data, (9, 5)), accumulation="sequential"
    ).to_dense(),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("ids", [torch.int32, torch.int64])
def test_segments_and_rows(name: str, ids: Any) -> None:
    if name == "coalesce" and ids == torch.int32:
        ids = torch.int64  # torch's sparse tensors have no others
    numbers = torch.randint(0, 8, (200,), generator=torch.Generator().manual_seed(0)).to(ids)
    results = []
    for device in ("cpu", "cuda"):
        data = random_table(torch.float32, 200, 5).to(device).requires_grad_()
        other = random_table(torch.float32, 9, 5, seed=2).to(device).requires_grad_()
        result = CALLS[name](data, numbers.to(device), other)
        upstream = torch.linspace(-1, 1, result.numel()).reshape(result.shape)
        (grad,) = torch.autograd.grad(result, data, upstream.to(device))
        results.append([result.detach().cpu(), grad.cpu()])
    assert_same_bits(*results)


def test_sparse_functions() -> None:
    dense = torch.tensor([[0.0, 3.0, 0.0], [0.0, 0.0, 0.0], [5.0, 0.0, 7.0]])
    results = []
    for device in ("cpu", "cuda"):
        coo = dense.to(device).to_sparse()
        filled, empty = rt.fill_empty_rows(coo, 9.0)
        box = rt.sparse_slice(coo, [0, 1], [3, 2])
        results.append([filled.to_dense().cpu(), empty.cpu(), box.to_dense().cpu()])
    assert_same_bits(*results)


@pytest.mark.parametrize("bad", [-1, ROWS, 2**40])
@pytest.mark.parametrize("fused", [False, True])
def test_bad_ids_raise_and_the_context_survives(bad: int, fused: bool) -> None:
    bag = rt.EmbeddingBag(ROWS, WIDTH, sparse=True, _weight=random_table()).cuda()
    optimizer = rt.optim.SparseSGD(bag.parameters(), lr=0.1, fused=fused)
    with pytest.raises(ValueError, match=rf"embedding_bag: .*{bad}.*out of range"):
        bag(torch.tensor([[1, 2, bad]], device="cuda"))
    with pytest.raises(ValueError, match=r"embedding: "):
        rt.embedding(torch.tensor([bad], device="cuda"), bag.weight)
    assert_same_bits(bag.weight.detach(), random_table())
    bag(torch.tensor([[1, 2]], device="cuda")).sum().backward()
    optimizer.step()
    torch.cuda.synchronize()


@pytest.mark.parametrize("offsets", [[1, 2], [0, 3, 2], [0, 9]])
def test_bad_offsets_are_named(offsets: list[int]) -> None:
    with pytest.raises(ValueError, match=r"embedding_bag: .*offsets\["):
        rt.embedding_bag(torch.arange(5, device="cuda"), random_table().cuda(), torch.tensor(offsets, device="cuda"))


def test_operands_on_two_devices_are_refused() -> None:
    numbers, offsets = random_bags()
    with pytest.raises((RuntimeError, ValueError)):
        rt.embedding_bag(numbers, random_table().cuda(), offsets)
    with pytest.raises((RuntimeError, ValueError)):
        rt.embedding_bag(numbers.cuda(), random_table().cuda(), offsets)


def test_work_is_queued_on_the_current_stream() -> None:
    """The ids change late on another stream; a call that did not wait for them would pool other rows."""
    table = torch.arange(ROWS, dtype=torch.float32, device="cuda").reshape(-1, 1).requires_grad_()
    ids = torch.zeros(1000, 1, dtype=torch.int64, device="cuda")
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(200_000_000)
        ids.fill_(5)
        pooled = rt.embedding_bag(ids, table, mode="sum")
        pooled.sum().backward()
        result = pooled.detach().clone()
    torch.cuda.current_stream().wait_stream(stream)
    assert (result == 5).all()
    assert table.grad[5].item() == 1000 and table.grad.sum().item() == 1000


def test_memory_is_torchs() -> None:
    """Results and scratch come from torch's allocator, and all scratch goes back."""
    numbers, offsets = (tensor.cuda() for tensor in random_bags(bags=20_000))
    weight = random_table(width=64).cuda().requires_grad_()
    rt.embedding_bag(numbers, weight, offsets, sparse=True).sum().backward()
    weight.grad = None
    gc.collect()  # tables of other tests have memory until then
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    pooled = rt.embedding_bag(numbers, weight, offsets, sparse=True)
    assert torch.cuda.memory_allocated() - before >= pooled.numel() * 4
    forward_peak = torch.cuda.max_memory_allocated() - before - pooled.numel() * 4
    assert forward_peak >= len(numbers) * 4  # segment ids
    pooled.backward(torch.ones_like(pooled))
    assert torch.cuda.max_memory_allocated() - before >= len(numbers) * 16  # the sort
    rows = weight.grad._nnz()
    del pooled
    weight.grad = None
    assert torch.cuda.memory_allocated() == before
    assert rows <= ROWS


@every_optimizer
@pytest.mark.parametrize("fused", [False, True])
def test_memory_does_not_grow(name: str, fused: bool) -> None:
    bag = rt.EmbeddingBag(ROWS, WIDTH, sparse=True).cuda()
    optimizer = OPTIMIZERS[name][0](bag.parameters(), lr=0.1, fused=fused)
    numbers, offsets = (tensor.cuda() for tensor in random_bags())

    def step() -> None:
        optimizer.zero_grad()
        bag(numbers, offsets).sum().backward()
        optimizer.step()

    for _ in range(10):
        step()
    before = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
    for _ in range(500):
        step()
    assert (torch.cuda.memory_allocated(), torch.cuda.memory_reserved()) == before


def test_install_and_deterministic_algorithms() -> None:
    numbers, offsets = (tensor.cuda() for tensor in random_bags())

    def run() -> Any:
        bag = torch.nn.EmbeddingBag(ROWS, WIDTH, mode="sum", sparse=True, _weight=random_table()).cuda()
        lookup = torch.nn.Embedding(ROWS, WIDTH, _weight=random_table(seed=3)).cuda()
        loss = bag(numbers, offsets).sum() + lookup(numbers).sum()
        sums = torch.zeros(ROWS, WIDTH, device="cuda").index_add(0, numbers, lookup(numbers).detach())
        loss.backward()
        return bag.weight.grad, lookup.weight.grad, sums

    rt.install()
    torch.use_deterministic_algorithms(True)
    try:
        first, second = run(), run()
        counts = {name: status.fell_back for name, status in rt.status().items()}
    finally:
        torch.use_deterministic_algorithms(False)
        rt.uninstall()
    assert first[0].is_coalesced()
    for one, other in zip(first, second, strict=True):
        assert_same_bits(one.to_dense(), other.to_dense())
    assert not any(counts.values()), counts
