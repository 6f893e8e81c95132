"""The rows of a divided table and of its optimizer's states, saved and loaded on any number of ranks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import deepcopy
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ._routes import gather

_CLASS = "ShardedEmbeddingBag"
_OF_OPTIMIZER = "optimizer."  # begins the names of its states in a shard
_STATES = "optimizer_states._extra_state"  # their key in a state_dict


class _Part(NamedTuple):
    """Rows of a rank that were found in a shard."""

    first: int
    end: int
    rows: Tensor


class Checkpoints(nn.Module):
    """Whole tables and saved shards: a base class of ShardedEmbeddingBag."""

    @torch.no_grad()
    def full_weight(self) -> Tensor:
        """The whole table, on every rank. All ranks call it. Takes the memory of the table."""
        return self._gathered("full_weight", {"weight": self.weight})["weight"]

    @torch.no_grad()
    def load_full(self, weight: Tensor) -> None:
        """Copies this rank's rows from the whole table."""
        name = f"raggrad.dist.{_CLASS}.load_full"
        if not isinstance(weight, Tensor):
            raise TypeError(f"{name}: weight: expected a tensor, got {type(weight).__name__}")
        expected, got = (self.num_embeddings, self.dim), tuple(weight.shape)
        if got != expected:
            raise ValueError(f"{name}: weight: expected shape {expected}, got {got}")
        first, end = self.row_range
        self.weight.copy_(weight[first:end])

    def shard_state(self) -> dict[str, Any]:
        """The rows of this rank and their optimizer's states, without copies or messages, to be saved by every rank.

        load_shards reads them on any number of ranks.
        """
        rows = {"weight": self.weight.detach()}
        if self.optimizer is None:
            return {"first_row": self.row_range[0], "rows": rows}
        rows.update({_OF_OPTIMIZER + name: state for name, state in self._row_states().items()})
        return {"first_row": self.row_range[0], "rows": rows, "optimizer": self._other_states()}

    @torch.no_grad()
    def load_shards(self, shards: Iterable[Mapping[str, Any]]) -> None:
        """Copies this rank's rows from what shard_state() gave on all ranks of a run, however many these were.

        `shards` may come one by one, such as torch.load(path, mmap=True) for every path. If one is missing, that is a
        ValueError, and nothing has changed: those with rows of this rank are kept until all have come.
        """
        first, end = self.row_range
        parts: dict[str, list[_Part]] = {"weight": []}
        other_states: list[Mapping[str, Any]] = []
        for shard in shards:
            other_states.append(shard.get("optimizer", {}))
            for name, source in shard["rows"].items():
                begin = shard["first_row"]
                low, high = max(first, begin), min(end, begin + source.shape[0])
                if low < high:
                    parts.setdefault(name, []).append(_Part(low, high, source[low - begin : high - begin]))
        for name, found in parts.items():
            _check_that_none_is_missing(name, first, end, found)
        named = [(name, part) for name, found in parts.items() for part in found]
        for target, part in [(self._target(name, part.rows), part) for name, part in named]:
            target[part.first - first : part.end - first].copy_(part.rows)
        for states in other_states:
            self._set_other_states(states)

    # The optimizer keeps states with a row for each row of the shard, other states, and options.

    def _row_states(self) -> dict[str, Tensor]:
        return {name: state for name, state in self.optimizer.state[self.weight].items() if self._has_rows(state)}

    def _other_states(self) -> dict[str, Any]:
        """Numbers such as that of steps, and options such as the learning rate, which a scheduler may have changed."""
        states, options = self.optimizer.state[self.weight], self.optimizer.param_groups[0]
        return {
            "state": {name: state for name, state in states.items() if not self._has_rows(state)},
            "options": {name: option for name, option in options.items() if name != "params"},
        }

    def _set_other_states(self, saved: Mapping[str, Any]) -> None:
        if self.optimizer is not None:
            self.optimizer.state[self.weight].update(deepcopy(saved.get("state", {})))
            self.optimizer.param_groups[0].update(deepcopy(saved.get("options", {})))

    def _has_rows(self, state: Any) -> bool:
        return isinstance(state, Tensor) and state.dim() > 0 and state.shape[0] == self.weight.shape[0]

    @torch.no_grad()
    def _whole_states(self) -> dict[str, Any]:
        return {"rows": self._gathered("state_dict", self._row_states()), **self._other_states()}

    @torch.no_grad()
    def _load_whole_states(self, saved: Mapping[str, Any]) -> None:
        rows = {_OF_OPTIMIZER + name: state for name, state in saved.get("rows", {}).items()}
        for target, source in [(self._part_for(name, whole), whole) for name, whole in rows.items()]:
            target.copy_(source[slice(*self.row_range)])
        self._set_other_states(saved)

    def _part_for(self, name: str, whole: Any) -> Tensor:
        """Where this rank's rows of a whole array go."""
        if not isinstance(whole, Tensor) or whole.shape[:1] != (self.num_embeddings,):
            got = whole.shape[0] if isinstance(whole, Tensor) and whole.dim() else whole
            raise ValueError(
                f"raggrad.dist.{_CLASS}: size mismatch for {name}: expected {self.num_embeddings} rows, got {got}"
            )
        return self._target(name, whole)

    def _target(self, name: str, source: Tensor) -> Tensor:
        """This rank's rows of what is loaded from `source`, which has rows of the same shape."""
        if name == "weight":
            target = self.weight
        elif self.optimizer is None:
            raise ValueError(f"raggrad.dist.{_CLASS}: {name}: there is no optimizer")
        else:
            state, key = self.optimizer.state[self.weight], name.removeprefix(_OF_OPTIMIZER)
            if key not in state:
                shape = (self.weight.shape[0], *source.shape[1:])
                state[key] = torch.zeros(shape, dtype=source.dtype, device=self.weight.device)
            target = state[key]
        if target.shape[1:] != source.shape[1:]:
            expected, got = tuple(target.shape[1:]), tuple(source.shape[1:])
            raise ValueError(f"raggrad.dist.{_CLASS}: {name}: expected rows of shape {expected}, got {got}")
        return target

    def _gathered(self, operation: str, rows: Mapping[str, Tensor]) -> dict[str, Tensor]:
        arrays = [[array.detach().contiguous()] for array in rows.values()]
        ranks = self._ranks(operation)
        ranks.agree({**self._facts(), "arrays:": ", ".join(rows)})
        return {name: table[0] for name, table in zip(rows, gather(ranks, "table", arrays), strict=True)}

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        destination[f"{prefix}weight"] = self.full_weight()
        if self.optimizer is not None:
            destination[prefix + _STATES] = self._whole_states()

    @torch.no_grad()
    def _load_from_state_dict(
        self,
        state_dict: Mapping[str, Any],
        prefix: str,
        local_metadata: Mapping[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        mine = {key.removeprefix(prefix): value for key, value in state_dict.items() if key.startswith(prefix)}
        known = ["weight"] if self.optimizer is None else ["weight", _STATES]
        if strict:  # a table alone may be loaded, too
            missing_keys.extend([] if "weight" in mine else [f"{prefix}weight"])
            unexpected_keys.extend(prefix + name for name in mine if name not in known)
        try:
            if "weight" in mine:
                self._part_for("weight", mine["weight"]).copy_(mine["weight"][slice(*self.row_range)])
            if _STATES in mine and _STATES in known:
                self._load_whole_states(mine[_STATES])
        except ValueError as error:
            error_msgs.append(f"{prefix.removesuffix('.')}: {error}" if prefix else str(error))


def _check_that_none_is_missing(name: str, first: int, end: int, parts: Iterable[_Part]) -> None:
    """Refuses parts that are not the rows [first, end), each once."""
    ranges = sorted(part[:2] for part in parts)
    bounds = [first, *(stop for _, stop in ranges)]
    if [begin for begin, _ in ranges] != bounds[:-1] or bounds[-1] != end:
        got = ", ".join(f"{begin} to {stop - 1}" for begin, stop in ranges) or "none"
        raise ValueError(
            f"raggrad.dist.{_CLASS}.load_shards: {name}: expected rows {first} to {end - 1}, each once, got {got}"
        )


class OptimizerStates(nn.Module):
    """Where the state_dict of a divided table has what its optimizer keeps. The table's module saves and loads it.

    torch.distributed.checkpoint follows a key through attributes, and asks modules by their class whether they have
    something that is neither a parameter nor a buffer. A table without an optimizer has no such module.
    """

    def get_extra_state(self) -> None:
        """Says that there is some."""

    def _save_to_state_dict(self, *_: Any) -> None:
        pass

    def _load_from_state_dict(self, *_: Any) -> None:
        pass
