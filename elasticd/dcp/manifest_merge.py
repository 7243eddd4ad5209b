"""Puts the answers of all ranks together to one manifest.

Each rank numbers the tensors that it wrote by itself and takes its plain values apart by itself.
This module rebuilds the nested state with placeholders for the tensors, so that the skeleton and
the names are the same as if elasticd had saved that state.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.distributed.checkpoint._nested_dict import unflatten_state_dict
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata

from elasticd.checkpoint.format.manifest import (
    Fragment,
    Header,
    Manifest,
    Part,
    Piece,
    Tensor,
    merged,
)
from elasticd.dcp.catalog import ROOT
from elasticd.dcp.part_write import described
from elasticd.errors import InvariantBroken
from elasticd.tensors import tree
from elasticd.tensors.tree import Tree

__all__ = ["Value", "Written", "merge"]

Key = str | tuple[int, int]
"""The key of a tensor: DCP's name; or, inside a value, the share and the index there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """A flattened value that is no tensor; `tensors` are those in it, by index in `Written`."""

    skeleton: str
    tensors: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The answer of one rank."""

    share: int
    parts: tuple[Part, ...]
    pieces: tuple[Piece, ...]
    """The pieces; their tensors are indices into `tensors`."""
    tensors: tuple[Tensor, ...]
    """The tensors, one for each box that was written."""
    values: Mapping[str, Value]

    def keys(self) -> list[Key]:
        """Return which tensor each of `tensors` is."""
        inside = {index for value in self.values.values() for index in value.tensors}
        return [
            (self.share, index) if index in inside else tensor.name
            for index, tensor in enumerate(self.tensors)
        ]


def merge(header: Header, metadata: Metadata, every: Sequence[Written]) -> Manifest:
    """Return the manifest; `header` still lacks its skeleton and tensors.

    Raises:
        Damaged: the ranks did not write all of a tensor, or some of it twice.
    """
    tensors: dict[Key, Tensor] = {}
    stand_ins: dict[int, Key] = {}

    def stand_in(key: Key, tensor: Tensor) -> torch.Tensor:
        tensors[key] = tensor
        made = torch.empty(0)
        kept.append(made)
        stand_ins[id(made)] = key
        return made

    kept: list[torch.Tensor] = []
    """Alive, so that no two have one id."""
    paths = metadata.planner_data or {}
    values = dict(_values(every, stand_in))
    state = {}
    for name, entry in metadata.state_dict_metadata.items():
        if isinstance(entry, TensorStorageMetadata):
            leaf: Any = stand_in(name, described(name, entry.properties.dtype, entry.size))
        elif name in values:
            leaf = values[name]
        else:
            raise InvariantBroken(f"No rank wrote {name}.")
        state[name] = leaf
    paths = {name: paths.get(name, (name,)) for name in state}
    taken = tree.flatten(ROOT, unflatten_state_dict(state, paths))
    keys = [stand_ins[id(each)] for each in taken.tensors]
    header = replace(
        header,
        skeleton=taken.skeleton,
        tensors=tuple(
            replace(tensors[key], name=name)
            for key, name in zip(keys, tree.paths(taken), strict=True)
        ),
    )
    index_of = {key: index for index, key in enumerate(keys)}
    return merged([_fragment(each, header, index_of) for each in sorted(every, key=_share)])


def _share(written: Written) -> int:
    return written.share


def _values(every: Sequence[Written], stand_in: Any) -> Iterator[tuple[str, Any]]:
    for each in every:
        for name, value in each.values.items():
            inside = tuple(
                stand_in((each.share, index), each.tensors[index]) for index in value.tensors
            )
            yield name, tree.unflatten(Tree(value.skeleton, inside))


def _fragment(written: Written, header: Header, index_of: Mapping[Key, int]) -> Fragment:
    keys = written.keys()
    return Fragment(
        snapshot=header.snapshot,
        uid=header.uid,
        share=written.share,
        shares=header.shares,
        parts=written.parts,
        pieces=tuple(
            replace(piece, tensor=index_of[keys[piece.tensor]]) for piece in written.pieces
        ),
        header=header if written.share == 0 else None,
    )
