"""Which shares of the state this rank copies, and on which node each share has its replica.

A rank copies its own share, an n-th of the whole, and a second time the share of a rank on the node
before. All replicas have the same values, so the second copy needs no network: each rank takes both
from its own memory, and the loss of a node loses no share. Sharded tensors are on one rank only:
the keeper of the next node gets a copy of them from this node's keeper (`is_alone`).
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter, is_not
from typing import Protocol

import torch

from elasticd.checkpoint.format.manifest import Tensor
from elasticd.checkpoint.format.share_layout import Layout, Slab, laid_out, shares
from elasticd.tensors.local_shard import LocalShard, local_part, memories_of, within
from elasticd.tensors.memory_copy import Pair
from elasticd.tensors.tensor_spec import described, views
from elasticd.tensors.tree import Tree, paths

__all__ = [
    "Address",
    "Savable",
    "SharePart",
    "SharePlan",
    "addresses",
    "has_spare",
    "next_node",
    "none_alike",
    "spare_of",
]

Address = tuple[int, tuple[int, ...]]
"""Where a tensor's elements stand: the first byte, and the strides in elements."""


def spare_of(rank: int, nodes: Sequence[int]) -> int | None:
    """Return the rank whose share this one holds a second time; None if there is only one node.

    `nodes` has the number of each rank's node. Each share has exactly one such holder, on the node
    after its own; if that node has fewer ranks, some shares have none.
    """
    others = sorted(set(nodes))
    if len(others) < 2:
        return None
    own = [each for each, node in enumerate(nodes) if node == nodes[rank]]
    before = others[others.index(nodes[rank]) - 1]
    theirs = [each for each, node in enumerate(nodes) if node == before]
    turn = own.index(rank)
    return theirs[turn] if turn < len(theirs) else None


def next_node(node: int, nodes: Sequence[int]) -> int | None:
    """Return the node that holds this node's shares a second time; None if there is no other."""
    others = sorted(set(nodes))
    return others[(others.index(node) + 1) % len(others)] if len(others) > 1 else None


def has_spare(rank: int, nodes: Sequence[int]) -> bool:
    """Return whether another rank is to hold this rank's share too (`spare_of`)."""
    after = next_node(nodes[rank], nodes)
    turn = sum(node == nodes[rank] for node in nodes[:rank])
    return after is not None and turn < sum(node == after for node in nodes)


def addresses(tree: Tree) -> list[Address]:
    """Return where in memory each tensor is.

    Equal addresses need no new views if the structure is the same too.
    """
    here = memories_of(tree.tensors)
    return list(zip(map(torch.Tensor.data_ptr, here), map(torch.Tensor.stride, here), strict=True))


class Savable(Protocol):
    """The parts of a state that a plan uses."""

    @property
    def position(self) -> tuple[int, int]: ...
    def tree(self) -> Tree: ...


def none_alike(tree: Tree) -> Sequence[bool]:
    """Return False for each tensor: of an unknown state any tensor may change at any moment."""
    return [False] * len(tree.tensors)


@dataclass(frozen=True, slots=True)
class SharePart:
    """One share of a state, as this rank copies it."""

    share: int
    holder: int
    layout: Layout
    now: tuple[int, ...]
    """The indices of the pieces that may change at any moment."""
    later: tuple[int, ...]
    """The indices of those that only an optimizer's step changes."""
    is_alone: bool = False
    """True if no rank of another node copies these bytes, so that keepers send them."""
    is_only_copy: bool = False
    """True if no rank of another node copies these bytes, sent or not."""

    def pairs(
        self, which: Iterable[int], here: Sequence[LocalShard], places: Sequence[torch.Tensor]
    ) -> list[Pair]:
        """Return (from, to) of these pieces."""
        pieces = self.layout.pieces
        return [
            (within(here[pieces[index].tensor], pieces[index]), places[index]) for index in which
        ]

    def places(self, memory: memoryview, tensors: Sequence[Tensor]) -> list[torch.Tensor]:
        return views(memory, tensors, self.layout.pieces, self.layout.starts())


