"""The world: who trains in one generation, with which rank."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from elasticd.records.failure import Failure
from elasticd.records.ids import Generation, Incarnation, NodeId, Nonce, Rank, Slot
from elasticd.records.member import StoreAddress
from elasticd.records.reason import Reason

__all__ = ["Exclusion", "Placement", "World", "WorldNode", "WorldWorker"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldWorker:
    slot: Slot
    nonce: Nonce


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldNode:
    """One node's workers; their ranks are `first_rank` and the following ones, in this order."""

    node: NodeId
    incarnation: Incarnation
    host: str
    address: str
    port: int
    first_rank: Rank
    workers: tuple[WorldWorker, ...]
    since: Generation = Generation(0)
    """The first generation of the unbroken line of worlds that have this incarnation."""
    new_slots: tuple[Slot, ...] = ()
    """For a node that was in the world before: slots whose process was not, or never formed one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exclusion:
    """Why a node is not in this world; that incarnation never comes back."""

    node: NodeId
    incarnation: Incarnation
    reason: Reason
    generation: Generation
    """The first generation without it."""
    losses: int = 1
    """How often in a row the node was lost: it waits longer each time it comes back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """The place of one rank."""

    rank: Rank
    local_rank: int
    group_rank: int
    node: WorldNode
    worker: WorldWorker


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """A proposer writes it by compare-and-set; its generation fences everything."""

    generation: Generation
    nodes: tuple[WorldNode, ...]
    """The nodes in the order of their ranks."""
    store: StoreAddress
    reason: Reason
    culprit: Failure | None = None
    lost: tuple[NodeId, ...] = ()
    """The nodes of the world before that are not in this one."""
    excluded: tuple[Exclusion, ...] = ()
    proposer: NodeId = NodeId("")
    token: str = ""
    """A text unique to the proposal: after an ambiguous answer it shows whose write it was."""
    planned_revision: int = 0
    unended: Generation = Generation(0)
    """The oldest generation that may still have run when this one was agreed: none after it was
    seen to have formed. A node that was in it already (`since`) ends it by taking part in this
    one."""
    spent_stores: tuple[StoreAddress, ...] = ()
    """The stores of older worlds that their nodes' records still listed as fresh."""
    restarts: int = 0
    at_step: int | None = None
    """A worker that trains in an older generation stays there until it has applied at least this
    many steps, so that nothing is lost; None to leave at once."""
    uid: str = ""
    """The uid of the job's spec, as in its status."""
    note: str = ""
    """What people should know of this change beside its reason, in a sentence."""
    unknown: Mapping[str, object] = field(default_factory=dict)
    # Looked up on every event of every agent: built once, or a thousand nodes cost a million steps.
    _nodes: dict[NodeId, WorldNode] = field(init=False, repr=False, compare=False)
    _places: dict[NodeId, int] = field(init=False, repr=False, compare=False)
    _excluded: dict[NodeId, Exclusion] = field(init=False, repr=False, compare=False)
    size: int = field(init=False, repr=False, compare=False)
    """Return the number of ranks."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "_nodes", {n.node: n for n in self.nodes})
        object.__setattr__(self, "_places", {n.node: i for i, n in enumerate(self.nodes)})
        object.__setattr__(self, "_excluded", {e.node: e for e in self.excluded})
        object.__setattr__(self, "size", sum(len(n.workers) for n in self.nodes))

    def node(self, node: NodeId) -> WorldNode | None:
        return self._nodes.get(node)

    def has(self, node: NodeId, incarnation: Incarnation) -> bool:
        found = self._nodes.get(node)
        return found is not None and found.incarnation == incarnation

    def exclusion(self, node: NodeId) -> Exclusion | None:
        return self._excluded.get(node)

    def is_excluded(self, node: NodeId, incarnation: Incarnation) -> bool:
        found = self._excluded.get(node)
        return found is not None and found.incarnation == incarnation

    def placements(self) -> Iterator[Placement]:
        """Return every rank in order."""
        for group_rank, node in enumerate(self.nodes):
            yield from _placements(group_rank, node)

    def placements_of(self, node: WorldNode) -> Iterator[Placement]:
        """Return the ranks of one of its nodes, in order."""
        yield from _placements(self._places[node.node], node)


def _placements(group_rank: int, node: WorldNode) -> Iterator[Placement]:
    for local_rank, worker in enumerate(node.workers):
        yield Placement(
            rank=Rank(node.first_rank + local_rank),
            local_rank=local_rank,
            group_rank=group_rank,
            node=node,
            worker=worker,
        )
