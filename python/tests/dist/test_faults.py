"""A rank dies, comes late, or has something else: the others say so within the group's timeout, and tables stay."""

from __future__ import annotations

import functools
import os
import signal
import time
from typing import Any

import pytest

from .worlds import Outcome, outcomes_of, rd, rt, torch

ROWS, WIDTH, RANKS, TIMEOUT = 40, 4, 3, 6.0
FAULTY = 1
SGD = functools.partial(rt.optim.SparseSGD, lr=1.0)


def die_in(phase: str) -> None:
    """Kills this process when it comes to a phase of an operation."""
    from raggrad.dist import _messages

    swap = _messages.Ranks.swap

    def dying(self: Any, its_phase: str, *arguments: Any) -> None:
        if its_phase == phase:
            os.kill(os.getpid(), signal.SIGKILL)
        swap(self, its_phase, *arguments)

    _messages.Ranks.swap = dying


def gradient(rank: int, rows: int = ROWS, dtype: Any = torch.float32) -> Any:
    ids = torch.arange(rank, rows, 2)
    return torch.sparse_coo_tensor(
        ids[None], torch.ones(len(ids), WIDTH, dtype=dtype), (rows, WIDTH), check_invariants=True
    )


def reduce_and_die(rank: int, phase: str) -> bool:
    if rank == FAULTY:
        die_in(phase)
    parameter = torch.nn.Parameter(torch.zeros(ROWS, WIDTH))
    parameter.grad = before = gradient(rank)
    try:
        rd.all_reduce(parameter)
    except RuntimeError:
        assert parameter.grad is before
        raise
    return True


def check_lost(outcomes: list[Outcome | None], *texts: str) -> None:
    """The faulty rank is dead, and all others name it."""
    assert outcomes[FAULTY] is None
    for outcome in (one for rank, one in enumerate(outcomes) if rank != FAULTY):
        assert outcome is not None
        assert outcome.error is not None
        assert all(text in outcome.error for text in ("RuntimeError", f"rank {FAULTY} (", *texts)), outcome.error
        assert outcome.took < 2 * TIMEOUT + 5


@pytest.mark.parametrize("phase", ["agreement", "counts", "rows", "sizes", "sums"])
def test_a_rank_dies_in_all_reduce(phase: str) -> None:
    check_lost(outcomes_of(RANKS, reduce_and_die, phase, timeout=TIMEOUT), f"raggrad.dist.all_reduce: {phase}:")


def train_and_die(rank: int, phase: str, accumulation: str | None, in_backward: bool) -> None:
    bag = rd.ShardedEmbeddingBag(ROWS, WIDTH, "sum", optimizer=SGD, accumulation=accumulation)
    before = bag.weight.detach().clone()
    if rank == FAULTY and not in_backward:
        die_in(phase)
    try:
        pooled = bag(torch.arange(ROWS), torch.arange(0, ROWS, 4))
        if rank == FAULTY:
            die_in(phase)
        pooled.sum().backward()
    finally:
        assert torch.equal(bag.weight, before)


FORWARD = [(phase, None) for phase in ("agreement", "counts", "ids", "pooled rows")]
FORWARD += [(phase, "reproducible") for phase in ("magnitudes", "grids", "exact sums")]
BACKWARD = [(phase, None) for phase in ("agreement", "counts", "rows", "commit")]
BACKWARD += [(phase, "reproducible") for phase in ("magnitudes", "grids", "exact sums", "commit")]


@pytest.mark.parametrize(("phase", "accumulation"), FORWARD)
def test_a_rank_dies_in_the_forward_of_a_sharded_bag(phase: str, accumulation: str | None) -> None:
    outcomes = outcomes_of(RANKS, train_and_die, phase, accumulation, False, timeout=TIMEOUT)
    check_lost(outcomes, f"ShardedEmbeddingBag.forward: {phase}:")


@pytest.mark.parametrize(("phase", "accumulation"), BACKWARD)
def test_a_rank_dies_in_the_backward_of_a_sharded_bag(phase: str, accumulation: str | None) -> None:
    outcomes = outcomes_of(RANKS, train_and_die, phase, accumulation, True, timeout=TIMEOUT)
    check_lost(outcomes, f"ShardedEmbeddingBag.backward: {phase}:")


def weigh_and_die(rank: int, phase: str) -> None:
    bag = rd.ShardedEmbeddingBag(ROWS, WIDTH, "sum", optimizer=SGD)
    before = bag.weight.detach().clone()
    pooled = bag(torch.arange(ROWS), torch.arange(0, ROWS, 4), torch.ones(ROWS, requires_grad=True))
    if rank == FAULTY:
        die_in(phase)
    try:
        pooled.sum().backward()
    finally:
        assert torch.equal(bag.weight, before)


