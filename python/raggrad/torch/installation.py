"""install: torch's own embeddings and index_add use raggrad in models that do not know of it.

Functions are replaced where Python finds them: in torch.nn.functional and torch.Tensor. nn.Embedding and
nn.EmbeddingBag look them up there at every call, so it does not matter whether a model was built before or after. The
dispatcher, and with it C++ and other libraries' operators, stays as it is. So does the function torch.index_add:
torch.compile and torch.jit.script recognise functions of that kind by their identity, and remember what they found
after uninstall().
"""

from __future__ import annotations

import functools
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from . import _stock_calls as calls
from . import bags

_lock = threading.Lock()


class Status(NamedTuple):
    """Who answers calls of one function."""

    by: str  # "raggrad" or "torch"
    torch_answers: tuple[str, ...]  # the calls that go to torch all the same
    fell_back: dict[str, int]  # how many did since install(), by reason


class _Replacement:
    """A function of torch, and the one that stands in for it.

    `why_not` takes the arguments of a call and says why torch answers it, or None. `ours` answers the others. What
    `ours` refuses also goes to torch: its errors stay the ones that a script knows.
    """

    def __init__(self, owner: Any, name: str, why_not: Callable[..., str | None], ours: Callable[..., Any]) -> None:
        self.owner, self.name = owner, name
        self.stock = getattr(owner, name)
        self.is_inherited = name not in vars(owner)
        self.installed = False
        self.fell_back: Counter[str] = Counter()
        self.function = self._function(why_not, ours)

    def _function(self, why_not: Callable[..., str | None], ours: Callable[..., Any]) -> Any:
        stock = self.stock

        @functools.wraps(stock)
        def function(*args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_compiling() or not self.installed or torch.jit.is_tracing():
                return stock(*args, **kwargs)
            try:
                reason = why_not(*args, **kwargs)
                if reason is None:
                    return ours(*args, **kwargs)
            except (NotImplementedError, TypeError, ValueError):
                reason = calls.REFUSED
            self.fell_back[reason] += 1
            return stock(*args, **kwargs)

        # torch.jit.script compiles the function that it finds under this name.
        vars(function).update({"__script_if_tracing_wrapper": True, "__original_fn": stock})
        return function

    def install(self) -> None:
        if not self.installed:
            self.fell_back.clear()
            setattr(self.owner, self.name, self.function)
            self.installed = True

    def uninstall(self) -> None:
        """Puts torch's function back, unless somebody replaced ours; ours then calls torch's."""
        self.installed = False
        if vars(self.owner).get(self.name) is not self.function:
            return
        if self.is_inherited:
            delattr(self.owner, self.name)
        else:
            setattr(self.owner, self.name, self.stock)


def _replacements() -> dict[str, _Replacement]:
    add_in_place = functools.partial(calls.add_in_place, Tensor.index_add_)
    return {
        "torch.nn.functional.embedding": _Replacement(
            nn.functional, "embedding", calls.why_not_embedding, bags.embedding
        ),
        "torch.nn.functional.embedding_bag": _Replacement(
            nn.functional, "embedding_bag", calls.why_not_embedding_bag, bags.embedding_bag
        ),
        "torch.Tensor.index_add": _Replacement(Tensor, "index_add", calls.why_not_index_add, calls.index_add),
        "torch.Tensor.index_add_": _Replacement(Tensor, "index_add_", calls.why_not_index_add, add_in_place),
    }


_all = _replacements()
_LEFT_ALONE = {"torch.index_add": "every call: torch.compile knows it by identity; input.index_add(...) is replaced"}


def install() -> None:
    """From now on nn.Embedding, nn.EmbeddingBag, F.embedding, F.embedding_bag and Tensor.index_add(_) use raggrad.

    Models stay as they are, those built before too. Gradients become deterministic, and sparse ones coalesced. What
    raggrad does not offer goes to torch without a word; status() lists it. Code under torch.compile, torch.export and
    torch.jit keeps torch's functions. A name that was imported before, as in `from torch.nn.functional import
    embedding`, stays torch's. A second call changes nothing. Costs a few microseconds a call.

    >>> import torch, raggrad.torch as rt
    >>> rt.install()
    >>> bag = torch.nn.EmbeddingBag(10, 4, mode="sum", sparse=True)
    >>> bag(torch.tensor([[1, 2], [2, 3]])).sum().backward()
    >>> bag.weight.grad.is_coalesced()
    True
    >>> rt.status()["torch.nn.functional.embedding_bag"].by
    'raggrad'
    >>> rt.uninstall()
    """
    with _lock:
        for replacement in _all.values():
            replacement.install()


def uninstall() -> None:
    """Undoes install(). A sparse gradient of a table that raggrad has seen is still coalesced after backward passes."""
    with _lock:
        for replacement in _all.values():
            replacement.uninstall()


def status() -> dict[str, Status]:
    """Who answers calls of the functions that install() replaces, which ones go to torch, and how many did.

    >>> import raggrad.torch as rt
    >>> {answer.by for answer in rt.status().values()}
    {'torch'}
    """
    with _lock:
        replaced = {
            name: Status(
                "raggrad" if replacement.installed else "torch",
                calls.REASONS[replacement.name],
                dict(replacement.fell_back),
            )
            for name, replacement in _all.items()
        }
    return replaced | {name: Status("torch", (why,), {}) for name, why in _LEFT_ALONE.items()}
