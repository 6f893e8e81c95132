"""EmbeddingBagCollection: many tables, each with bags of its own, at the cost of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ._errors import check_tensor, has_numbers
from ._pooling import stacked
from ._pooling.waiting import must_not_wait
from ._tables.data_parallel import refuse_data_parallel
from ._tables.sparse_gradients import keep_coalesced
from .bags import bags_of, check_options, embedding_bag, row_number, weights_of

_CLASS = "EmbeddingBagCollection"


class _Place(NamedTuple):
    """Where a table lies: rows of the parameter that has all tables of its dim."""

    parameter: str
    table: stacked.Table
    dim: int


class EmbeddingBagCollection(nn.Module):
    """Many embedding bags in one call: the results and gradients, to the bits, of one EmbeddingBag for each table.

    `tables` is {name: (rows, dim)}, and the call takes {name: bags} and returns {name: pooled rows}; or it is a list of
    (rows, dim), and the call takes and returns lists. Bags of a feature are (ids, offsets), a 2-D tensor of ids, a
    jagged nested tensor, or a raggrad.Ragged; or (ids, offsets, per_sample_weights), the arguments of an EmbeddingBag,
    with ids in any of these forms. Numbers of bags may differ. A dict may leave features out.

    Tables of one dim are one parameter, `weight_<dim>`, with the rows of the first table on top. A call reads all ids
    three times and writes them twice, and copies weights once; then it costs one embedding_bag for each dim, forward
    and backward. Features without weights get ones if others of their dim have some; "mean" and "sqrtn" can then differ
    from separate modules in the last bit. Results of one dim share memory. An id beyond its table is a ValueError that
    names the feature; compiled code cannot name it.

    `state_dict` has `<name>.weight` for every table, as an nn.ModuleDict (or nn.ModuleList) of nn.EmbeddingBag has, so
    checkpoints load both ways. `tables.user.weight` is there, too, unless the module has something of that name; torch
    looks for it when it saves a model over many processes.

    `padding_idx` is the same for all tables; negative ones count from each table's end.

    >>> import torch, raggrad.torch as rt
    >>> tables = rt.EmbeddingBagCollection({"user": (100, 8), "words": (500, 8)}, mode="sum")
    >>> pooled = tables({"user": torch.tensor([[7], [9]]), "words": (torch.tensor([1, 2, 3]), torch.tensor([0, 2]))})
    >>> {name: tuple(rows.shape) for name, rows in pooled.items()}
    {'user': (2, 8), 'words': (2, 8)}
    >>> tables
    EmbeddingBagCollection(
      user: 100 x 8
      words: 500 x 8
      mode='sum', sparse=False
    )
    """

    def __init__(
        self,
        tables: Mapping[str, tuple[int, int]] | Sequence[tuple[int, int]],
        mode: str = "mean",
        sparse: bool = False,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_options(_CLASS, mode, False)
        for argument, flag in (("sparse", sparse), ("include_last_offset", include_last_offset)):
            if flag not in (True, False):
                raise TypeError(f"raggrad.torch.{_CLASS}: {argument}: expected True or False, got {flag!r}")
        if not isinstance(tables, Mapping | Sequence):
            raise TypeError(f"raggrad.torch.{_CLASS}: tables: expected a dict or a list, got {type(tables).__name__}")
        self.mode, self.sparse = mode, sparse
        self.include_last_offset, self.padding_idx = include_last_offset, padding_idx
        self._is_list = not isinstance(tables, Mapping)
        shapes = tables.items() if isinstance(tables, Mapping) else enumerate(tables)
        self._places: dict[str, _Place] = {}
        heights: dict[int, int] = {}
        for name, shape in shapes:
            rows, dim = _checked_shape(name, shape)
            first = heights.get(dim, 0)
            if str(name) in self._places:
                raise ValueError(f"raggrad.torch.{_feature(name)}: expected one table of this name, got two")
            self._places[str(name)] = _Place(f"weight_{dim}", stacked.Table(first, rows, None), dim)
            heights[dim] = first + rows
        for dim, rows in heights.items():
            weight = nn.Parameter(torch.empty(rows, dim, device=device, dtype=dtype))
            self.register_parameter(f"weight_{dim}", weight)
            if sparse:  # a compiled forward cannot do it
                keep_coalesced(weight)
        for name, place in self._places.items():
            padding_row = row_number(_feature(name), padding_idx, self.weight_of(name))
            self._places[name] = place._replace(table=place.table._replace(padding_idx=padding_row))
            if not hasattr(self, name):
                setattr(self, name, _Table(self, name))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draws all tables as nn.EmbeddingBag does, in the order they were given: rows of padding are zero."""
        for name, place in self._places.items():
            weight = nn.init.normal_(self.weight_of(name))
            if place.table.padding_idx is not None:
                weight[place.table.padding_idx].fill_(0)

    def forward(self, features: Any) -> Any:
        """Pools the bags of all features."""
        if not hasattr(features, "__len__" if self._is_list else "keys"):
            expected = "a list" if self._is_list else "a dict"
            raise TypeError(f"raggrad.torch.{_CLASS}: features: expected {expected}, got {type(features).__name__}")
        if self._is_list:
            if len(features) != len(self._places):
                raise ValueError(
                    f"raggrad.torch.{_CLASS}: features: expected one for each of {len(self._places)} tables, "
                    f"got {len(features)}"
                )
            pooled = self._pool(dict(zip(self._places, features, strict=True)))
            return [pooled[name] for name in self._places]
        pooled = self._pool(features)
        return {name: pooled[name] for name in features}

    def weight_of(self, name: str | int) -> Tensor:
        """The rows of one table: a view of the parameter that has them. Change it inside torch.no_grad()."""
        place = self._place_of(name)
        return getattr(self, place.parameter).narrow(0, place.table.first, place.table.rows)

    def tables(self) -> dict[str, Tensor]:
        """weight_of every table."""
        return {name: self.weight_of(name) for name in self._places}

    @torch.no_grad()
    def load_tables(self, weights: Mapping[str, Tensor]) -> None:
        """Copies the rows of some or all tables, such as the weights of nn.EmbeddingBag modules."""
        for name, weight in weights.items():
            table = self.weight_of(name)
            check_tensor(_feature(name), "weight", weight)
            if table.shape != weight.shape:
                raise ValueError(
                    f"raggrad.torch.{_feature(name)}: expected a weight of shape {tuple(table.shape)}, "
                    f"got {tuple(weight.shape)}"
                )
            table.copy_(weight)

    def extra_repr(self) -> str:
        lines = [f"{name}: {place.table.rows} x {place.dim}" for name, place in self._places.items()]
        options = f"mode={self.mode!r}, sparse={self.sparse}"
        if self.include_last_offset:
            options += ", include_last_offset=True"
        if self.padding_idx is not None:
            options += f", padding_idx={self.padding_idx}"
        return "\n".join([*lines, options])

    def _place_of(self, name: str | int) -> _Place:
        place = self._places.get(str(name))
        if place is None:
            raise ValueError(f"raggrad.torch.{_feature(name)}: there is no such table")
        return place

    def _pool(self, features: Mapping[str, Any]) -> dict[str, Tensor]:
        names_of: dict[str, list[str]] = {}
        for name in features:
            names_of.setdefault(self._place_of(name).parameter, []).append(name)
        pooled: dict[str, Tensor] = {}
        for parameter, names in names_of.items():
            bags = [self._bags_of(name, features[name]) for name in names]
            rows = self._pool_stacked(getattr(self, parameter), names, bags)
            # Users may change results in place: only these parts of `rows` are ever read.
            parts = torch.unsafe_split_with_sizes(rows, [stacked.count_of(feature) for feature in bags])
            pooled.update(zip(names, parts, strict=True))
        return pooled

    def _bags_of(self, name: str, feature: Any) -> stacked.Bags:
        table = getattr(self, self._place_of(name).parameter)
        given = feature if isinstance(feature, tuple | list) else (feature, None)
        if len(given) not in (2, 3):
            raise ValueError(
                f"raggrad.torch.{_feature(name)}: expected (ids, offsets) or (ids, offsets, per_sample_weights), "
                f"got {len(given)} values"
            )
        input, offsets, weights = (*given, None)[:3]
        bags = bags_of(_feature(name), input, offsets, self.include_last_offset)
        return stacked.Bags(*bags, weights_of(_feature(name), weights, input, *bags[:2], table))

    def _pool_stacked(self, weight: Tensor, names: list[str], bags: list[stacked.Bags]) -> Tensor:
        if self.sparse:
            refuse_data_parallel(f"raggrad.torch.{_CLASS}", weight, "its sparse gradients")
        tables = [self._place_of(name).table for name in names]
        unread = torch.compiler.is_compiling() or must_not_wait(weight) or not has_numbers(weight)
        together = stacked.stack(tables, bags, unread)
        try:
            if together is None:
                raise ValueError(f"raggrad.torch.{_CLASS}: an id or an offset is out of range")
            return embedding_bag(
                together.ids,
                weight,
                together.offsets,
                mode=self.mode,
                sparse=self.sparse,
                per_sample_weights=together.weights,
                padding_idx=together.padding_idx,
            )
        except ValueError:
            self._explain(names, bags)
            raise

    @torch.no_grad()
    def _explain(self, names: list[str], bags: list[stacked.Bags]) -> None:
        """Raises the error of the first feature that embedding_bag refuses when it comes alone."""
        for name, (ids, offsets, include_last_offset, weights) in zip(names, bags, strict=True):
            try:
                embedding_bag(
                    ids,
                    self.weight_of(name),
                    offsets,
                    mode=self.mode,
                    per_sample_weights=weights,
                    include_last_offset=include_last_offset,
                    padding_idx=self._place_of(name).table.padding_idx,
                )
            except ValueError as error:
                raise ValueError(str(error).replace("embedding_bag", _feature(name), 1)) from None

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        for name, weight in self.tables().items():
            destination[f"{prefix}{name}.weight"] = weight if keep_vars else weight.detach()

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
        wanted = {f"{prefix}{name}.weight": weight for name, weight in self.tables().items()}
        for key, weight in wanted.items():
            if key not in state_dict:
                missing_keys.extend([key] if strict else [])
            elif weight.is_meta:
                error_msgs.append(f"{key} is on the meta device: call to_empty(device=...) first")
            elif state_dict[key].shape != weight.shape:
                shapes = f"{tuple(weight.shape)}, got {tuple(state_dict[key].shape)}"
                error_msgs.append(f"size mismatch for {key}: expected {shapes}")
            else:
                weight.copy_(state_dict[key])
        if strict:
            unexpected_keys.extend(key for key in state_dict if key.startswith(prefix) and key not in wanted)


class _Table:
    """What is found under the name of a table: torch.distributed.checkpoint walks attributes by keys of state_dict."""

    def __init__(self, owner: EmbeddingBagCollection, name: str) -> None:
        self._owner, self._name = owner, name

    @property
    def weight(self) -> Tensor:
        return self._owner.weight_of(self._name)


def _checked_shape(name: str | int, shape: tuple[int, int]) -> tuple[int, int]:
    pair = isinstance(shape, Sequence) and len(shape) == 2 and all(isinstance(number, Integral) for number in shape)
    if not pair or shape[0] < 0 or shape[1] < 1:
        raise ValueError(f"raggrad.torch.{_feature(name)}: expected rows >= 0 and dim >= 1, got {shape}")
    return shape


def _feature(name: str | int) -> str:
    return f"{_CLASS}: feature {str(name)!r}"