@pytest.mark.parametrize("phase", ["gradients of pieces", "gradients of weights"])
def test_a_rank_dies_while_weights_get_their_gradient(phase: str) -> None:
    outcomes = outcomes_of(RANKS, weigh_and_die, phase, timeout=TIMEOUT)
    check_lost(outcomes, f"ShardedEmbeddingBag.backward: {phase}:")


def save_and_die(rank: int, phase: str) -> None:
    bag = rd.ShardedEmbeddingBag(ROWS, WIDTH)
    if rank == FAULTY:
        die_in(phase)
    bag.state_dict()


@pytest.mark.parametrize("phase", ["agreement", "sizes", "table"])
def test_a_rank_dies_while_a_table_is_gathered(phase: str) -> None:
    outcomes = outcomes_of(RANKS, save_and_die, phase, timeout=TIMEOUT)
    check_lost(outcomes, f"ShardedEmbeddingBag.full_weight: {phase}:")


def send_ahead_and_die(rank: int) -> None:
    bag = rd.ShardedEmbeddingBag(ROWS, WIDTH, network=rd.Network(latency=0.0))
    hot = torch.zeros(20, dtype=torch.int64)
    bag(hot, torch.arange(20))
    assert rank != 0 or bag.hot_rows.tolist() == [0]
    if rank == FAULTY:
        die_in("hot rows")
    bag(hot, torch.arange(20))


def test_a_rank_dies_while_hot_rows_go_ahead() -> None:
    outcomes = outcomes_of(RANKS, send_ahead_and_die, timeout=TIMEOUT)
    assert outcomes[FAULTY] is None
    for rank, outcome in enumerate(outcomes):
        # Only rank 0 sends. The others may have what they need, and meet the loss a phase later.
        assert rank == FAULTY or f"rank {FAULTY} (" in outcome.error, outcome
        assert rank == FAULTY or "ShardedEmbeddingBag.forward: " in outcome.error


def update_and_die(rank: int, phase: str) -> None:
    bag = rt.EmbeddingBag(ROWS, WIDTH)
    rd.register(bag)
    rule = rt.optim.SparseSGD(bag.parameters(), lr=1.0, fused=True)
    before = bag.weight.detach().clone()
    pooled = bag(torch.arange(ROWS).reshape(-1, 4))
    if rank == FAULTY:
        die_in(phase)
    try:
        pooled.sum().backward()
    finally:
        assert torch.equal(bag.weight, before)
        rule.step()


@pytest.mark.parametrize("phase", ["sums", "commit"])
def test_a_rank_dies_before_a_fused_update(phase: str) -> None:
    outcomes = outcomes_of(RANKS, update_and_die, phase, timeout=TIMEOUT)
    check_lost(outcomes, "raggrad.dist.register: gradient of weight: ")


def backward_and_die(rank: int, phase: str) -> None:
    bag = rt.EmbeddingBag(ROWS, WIDTH, sparse=True)
    rd.register(bag)
    pooled = bag(torch.arange(ROWS).reshape(-1, 4))
    if rank == FAULTY:
        die_in(phase)
    try:
        pooled.sum().backward()
    finally:
        assert bag.weight.grad is None


@pytest.mark.parametrize("phase", ["rows", "sums"])
def test_a_rank_dies_in_the_backward_of_a_registered_bag(phase: str) -> None:
    outcomes = outcomes_of(RANKS, backward_and_die, phase, timeout=TIMEOUT)
    check_lost(outcomes, f"raggrad.dist.register: gradient of weight: {phase}:")


def register_and_die(rank: int) -> None:
    bag = rt.EmbeddingBag(ROWS, WIDTH)
    if rank == FAULTY:
        torch.distributed.broadcast = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
    rd.register(bag)


def test_a_rank_dies_while_weights_are_sent() -> None:
    outcomes = outcomes_of(RANKS, register_and_die, timeout=TIMEOUT)
    assert outcomes[FAULTY] is None
    for outcome in (outcomes[0], outcomes[2]):
        # A rank that has sent its part, or has got it from another one, has lost nobody.
        assert outcome.error is None or "raggrad.dist.register: weights: " in outcome.error
    assert any(outcome.error for outcome in (outcomes[0], outcomes[2]))


def come_late(rank: int) -> None:
    if rank == FAULTY:
        time.sleep(4)
    rd.all_reduce(gradient(rank))


