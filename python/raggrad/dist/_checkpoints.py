"""The rows of a divided table and of its optimizer's states, saved and loaded on any number of ranks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ._routes import gather

_CLASS = "ShardedEmbeddingBag"


class Checkpoints(nn.Module):
    """Whole tables and saved shards: a base class of ShardedEmbeddingBag."""

    @torch.no_grad()
    def full_weight(self) -> Tensor:
        """The whole table, on every rank. All ranks call it. Takes the memory of the table."""
        return self._gathered({"weight": self.weight})["weight"]

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
        rows, others = self._states()
        return {"first_row": self.row_range[0], "rows": {name: row.detach() for name, row in rows.items()}, **others}

    @torch.no_grad()
    def load_shards(self, shards: Iterable[Mapping[str, Any]]) -> None:
        """Copies this rank's rows from what shard_state() gave on all ranks of a run, however many these were.

        `shards` may come one by one, such as torch.load(path, mmap=True) for every path. None may be missing.
        """
        first, end = self.row_range
        found: dict[str, int] = {}
        for shard in shards:
            self._set_other_states(shard)
            for name, source in shard["rows"].items():
                begin, stop = shard["first_row"], shard["first_row"] + source.shape[0]
                low, high = max(first, begin), min(end, stop)
                target = self._target(name, source)
                if low < high:
                    target[low - first : high - first].copy_(source[low - begin : high - begin])
                    found[name] = found.get(name, 0) + high - low
        for name in ["weight", *found]:
            if (count := found.get(name, 0)) != end - first:
                raise ValueError(
                    f"raggrad.dist.{_CLASS}.load_shards: {name}: expected rows {first} to {end - 1}, "
                    f"got {count} of them"
                )

    # State: arrays with a row for each row of the shard, and all else that the optimizer has.

    def _states(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        rows: dict[str, Tensor] = {"weight": self.weight}
        others: dict[str, Any] = {}
        for name, value in (self.optimizer.state[self.weight] if self.optimizer is not None else {}).items():
            has_rows = isinstance(value, Tensor) and value.dim() > 0 and value.shape[0] == self.weight.shape[0]
            (rows if has_rows else others)[f"optimizer.{name}"] = value
        return rows, others

    def _target(self, name: str, source: Tensor) -> Tensor:
        """This rank's rows of what is loaded from `source`, which has rows of the same shape."""
        if name == "weight":
            target = self.weight
        elif self.optimizer is None:
            raise ValueError(f"raggrad.dist.{_CLASS}: {name}: there is no optimizer")
        else:
            state, key = self.optimizer.state[self.weight], name.removeprefix("optimizer.")
            if key not in state:
                shape = (self.weight.shape[0], *source.shape[1:])
                state[key] = torch.zeros(shape, dtype=source.dtype, device=self.weight.device)
            target = state[key]
        if target.shape[1:] != source.shape[1:]:
            expected, got = tuple(target.shape[1:]), tuple(source.shape[1:])
            raise ValueError(f"raggrad.dist.{_CLASS}: {name}: expected rows of shape {expected}, got {got}")
        return target

    def _set_other_states(self, state: Mapping[str, Any], prefix: str = "optimizer.") -> None:
        for name, value in state.items():
            if name.startswith(prefix) and self.optimizer is not None:
                value = value.clone() if isinstance(value, Tensor) else value
                self.optimizer.state[self.weight][name.removeprefix(prefix)] = value

    def _gathered(self, rows: Mapping[str, Tensor]) -> dict[str, Tensor]:
        arrays = [[array.detach().contiguous()] for array in rows.values()]
        ranks = self._ranks("full_weight")
        ranks.agree({**self._facts(), "arrays:": ", ".join(rows)})
        return {name: table[0] for name, table in zip(rows, gather(ranks, "table", arrays), strict=True)}

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        rows, others = self._states()
        for name, value in {**self._gathered(rows), **others}.items():
            destination[prefix + name] = value

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
        if "weight" not in mine:
            missing_keys.extend([f"{prefix}weight"] if strict else [])
        first, end = self.row_range
        for name, value in mine.items():
            is_state = name.startswith("optimizer.") and self.optimizer is not None
            if name != "weight" and not is_state:
                unexpected_keys.extend([prefix + name] if strict else [])
            elif is_state and (not isinstance(value, Tensor) or value.dim() == 0):
                self._set_other_states({name: value})
            elif not isinstance(value, Tensor) or value.shape[:1] != (self.num_embeddings,):
                got = value.shape[0] if isinstance(value, Tensor) and value.dim() else value
                error_msgs.append(f"size mismatch for {prefix}{name}: expected {self.num_embeddings} rows, got {got}")
            else:
                try:
                    self._target(name, value).copy_(value[first:end])
                except ValueError as error:
                    error_msgs.append(str(error))
