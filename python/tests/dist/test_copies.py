"""Copies of modules, and tables that take another's place."""

from __future__ import annotations

import copy
import functools
import gc
import io
import warnings
import weakref
from typing import Any

import pytest
import raggrad

from .worlds import dist, packed, rd, rt, run, torch

ROWS, WIDTH = 7, 3
ADAM = functools.partial(rt.optim.SparseAdam, lr=0.1)


def replace_tables(rank: int) -> None:
    """Gradients of tensors that nobody registered would be those of one rank."""
    ids = torch.tensor([[rank, 2]])
    model = torch.nn.Sequential(rt.EmbeddingBag(ROWS, WIDTH, sparse=True))
    rd.register(model, accumulation="reproducible")
    copied = copy.deepcopy(model)
    what = r"register: EmbeddingBag: weight is not the tensor that was registered.*register the module again"
    with pytest.raises(RuntimeError, match=what):
        copied(ids)
    with pytest.raises(RuntimeError, match=what):
        torch.func.functional_call(model, {"0.weight": torch.zeros(ROWS, WIDTH, requires_grad=True)}, (ids,))
    with torch.no_grad():
        assert torch.equal(copied(ids), model(ids))
    model.load_state_dict(model.state_dict(), assign=True)
    with pytest.raises(RuntimeError, match=what):
        model(ids)
    for one in (copied, model):
        rd.register(one, accumulation="fast")
        one(ids).sum().backward()
        assert raggrad.settings.current_accumulation.get() is None  # hooks of both registrations would leave one
        assert torch.equal(one[0].weight.grad.to_dense()[:4, 0], torch.tensor([0.5, 0.5, 1.0, 0.0]))


def test_a_table_that_was_not_registered_is_refused() -> None:
    run(2, replace_tables)


def make_registered(rank: int) -> bytes:
    bag = rt.EmbeddingBag(ROWS, WIDTH)
    rd.register(bag, accumulation="reproducible")
    return packed(bag)


def test_a_saved_module_is_of_use_where_it_is_alone() -> None:
    bag = torch.load(io.BytesIO(run(1, make_registered)[0]), weights_only=False)
    bag(torch.tensor([[1, 2]])).sum().backward()
    assert bag.weight.grad.count_nonzero() == 2 * WIDTH


def fail_before_the_call(rank: int) -> None:
    bag = rt.EmbeddingBag(ROWS, WIDTH)
    rd.register(bag, accumulation="fast")

    def fail(*_: Any) -> None:
        raise ValueError("of the user")

    bag.register_forward_pre_hook(fail, prepend=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match="of the user"):
            bag(torch.tensor([[1]]))


def test_a_hook_of_the_user_may_fail() -> None:
    run(1, fail_before_the_call)


def lay_out_differently(rank: int) -> Any:
    bag = rt.EmbeddingBag(ROWS, WIDTH)
    table = torch.arange(float(ROWS * WIDTH)).reshape(ROWS, WIDTH) + 100 * rank
    bag.weight = torch.nn.Parameter(table if rank == 0 else table.t().contiguous().t())
    rd.register(bag)
    return bag.weight.detach()


def test_weights_are_those_of_rank_0_however_they_lie() -> None:
    first, second = run(2, lay_out_differently)
    assert torch.equal(first, second)


def copy_shards(rank: int) -> None:
    """A copy has its own rows and optimizer, and the same group."""
    group = dist.new_group([0, 1])
    bag = rd.ShardedEmbeddingBag(ROWS, WIDTH, group=group, optimizer=ADAM)
    ids = torch.tensor([[rank, 5]])
    bag(ids).sum().backward()
    before = bag.full_weight()
    copied = copy.deepcopy(bag)
    assert copied.group is group
    copied(ids).sum().backward()
    assert torch.equal(bag.full_weight(), before)
    bag(ids).sum().backward()
    assert torch.equal(bag.full_weight(), copied.full_weight())
    assert not torch.equal(bag.full_weight(), before)


def test_a_divided_table_can_be_copied() -> None:
    run(2, copy_shards)


def forget_shards(rank: int) -> None:
    bag = rd.ShardedEmbeddingBag(ROWS, WIDTH, optimizer=ADAM)
    table = weakref.ref(bag.weight)
    gc.disable()  # tables are large, and Python looks for cycles late
    try:
        del bag
        assert table() is None
    finally:
        gc.enable()


def test_a_table_goes_with_its_module() -> None:
    run(1, forget_shards)


def make_divided(rank: int) -> bytes:
    return packed(rd.ShardedEmbeddingBag(ROWS, WIDTH))


def load_divided(rank: int, modules: list[bytes]) -> str:
    bag = torch.load(io.BytesIO(modules[rank]), weights_only=False)
    with pytest.raises(RuntimeError) as caught:
        bag.full_weight()
    return str(caught.value)


def test_shards_belong_to_one_rank() -> None:
    """Other ranks would read rows from where they do not lie."""
    first, second = run(2, make_divided)
    where = "raggrad.dist.ShardedEmbeddingBag.full_weight: group: expected rank 1 of 2, whose rows are here, got rank "
    assert run(2, load_divided, [second, first])[0].startswith(f"{where}0 of 2: load a state_dict")
    assert run(3, load_divided, [first, second, second])[1].startswith(f"{where}1 of 3: load a state_dict")
    assert "rows 4 to 6 of this rank" in repr(torch.load(io.BytesIO(second), weights_only=False))


def compile_model(rank: int) -> None:
    model = torch.nn.Sequential(rd.ShardedEmbeddingBag(ROWS, WIDTH, optimizer=ADAM), torch.nn.Linear(WIDTH, 1))
    ids = torch.tensor([[rank, 5]])
    want = model(ids)
    before = model[0].full_weight()
    pooled = torch.compile(model, backend="eager")(ids)
    assert torch.equal(pooled, want)
    pooled.sum().backward()
    assert not torch.equal(model[0].full_weight(), before)


def test_compiled_models_leave_divided_tables_as_they_are() -> None:
    run(2, compile_model)


def transform(rank: int) -> None:
    """Neither torch.func nor stacked gradients reach a message: all ranks raise."""
    ids = torch.tensor([[rank, 2]])
    sharded, bag = rd.ShardedEmbeddingBag(ROWS, WIDTH), rt.EmbeddingBag(ROWS, WIDTH)
    rd.register(bag)
    with pytest.raises(RuntimeError, match=r"ShardedEmbeddingBag: ranks wait for each other: not inside torch\.func"):
        torch.vmap(sharded)(ids[None])
    for module, name in ((sharded, "ShardedEmbeddingBag"), (bag, "register")):
        pooled = module(ids)
        with pytest.raises(NotImplementedError, match=rf"raggrad\.dist\.{name}: torch\.vmap cannot stack"):
            torch.autograd.grad(pooled, module.weight, torch.ones(3, 1, WIDTH), is_grads_batched=True)
        pooled.sum().backward()  # the group still works
        assert module.weight.grad is not None


def test_transforms_are_refused() -> None:
    run(2, transform)