def test_a_rank_comes_too_late() -> None:
    outcomes = outcomes_of(RANKS, come_late, timeout=1.0)
    for rank, outcome in enumerate(outcomes):
        assert outcome is not None
        assert outcome.error is not None
        assert "raggrad.dist.all_reduce: agreement:" in outcome.error
        if rank != FAULTY:
            assert f"rank {FAULTY} (" in outcome.error
            assert outcome.took < 4


def unchecked(rows: list[int], table_rows: int = ROWS, coalesced: bool = True) -> Any:
    """A gradient whose rows nobody has checked."""
    values = torch.ones(len(rows), WIDTH)
    return torch.sparse_coo_tensor(
        torch.tensor([rows]), values, (table_rows, WIDTH), check_invariants=False, is_coalesced=coalesced
    )


def reduce_something_else(rank: int, what: str) -> str:
    """The error of a call that ranks disagree about; then one that all agree about."""
    mine = gradient(rank)
    if rank == FAULTY:
        mine = {
            "rows": lambda: gradient(0, ROWS + 1),
            "dtype": lambda: gradient(0, dtype=torch.float64),
            "id": lambda: unchecked([3, ROWS + 5]),
            "first id": lambda: unchecked([-2, 3, 4]),
            "id and order": lambda: unchecked([3, ROWS + 5, 4]),
            "repeated id": lambda: unchecked([3, -2, 3], coalesced=False),
            "order": lambda: unchecked([3, 2]),
            "number": lambda: [mine, mine],
            "average": lambda: mine,
            "layout": lambda: mine.to_dense().to_sparse_csr(),
            "dense": lambda: mine.to_dense(),
            "huge": lambda: unchecked([3], 2**33),
            "scalar": lambda: torch.nn.Parameter(torch.tensor(1.0)),
        }[what]()
    with pytest.raises((RuntimeError, ValueError)) as caught:
        rd.all_reduce(mine, average=rank == FAULTY and what == "average")
    total = rd.all_reduce(gradient(rank)).to_dense()  # the group still works
    assert torch.equal(total.sum(0), torch.full((WIDTH,), float(sum(gradient(r)._nnz() for r in range(RANKS)))))
    return str(caught.value)


@pytest.mark.parametrize(
    ("what", "faulty", "others"),
    [
        ("rows", "ranks disagree: rank 1 has table 0: 41 rows", "rank 0 has table 0: 40 rows"),
        ("dtype", "rank 1 has table 0: 40 rows of shape (4,), torch.float64", "torch.float32"),
        ("number", "rank 1 has table 1: 40 rows", "rank 0 has less"),
        ("average", "rank 1 has average = True", "rank 0 has average = False"),
        ("id", "coo_or_param: expected rows 0 to 39, got 45", "rank 1 has a fault: raggrad.dist.all_reduce: coo_or"),
        ("first id", "coo_or_param: expected rows 0 to 39, got -2", "rank 1 has a fault: raggrad.dist.all_reduce: coo"),
        ("id and order", "rows do not ascend", "rank 1 has a fault"),
        ("repeated id", "coo_or_param: expected rows 0 to 39, got -2", "rank 1 has a fault: raggrad.dist.all_reduce"),
        ("order", "rows do not ascend", "rank 1 has a fault"),
        ("layout", "expected a sparse COO tensor", "rank 1 has a fault"),
        ("dense", "a parameter with rows, got a dense tensor of shape (40, 4)", "rank 1 has a fault"),
        ("huge", "coo_or_param: expected at most 4294967296 rows, got 8589934592", "rank 1 has a fault"),
        ("scalar", "a parameter with rows, got a dense tensor of shape ()", "rank 1 has a fault"),
    ],
)
def test_ranks_disagree(what: str, faulty: str, others: str) -> None:
    outcomes = outcomes_of(RANKS, reduce_something_else, what, timeout=TIMEOUT)
    for rank, outcome in enumerate(outcomes):
        assert outcome is not None
        assert outcome.error is None, outcome.error
        expected = [faulty] if rank == FAULTY else [others]
        if what in ("rows", "dtype", "number", "average"):
            expected = [faulty, others]
        assert all(text in outcome.value for text in ("raggrad.dist.all_reduce", *expected)), outcome.value


def make_another_table(rank: int, what: str) -> str:
    rows = ROWS + 1 if rank == FAULTY and what == "rows" else ROWS
    dtype = torch.float64 if rank == FAULTY and what == "dtype" else torch.float32
    optimizer = SGD if rank == FAULTY and what == "options" else None
    options = {"average": rank == FAULTY and what == "options"}
    with pytest.raises(RuntimeError) as divided:
        rd.ShardedEmbeddingBag(rows, WIDTH, dtype=dtype, optimizer=optimizer)
    with pytest.raises(RuntimeError) as whole:
        rd.register(rt.EmbeddingBag(rows, WIDTH, dtype=dtype), **options)
    rd.register(rt.EmbeddingBag(ROWS, WIDTH))  # the group still works
    return f"{divided.value}\n{whole.value}"


