"""What this process still has of a sharded state whose generation has ended.

A process has its boxes of the tensors, with which others may make the state whole (`shard_cover`
says when they can). It keeps them while the next generation builds its model and is filled, and
until that generation has committed a step: a rank that is interrupted before gives the same parts
once more. Parameters of the old mesh are kept as they are, since nothing trains them any more; what
may live on in the next generation is copied, and so is what a GPU holds, whose memory the next
model needs.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from elasticd.checkpoint.format.layout import Snapshot
from elasticd.checkpoint.format.share_layout import Slab, laid_out
from elasticd.errors import CallError, NotSupported
from elasticd.tensors.local_shard import LocalShard, local_part, within
from elasticd.tensors.tensor_spec import described, views
from elasticd.tensors.tree import Tree
from elasticd.train.shards.shard_cover import ShardInventory, StateLabel
from elasticd.train.shards.share_broadcast import Load

__all__ = ["Remnant", "Remnants"]


class ShardedState(Protocol):
    """The parts of a state that a remnant uses."""

    @property
    def position(self) -> tuple[int, int]: ...
    @property
    def is_clean(self) -> bool: ...
    @property
    def is_sharded(self) -> bool: ...
    def tree(self) -> Tree: ...


class Remnant:
    """The boxes that this process has of one state, which `label` names."""

    def __init__(self, label: StateLabel, tree: Tree, is_replicated: Sequence[bool]) -> None:
        """Take the tree's tensors as they are.

        Raises:
            NotSupported: a tensor is sharded so that this rank's part is no box.
            CallError: a tensor has a type that checkpoints cannot hold.
        """
        self.label, self.skeleton = label, tree.skeleton
        self._parts = [local_part(tensor) for tensor in tree.tensors]
        self.inventory = ShardInventory(
            described(tree),
            tuple((each.origin, tuple(each.tensor.shape)) for each in self._parts),
            tuple(
                each.is_plain_tensor and not is_equal
                for each, is_equal in zip(self._parts, is_replicated, strict=True)
            ),
        )
        self.text = self.inventory.to_json()
        self.name = hashlib.blake2b(self.text.encode(), digest_size=16).hexdigest()
        self._is_on_host = False

    def copy_to_host(self) -> None:
        """Copy the tensors that the next generation would change, or whose memory it needs."""
        if not self._is_on_host:
            self._parts = [_copied_to_host(each) for each in self._parts]
            self._is_on_host = True

    def pack(self, which: Iterable[int]) -> Load:
        """Return the boxes of these tensors, one behind the other."""
        tensors = self.inventory.tensors
        slabs = [Slab(i, self._parts[i].origin, tuple(self._parts[i].tensor.shape)) for i in which]
        layout = laid_out(tensors, slabs)
        memory, starts = memoryview(bytearray(layout.size)), tuple(layout.starts())
        places = views(memory, tensors, layout.pieces, starts)
        for piece, place in zip(layout.pieces, places, strict=True):
            place.copy_(within(self._parts[piece.tensor], piece))
        return memory, layout.pieces, starts


class Remnants:
    """All remnants of one process, for a whole run."""

    def __init__(self) -> None:
        self._kept: list[Remnant] = []
        self._entered: tuple[int, tuple[int, int]] | None = None
        """The generation for which the live state was built, and where it began; None: it is not
        known which state it is."""
        self._origin: Snapshot | None = None
        """Which state it began with; None: none that anybody had before."""

    @property
    def has_any(self) -> bool:
        return bool(self._kept)

    def enter(self, generation: int, position: tuple[int, int], origin: Snapshot | None) -> None:
        """Note that the live state is `origin`, at this position, and that this generation trains
        it.
        """
        self._entered, self._origin = (generation, position), origin

    def invalidate(self) -> None:
        """Note that the live state is about to be replaced."""
        self._entered = None

    def collect(
        self, state: ShardedState, is_replicated: Callable[[Tree], Sequence[bool]], run: int
    ) -> None:
        """Keep the boxes that a generation that has ended left of its state, if any can be used.

        `state` is back at the last commit. `is_replicated` is as in `SharePlan.of`. `run` is the
        run of the checkpoints, or 0.
        """
        label = self._label_of(state, run)
        if label is None or any(each.label == label for each in self._kept):
            return
        tree = state.tree()
        try:
            self._kept.append(Remnant(label, tree, is_replicated(tree)))
        except (NotSupported, CallError):
            # No snapshot can be taken of it either, and whoever tries says so.
            return

    def named(self) -> Mapping[StateLabel, Remnant]:
        """Return the remnants by their labels."""
        return {each.label: each for each in self._kept}

    def keep(self, label: StateLabel | None) -> Remnant | None:
        """Forget all remnants but this one, secure it, and return it."""
        self._kept = [each for each in self._kept if each.label == label]
        for each in self._kept:
            each.copy_to_host()
        return self._kept[0] if self._kept else None

    def _label_of(self, state: ShardedState, run: int) -> StateLabel | None:
        if self._entered is None or not state.is_clean or not state.is_sharded:
            return None
        generation, position = self._entered
        snapshot = self._origin
        if state.position != position:
            snapshot = Snapshot(run=run, generation=generation, step=state.position[0])
        if snapshot is None:
            return None  # Nothing was committed: a new beginning is as good.
        return StateLabel(
            snapshot.run, snapshot.generation, snapshot.step, state.position[1], generation
        )


def _copied_to_host(part: LocalShard) -> LocalShard:
    tensor = part.tensor
    if tensor.device.type != "cpu":
        return part._replace(tensor=tensor.cpu())
    return part._replace(tensor=tensor.clone()) if part.is_plain_tensor else part