@dataclass(frozen=True, slots=True)
class SharePlan:
    """The shares that this rank copies of a state of this structure."""

    tensors: tuple[Tensor, ...]
    forms: tuple[object, ...]
    """The type and shape of each tensor, and how those are spread that are no ordinary ones."""
    parts: tuple[SharePart, ...]
    is_mirrored: bool = False
    """True if there are several nodes, and a share of some rank is alone."""
    is_replicated: tuple[bool, ...] = ()
    """Of each tensor, what was said when this was planned (`of`)."""

    @classmethod
    def of(
        cls, tree: Tree, is_replicated: Sequence[bool], *, rank: int, nodes: Sequence[int]
    ) -> "SharePlan":
        """Plan for a rank of a world; `nodes` has the number of each rank's node.

        `is_replicated` says for each tensor whether all replicas have the same bits, and only an
        optimizer's step changes them.
        """
        tensors = described(tree)
        here = [local_part(tensor) for tensor in tree.tensors]
        plain = [index for index, each in enumerate(here) if each.is_plain_tensor]
        every = shares(
            [tensors[index] for index in plain],
            [is_replicated[index] for index in plain],
            len(nodes),
        )
        # Nobody else has what is sharded, so there is no second copy of such a share.
        is_sharded = len(plain) < len(here)
        spare = None if is_sharded else spare_of(rank, nodes)
        counts = Counter(nodes)
        is_mirrored = len(counts) > 1 and (is_sharded or len(set(counts.values())) > 1)
        is_only = is_sharded or not has_spare(rank, nodes)
        wanted = [(rank, 0)] + ([(spare, 1)] if spare is not None else [])
        parts = []
        for share, holder in wanted:
            slabs = [Slab(plain[each.tensor], each.offsets, each.shape) for each in every[share]]
            slabs += [
                Slab(index, each.origin, tuple(each.tensor.shape))
                for index, each in enumerate(here)
                if not each.is_plain_tensor and each.is_first and each.tensor.numel()
            ]
            layout = laid_out(tensors, slabs)
            now = tuple(i for i, p in enumerate(layout.pieces) if not is_replicated[p.tensor])
            later = tuple(i for i, p in enumerate(layout.pieces) if is_replicated[p.tensor])
            is_only_copy = is_only and holder == 0
            is_alone = is_mirrored and is_only_copy
            parts.append(SharePart(share, holder, layout, now, later, is_alone, is_only_copy))
        return cls(tensors, _forms(tree), tuple(parts), is_mirrored, tuple(is_replicated))

    def fits(self, tree: Tree, is_replicated: Sequence[bool]) -> bool:
        """Return whether a new plan for the state would be equal; it is cheap, and runs before each
        snapshot.

        All ranks plan anew at the same snapshot, or none: the shares of two plans do not make up a
        state. So parameters that an optimizer has got or lost since count too, though they change
        no tensor.
        """
        if len(tree.tensors) != len(self.tensors) or tuple(is_replicated) != self.is_replicated:
            return False
        is_same = _forms(tree) == self.forms
        return is_same and paths(tree) == tuple(map(attrgetter("name"), self.tensors))


def _forms(tree: Tree) -> tuple[object, ...]:
    """Return the type and shape of each tensor, and of a DTensor the mesh and placements.

    The forms are compared without a conversion, and read in one loop: there may be thousands, at
    each step.
    """
    tensors, here = tree.tensors, memories_of(tree.tensors)
    spread = tuple(
        (index, tensors[index].placements, tensors[index].device_mesh)  # type: ignore[attr-defined]
        for index, is_other in enumerate(map(is_not, tensors, here))
        if is_other
    )
    dtypes, shapes = (tuple(map(attrgetter(what), tensors)) for what in ("dtype", "shape"))
    return dtypes, shapes, spread