@pytest.mark.parametrize(
    ("what", "in_divided", "in_whole"),
    [
        ("rows", "table: 41 rows", "weight: (41, 4)"),
        ("dtype", "table: 40 rows of 4, torch.float64", "weight: (40, 4), torch.float64"),
        ("options", "optimizer: SparseSGD", "average = True"),
    ],
)
def test_ranks_have_different_tables(what: str, in_divided: str, in_whole: str) -> None:
    for outcome in outcomes_of(RANKS, make_another_table, what, timeout=TIMEOUT):
        assert outcome is not None
        assert outcome.error is None, outcome.error
        divided, whole = outcome.value.splitlines()
        assert divided.startswith(f"raggrad.dist.ShardedEmbeddingBag: ranks disagree: rank 1 has {in_divided}")
        assert whole.startswith(f"raggrad.dist.register: ranks disagree: rank 1 has {in_whole}")


def make_many_tables(rank: int) -> str:
    rows = [ROWS + (rank == FAULTY and number == 98) for number in range(100)]
    with pytest.raises(RuntimeError) as caught:
        rd.register(torch.nn.ModuleList([rt.EmbeddingBag(count, WIDTH) for count in rows]))
    return str(caught.value)


def test_a_table_among_many_differs() -> None:
    for outcome in outcomes_of(2, make_many_tables, timeout=TIMEOUT):
        assert outcome is not None
        assert outcome.error is None, outcome.error
        assert "rank 1 has 98.weight: (41, 4), torch.float32, rank 0 has 98.weight: (40, 4)" in outcome.value


def look_up_a_corrupt_id(rank: int) -> str:
    bag = rd.ShardedEmbeddingBag(ROWS, WIDTH)
    before = bag.weight.detach().clone()
    with pytest.raises((RuntimeError, ValueError)) as caught:
        bag(torch.tensor([1, ROWS if rank == FAULTY else 2]), torch.tensor([0]))
    assert torch.equal(bag.weight, before)
    assert bag(torch.tensor([rank]), torch.tensor([0])).shape == (1, WIDTH)  # the group still works
    return str(caught.value)


def test_a_corrupt_id_in_a_sharded_bag() -> None:
    for rank, outcome in enumerate(outcomes_of(RANKS, look_up_a_corrupt_id, timeout=TIMEOUT)):
        assert outcome is not None
        assert outcome.error is None, outcome.error
        assert f"input[1]: expected 0 to {ROWS - 1}, got {ROWS}" in outcome.value
        assert rank == FAULTY or f"rank {FAULTY} has a fault" in outcome.value


def weigh_with_another_type(rank: int) -> str:
    bag = rd.ShardedEmbeddingBag(ROWS, WIDTH, dtype=torch.bfloat16)
    ids, weights = torch.tensor([[1, 30]]), torch.ones(1, 2)
    with pytest.raises(RuntimeError) as caught:
        bag(ids, None, weights if rank == FAULTY else weights.bfloat16())
    assert bag(ids, None, weights).shape == (1, WIDTH)  # the group still works
    return str(caught.value)


def test_ranks_have_weights_of_different_types() -> None:
    for outcome in outcomes_of(RANKS, weigh_with_another_type, timeout=TIMEOUT):
        assert outcome is not None
        assert outcome.error is None, outcome.error
        assert "rank 1 has per_sample_weights = torch.float32" in outcome.value
        assert "rank 0 has per_sample_weights = torch.bfloat16" in outcome.value


def call_something_else(rank: int, operation: str) -> None:
    bag = rd.ShardedEmbeddingBag(ROWS, WIDTH)
    if rank != FAULTY:
        bag(torch.tensor([1]), torch.tensor([0]))
    elif operation == "all_reduce":
        rd.all_reduce(gradient(rank))
    else:
        bag.reset_parameters()


@pytest.mark.parametrize("operation", ["all_reduce", "ShardedEmbeddingBag.reset_parameters"])
def test_ranks_call_different_operations(operation: str) -> None:
    for outcome in outcomes_of(RANKS, call_something_else, operation, timeout=TIMEOUT):
        assert outcome is not None
        assert outcome.error is not None
        assert f"ranks disagree: rank 1 has operation {operation}" in outcome.error
        assert "rank 0 has operation ShardedEmbeddingBag.forward" in outcome.error
