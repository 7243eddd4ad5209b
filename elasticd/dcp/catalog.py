"""A manifest in the words of torch.distributed.checkpoint: dotted names, boxes, plain values.

DCP flattens nested state by rules of its own (lists only if tensors or dicts are in them, tuples
never), and names the results by their path, as in `model.0.weight`, without a root. So the skeleton
is rebuilt with placeholders for the tensors, and DCP's own function flattens it: whatever the rules
are in this torch, both sides of a load follow the same.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch.distributed.checkpoint._nested_dict import flatten_state_dict
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    TensorProperties,
    TensorStorageMetadata,
)

from elasticd.checkpoint.format.box_cover import Box
from elasticd.checkpoint.format.json_read import Damaged
from elasticd.checkpoint.format.manifest import Manifest, Tensor
from elasticd.errors import Fenced, NotSupported
from elasticd.tensors import tree
from elasticd.tensors.tensor_spec import dtype_of
from elasticd.tensors.tree import Tree

__all__ = ["ROOT", "Catalog", "catalog"]

ROOT = "state"
"""The first component of a manifest's names; DCP's names have none."""

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalog:
    """The contents of a checkpoint, by DCP's names."""

    metadata: Metadata
    pieces: Mapping[tuple[str, tuple[int, ...]], int]
    """The index of the piece of a tensor that begins at these offsets."""
    tensors: Mapping[str, tuple[int, ...]]
    """Indices of the manifest's tensors that are inside a value, as in a tuple of two tensors."""
    _values: Mapping[str, Any]
    _stand_ins: Mapping[int, int]

    def value(self, name: str, tensor: Callable[[int], torch.Tensor]) -> Any:
        """Return a value that is no tensor; `tensor` returns tensors in it, by the manifest's
        index.
        """
        return _filled(self._values[name], lambda each: tensor(self._stand_ins[id(each)]))


def catalog(manifest: Manifest) -> Catalog:
    """Return what a checkpoint holds.

    Raises: Damaged: its skeleton makes no sense. NotSupported: this torch lacks a type of number,
    or DCP has one name for two things.
    """
    tensors = manifest.header.tensors
    stand_ins = [torch.empty(0) for _ in tensors]
    index_of = {id(each): index for index, each in enumerate(stand_ins)}
    named, paths = _taken_apart(manifest.header.skeleton, stand_ins)
    boxes = _boxes(manifest)
    entries: dict[str, Any] = {}
    pieces: dict[tuple[str, tuple[int, ...]], int] = {}
    values: dict[str, Any] = {}
    inside: dict[str, tuple[int, ...]] = {}
    for name, value in named.items():
        if isinstance(value, torch.Tensor):
            index = index_of[id(value)]
            entries[name] = _described(tensors[index], boxes[index].values())
            pieces.update({(name, box[0]): piece for piece, box in boxes[index].items()})
        else:
            entries[name] = BytesStorageMetadata()
            values[name] = value
            inside[name] = tuple(index_of[id(each)] for each in _tensors(value))
    return Catalog(
        metadata=Metadata(state_dict_metadata=entries, planner_data=paths),
        pieces=pieces,
        tensors=inside,
        _values=values,
        _stand_ins=index_of,
    )


def _taken_apart(
    skeleton: str, stand_ins: Sequence[torch.Tensor]
) -> tuple[dict[str, Any], dict[str, Path]]:
    try:
        value = tree.unflatten(Tree(skeleton, tuple(stand_ins)))
        state = value if isinstance(value, dict) else {ROOT: value}
        named, paths = flatten_state_dict(state)
    except (Fenced, RecursionError) as exc:
        raise Damaged(f"Its skeleton cannot be read: {str(exc)[:200]}") from exc
    except ValueError as exc:
        raise NotSupported(
            f"torch.distributed.checkpoint would give one name to two values ({exc}): load it with "
            "elasticd.checkpoint.load."
        ) from exc
    return named, paths


def _boxes(manifest: Manifest) -> list[dict[int, Box]]:
    """Return for each tensor the pieces that hold any of it."""
    found: list[dict[int, Box]] = [{} for _ in manifest.header.tensors]
    for index, piece in enumerate(manifest.pieces):
        if prod(piece.shape):
            found[piece.tensor][index] = piece.offsets, piece.shape
    return found


def _described(tensor: Tensor, boxes: Iterable[Box]) -> TensorStorageMetadata:
    return TensorStorageMetadata(
        properties=TensorProperties(dtype=dtype_of(tensor)),
        size=torch.Size(tensor.shape),
        chunks=[
            ChunkStorageMetadata(offsets=torch.Size(offsets), sizes=torch.Size(shape))
            for offsets, shape in boxes
        ],
    )


def _tensors(value: Any) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    _filled(value, found.append)
    return found


def _filled(value: Any, tensor: Callable[[torch.Tensor], Any]) -> Any:
    """Copy a nested value with each tensor replaced."""
    if isinstance(value, torch.Tensor):
        return tensor(value)
    if isinstance(value, dict):
        copied = value.copy()
        for key, item in value.items():
            copied[key] = _filled(item, tensor)
        return copied
    if type(value) in (list, tuple):
        return type(value)(_filled(item, tensor) for item in value)
    return value
