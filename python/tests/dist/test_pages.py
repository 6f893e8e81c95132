"""The code of docs/scale.md runs, on two processes; the notebook on reproducibility starts its own."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import pytest
from pages import ROOT, notebook, programs, run

from . import worlds
from .worlds import rd, rt, torch


def _run_pages(rank: int, folder: str) -> None:
    for page, codes in programs("dist").items():
        bags = rt.EmbeddingBag(10, 4, sparse=True)
        # worlds.run has done that.
        codes = [code.replace('torch.distributed.init_process_group("gloo")', "") for code in codes]
        reader_has = {
            "functools": functools,
            "torch": torch,
            "rt": rt,
            "DistributedDataParallel": torch.nn.parallel.DistributedDataParallel,
            "model": torch.nn.Sequential(bags, torch.nn.Linear(4, 1)),
            "num_rows": 1000,
            "batches": [(torch.tensor([7, 2, 999 - rank]), torch.tensor([0, 2]), torch.tensor([1.0, 0.0]))] * 2,
            "folder": folder,
        }
        run(page, codes, reader_has)


def test_the_code_of_the_pages_runs(tmp_path: Path) -> None:
    worlds.run(2, _run_pages, str(tmp_path))
    assert [torch.load(path)["first_row"] for path in sorted(tmp_path.iterdir())] == [0, 500]


def _numbers(text: str) -> list[float]:
    return [float(number.replace(",", "")) for number in re.findall(r"[\d,]*\d(?:\.\d+)?", text)]


def test_the_table_of_a_thousand_ranks_is_the_models() -> None:
    page = (ROOT / "docs" / "scale.md").read_text()
    table = re.findall(r"^\| ([\d,]+) \| (.* MB, .* s) \| (.* MB, .* m?s) \| (.* MB, \d+ ms)", page, re.MULTILINE)
    assert [ranks for ranks, *_ in table] == ["8", "64", "1,000"]
    for ranks, *said in table:
        dense, _, reduced, sharded = rd.explain(100_000_000, 64, 20_480, int(ranks.replace(",", "")), bags=1024).ways
        for text, way in zip(said, (dense, reduced, sharded), strict=True):
            seconds = way.seconds * (1e3 if text.endswith("ms") else 1)
            assert _numbers(text) == pytest.approx([way.bytes / 1e6, seconds], rel=0.05)


def test_two_levels_take_as_many_messages_as_the_page_says() -> None:
    page = " ".join((ROOT / "docs" / "scale.md").read_text().split())
    said = re.search(r"messages, (\d+) or (\d+) ms for 1,000 ranks on nodes of (\d+)", page)
    assert said is not None
    messages, milliseconds, per_node = (int(number) for number in said.groups())
    assert messages == 8 * (per_node - 1 + 1000 // per_node - 1)
    assert milliseconds == round(messages * rd.Network().latency * 1e3)
    assert rd.explain(100_000_000, 64, 20_480, 1000, bags=1024).ways[3].messages == 8 * 999


def test_the_notebook_on_reproducibility_runs() -> None:
    run("reproducibility.ipynb", notebook("reproducibility"), {})
