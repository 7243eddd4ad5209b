"""Whether the living ranks still have a whole state together, and which rank brings which part.

Pure.

Of a sharded state each rank holds a box of each tensor. If the mesh has replicas, other ranks hold
the boxes of a lost rank too. So the living ranks may have the whole state together though no rank
has it alone. One state is what one generation committed at one position, of tensors that were
spread in one way: parts of two steps make no state, whatever they cover.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

from elasticd.checkpoint.format.box_cover import Box, uncovered
from elasticd.checkpoint.format.layout import Snapshot
from elasticd.checkpoint.format.manifest import Tensor

__all__ = ["ShardInventory", "StateLabel", "ShardCover", "shown", "survivors"]


class StateLabel(NamedTuple):
    """The state of which a rank has a part. Labels sort by age, the newest last."""

    run: int
    generation: int
    """The generation in which it was committed, or in which the snapshot was taken that it came
    from."""
    step: int
    epoch: int
    layout: int
    """The generation for whose world it was spread."""

    @property
    def snapshot(self) -> Snapshot:
        return Snapshot(run=self.run, generation=self.generation, step=self.step)


@dataclass(frozen=True, slots=True)
class ShardInventory:
    """The boxes that one rank has of a state."""

    tensors: tuple[Tensor, ...]
    """All tensors, whether the rank has elements of them or not."""
    boxes: tuple[Box | None, ...]
    """The box of each that is there; None for nothing."""
    is_own: tuple[bool, ...]
    """True if the rank has all of the tensor, and another one may have other values in it."""

    def to_json(self) -> str:
        return json.dumps(
            [
                [[each.name, each.dtype, each.shape] for each in self.tensors],
                self.boxes,
                [index for index, own in enumerate(self.is_own) if own],
            ],
            separators=(",", ":"),
        )

    @classmethod
    def from_json(cls, text: str) -> Self:
        tensors, boxes, own = json.loads(text)
        return cls(
            tuple(Tensor(name, dtype, tuple(shape)) for name, dtype, shape in tensors),
            tuple(None if box is None else (tuple(box[0]), tuple(box[1])) for box in boxes),
            tuple(index in set(own) for index in range(len(tensors))),
        )


@dataclass(frozen=True, slots=True)
class ShardCover:
    """A whole state, and which rank gives which boxes of it."""

    label: StateLabel
    teller: int
    """The rank whose plain values count, and whose tensors that are each rank's own."""
    given: Mapping[int, tuple[int, ...]]
    """The tensors of which a rank brings the box that it has."""

    def to_json(self) -> str:
        return json.dumps([self.label, self.teller, list(self.given.items())])

    @classmethod
    def from_json(cls, text: str) -> Self:
        label, teller, given = json.loads(text)
        return cls(StateLabel(*label), teller, {rank: tuple(found) for rank, found in given})


def shown(labels: Sequence[Mapping[StateLabel, str]]) -> dict[str, int]:
    """Return the names of all inventories, each with the rank that sends it to rank 0.

    `labels` has for each rank the states of which it has parts, with the name of its inventory;
    replicas have inventories of one name.
    """
    first: dict[str, int] = {}
    for rank, own in enumerate(labels):
        for name in own.values():
            first.setdefault(name, rank)
    return first


def survivors(
    labels: Sequence[Mapping[StateLabel, str]], inventories: Mapping[str, ShardInventory]
) -> ShardCover | None:
    """Return the newest state that is whole; None if there is none. `labels` as in `shown`."""
    for label in sorted({label for each in labels for label in each}, reverse=True):
        having = {rank: inventories[own[label]] for rank, own in enumerate(labels) if label in own}
        found = _whole(label, having)
        if found is not None:
            return found
    return None


def _whole(label: StateLabel, having: Mapping[int, ShardInventory]) -> ShardCover | None:
    teller = min(having)
    tensors, is_own = having[teller].tensors, having[teller].is_own
    if any(each.tensors != tensors for each in having.values()):
        return None  # Of another model, which whoever compares the structures will tell.
    given: dict[int, list[int]] = {rank: [] for rank in having}
    load_bytes = dict.fromkeys(having, 0)
    for index, tensor in enumerate(tensors):
        holders = _holders(index, {teller: having[teller]} if is_own[index] else having)
        if uncovered(tensor.shape, list(holders)):
            return None
        for (_, shape), ranks in holders.items():
            rank = min(ranks, key=lambda each: (load_bytes[each], each))
            given[rank].append(index)
            load_bytes[rank] += Tensor("", tensor.dtype, shape).nbytes
    return ShardCover(label, teller, {rank: tuple(found) for rank, found in given.items()})


def _holders(index: int, having: Mapping[int, ShardInventory]) -> dict[Box, list[int]]:
    """Return for each box of a tensor that is not empty the ranks that have the box."""
    found: dict[Box, list[int]] = {}
    for rank, inventory in having.items():
        box = inventory.boxes[index]
        if box is not None and 0 not in box[1]:
            found.setdefault(box, []).append(rank)
    return found
