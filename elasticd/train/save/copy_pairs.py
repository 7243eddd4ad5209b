"""What a snapshot copies from where to where, remembered from one snapshot to the next.

To find the pairs takes longer than some copies. The pairs stay valid while the tensors of a state
stay where they are in memory, as they do after the first steps.
"""

from collections.abc import Sequence

from elasticd.tensors.local_shard import LocalShard, local_part
from elasticd.tensors.memory_copy import MemoryCopy, Pair
from elasticd.tensors.tree import Tree
from elasticd.train.save.keeper_buffers import KeeperBuffers
from elasticd.train.save.share_plan import Address, addresses

__all__ = ["CopyPairs"]


class CopyPairs:
    """The pairs of a tensor and the memory for it, of all buffers of one plan."""

    def __init__(self) -> None:
        self._addresses: list[Address] = []
        self._known: dict[tuple[int, int], tuple[list[Pair], list[Pair]]] = {}
        """What is copied now and later, by the id of the buffers and the number of the buffer."""
        self._whole: dict[tuple[tuple[int, int], ...], MemoryCopy] = {}
        """All of it as one copy."""

    def of(
        self, tree: Tree, claimed: Sequence[tuple[KeeperBuffers, int]]
    ) -> tuple[list[Pair], list[Pair]]:
        """Return the pairs to copy now and those for later; a moved tensor makes both anew."""
        found = addresses(tree)
        if found != self._addresses:
            self.forget()
            self._addresses = found
        here: list[LocalShard] = []
        now: list[Pair] = []
        later: list[Pair] = []
        for buffers, buffer in claimed:
            key = buffers.id, buffer
            if key not in self._known:
                here = here or [local_part(tensor) for tensor in tree.tensors]
                places, part = buffers.places[buffer], buffers.part
                self._known[key] = (
                    part.pairs(part.now, here, places),
                    part.pairs(part.later, here, places),
                )
            now += self._known[key][0]
            later += self._known[key][1]
        return now, later

    def at_once(self, tree: Tree, claimed: Sequence[tuple[KeeperBuffers, int]]) -> MemoryCopy:
        """Return one copy that has all the pairs that `of` returns."""
        now, later = self.of(tree, claimed)
        keys = tuple((buffers.id, buffer) for buffers, buffer in claimed)
        if keys not in self._whole:
            self._whole[keys] = MemoryCopy([*now, *later])
        return self._whole[keys]

    def forget(self) -> None:
        """Drop the references to the tensors, so that the script can free its state."""
        self._addresses = []
        self._known.clear()
        self._whole.clear()
