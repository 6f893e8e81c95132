"""Plans that are copied, pickled, and sent between processes."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
import subprocess
import sys
import textwrap
import weakref

import numpy as np
import pytest
from raggrad import SegmentPlan, ops

GRAD = np.float32([[1, 2], [3, 4], [5, 6]])


def make_plan(dtype: type = np.int64, segments: tuple[int, ...] = (0, 0, 1, 2)) -> SegmentPlan:
    return SegmentPlan(np.array([4, 0, 4, 2], dtype), np.array(segments), num_rows=5, num_segments=3)


def same(plan: SegmentPlan, other: SegmentPlan) -> bool:
    mine, theirs = (ops.sparse_segment_mean_grad(GRAD, plan=p) for p in (plan, other))
    arrays = ((mine.values, theirs.values), (mine.indices, theirs.indices))
    facts = ("num_ids", "num_unique", "num_rows", "num_segments", "ascending")
    return all(a.dtype == b.dtype and a.tobytes() == b.tobytes() for a, b in arrays) and all(
        getattr(plan, fact) == getattr(other, fact) for fact in facts
    )


def planned(segments: tuple[int, ...]) -> SegmentPlan:
    return make_plan(segments=segments)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("segments", [(0, 0, 1, 2), (2, 0, 1, 0)])
def test_a_pickled_plan_is_made_anew(dtype: type, segments: tuple[int, ...]) -> None:
    plan = make_plan(dtype, segments)
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        assert same(pickle.loads(pickle.dumps(plan, protocol)), plan)


def test_an_empty_plan_is_pickled() -> None:
    plan = SegmentPlan([], [], num_rows=0, num_segments=2)
    assert repr(pickle.loads(pickle.dumps(plan))) == repr(plan) == "SegmentPlan(0 ids, 0 of 0 rows, 2 segments)"


def test_copies_are_the_plan_itself() -> None:
    plan = make_plan()
    assert copy.copy(plan) is plan
    assert copy.deepcopy({"plan": [plan]})["plan"][0] is plan
    assert weakref.ref(plan)() is plan


@pytest.mark.parametrize("method", sorted(set(multiprocessing.get_all_start_methods()) - {"forkserver"}))
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_another_process_returns_a_plan(method: str) -> None:
    with multiprocessing.get_context(method).Pool(1) as pool:
        plan = pool.apply_async(planned, [(2, 0, 1, 0)]).get(timeout=60)
    assert same(plan, make_plan(segments=(2, 0, 1, 0)))


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_data_loader_of_torch_returns_plans(method: str, tmp_path) -> None:
    pytest.importorskip("torch")
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent(f"""
        import torch
        from raggrad import SegmentPlan

        class Bags(torch.utils.data.Dataset):
            def __len__(self):
                return 3

            def __getitem__(self, i):
                return SegmentPlan([i, 0], [0, 1], num_rows=3, num_segments=2)

        if __name__ == "__main__":
            loader = torch.utils.data.DataLoader(
                Bags(), batch_size=None, num_workers=1, multiprocessing_context="{method}", timeout=60)
            print([plan.num_unique for plan in loader])
        """)
    )
    command = [sys.executable, "-Wignore", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.returncode) == ("[1, 2, 2]\n", 0), done.stderr
