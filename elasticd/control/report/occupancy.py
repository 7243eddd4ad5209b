"""The jobs that hold the nodes' slots, and the consequences for a job that waits.

The records of a job without a world say which of its nodes are being prepared. The reason why the
job has no other nodes is in other records: the worlds and members of other jobs, and the nodes.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from elasticd.control.report.unreadable import UnreadableRecords, readable_nodes
from elasticd.records.codec import decode
from elasticd.records.failure import SLOT_LIMIT
from elasticd.records.ids import JobName, NodeId, names
from elasticd.records.job import JobSpec, JobStatus, nodes_missing
from elasticd.records.keys import Keys
from elasticd.records.member import Drain, Member, Node
from elasticd.records.reason import Phase
from elasticd.records.world import World
from elasticd.store.api import ReadableStore

__all__ = [
    "ClusterOccupancy",
    "Use",
    "broken",
    "elsewhere",
    "holders",
    "kept_on",
    "ended_jobs_on",
    "left_out",
    "read_cluster",
    "read_uses",
    "uses_of",
    "waiting_for",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """A job's hold on slots of one node."""

    job: JobName
    node: NodeId
    slots: int
    is_training: bool
    """True if the job trains there; otherwise it waits there for a world, or has a spare there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOccupancy:
    """All nodes, the drained nodes, and the jobs that use them."""

    nodes: tuple[Node, ...] = ()
    drained: frozenset[NodeId] = frozenset()
    unattended: frozenset[NodeId] = frozenset()
    """The nodes that a Kubernetes operator drained, if no operator leads now to undrain them."""
    uses: tuple[Use, ...] = ()


def uses_of(
    spec: JobSpec, status: JobStatus, world: World | None, members: Iterable[Member]
) -> tuple[Use, ...]:
    """Return the slots that one job holds, by its own records."""
    if status.phase.is_final:
        return ()
    named = {n.node: n for n in world.nodes} if world is not None else {}
    uses = []
    for member in members:
        node = named.get(member.node)
        is_training = (
            status.phase is Phase.RUNNING
            and node is not None
            and node.incarnation == member.incarnation
        )
        count = len(node.workers) if is_training and node is not None else spec.workers_per_node
        uses.append(
            Use(
                job=spec.name,
                node=member.node,
                slots=count or len(member.slots),
                is_training=is_training,
            )
        )
    return tuple(uses)


def read_cluster(
    store: ReadableStore, keys: Keys, unreadable: UnreadableRecords
) -> ClusterOccupancy:
    """Read the nodes, and the slots that unfinished jobs hold there.

    `unreadable` notes the jobs and nodes that are left out.
    """
    uses = read_uses(store, keys, unreadable)
    drained, by_operator = set(), set()
    for item in store.list(keys.drains).items:
        node = NodeId(item.key.removeprefix(keys.drains))
        drained.add(node)
        with unreadable.left_out(f"the reason of the drain of {node}"):
            if decode(Drain, item.value).by:
                by_operator.add(node)
    if by_operator and store.list(keys.operator_election()).items:
        by_operator = set()
    return ClusterOccupancy(
        nodes=tuple(readable_nodes(store.list(keys.nodes).items, keys, unreadable)),
        drained=frozenset(drained),
        unattended=frozenset(by_operator),
        uses=uses,
    )


def read_uses(store: ReadableStore, keys: Keys, unreadable: UnreadableRecords) -> tuple[Use, ...]:
    """Read the slots that unfinished jobs hold; `unreadable` notes the jobs that are left out."""
    uses: list[Use] = []
    for item in store.list(keys.active).items:
        job = JobName(item.key.removeprefix(keys.active))
        with unreadable.left_out(f"job {job}"):
            uses += _uses_of(store, keys, job)
    return tuple(uses)


def ended_jobs_on(store: ReadableStore, keys: Keys, node: NodeId) -> tuple[JobName, ...]:
    """Return the jobs that are over and whose workers the node has yet to end: their last save may
    be under way there. A node deletes its member record when they are gone.
    """
    ended = (JobName(key.removeprefix(keys.ended)) for key in store.keys(keys.ended))
    return tuple(job for job in ended if store.get(keys.member(job, node)) is not None)


def waiting_for(spec: JobSpec, members: Iterable[Member]) -> str:
    """Return a sentence that says for what a job waits; the job has no world and no message yet."""
    members = tuple(members)
    text = f"waiting for {nodes_missing(spec, sum(bool(m.slots) for m in members))}"
    reasons = broken(members)
    preparing = [m.node for m in members if not m.slots and not m.is_unable_to_start]
    return text + (f"; preparing: {names(preparing)}" if preparing else "") + reasons


def broken(members: Iterable[Member]) -> str:
    """Return the members that can never start a worker, and why; empty if there are none."""
    return "".join(
        f"; {member.node} cannot start workers: {member.failure.exception.rstrip('.')}"
        for member in members
        if member.failure is not None and member.is_unable_to_start
    )


def left_out(members: Iterable[Member]) -> str:
    """Return the slots in which no process is started any more; empty if there are none."""
    found = [f"slot {slot} of {member.node}" for member in members for slot in member.given_up]
    if not found:
        return ""
    are = "is" if len(found) == 1 else "are"
    return (
        f"{', '.join(found)} {are} left out, as {SLOT_LIMIT} processes in a row ended there: look "
        "at the machine, then `elasticd drain` it and take that back"
    )


def kept_on(world: World | None, members: Iterable[Member]) -> str:
    """Return which nodes must stay although they should leave, since only they have the state.

    The text is empty if there are none.
    """
    members = tuple(members)
    staying = [m for m in members if m.leaving is None]
    if world is None or any(_has_state(member) for member in staying):
        return ""
    going = [m.node for m in members if m.leaving is not None and _has_state(m)]
    going = [node for node in going if world.node(node) is not None]
    if not going or not staying:
        return ""
    heirs = names([member.node for member in staying])
    return (
        f"{names(going)} trains on until another node has taken over the state, which no other "
        f"has: waiting for {heirs} to be ready"
    )


def _has_state(member: Member) -> bool:
    return any(offer.has_state and offer.is_prepared for offer in member.slots)


def elsewhere(spec: JobSpec, members: Iterable[Member], cluster: ClusterOccupancy) -> str:
    """Return what holds the nodes that a waiting job does not have; the text begins with "; "."""
    text = holders(spec, members, cluster)
    if len(_fitting(spec, cluster)) >= spec.min_nodes:
        return text
    if spec.is_local:
        return f"{text}: call the same on the other hosts"
    flags = "".join(f" --label {key}={value}" for key, value in spec.node_labels.items())
    return f"{text}: start `elasticd agent{flags}` on more machines"


def holders(spec: JobSpec, members: Iterable[Member], cluster: ClusterOccupancy) -> str:
    """Return why a waiting job does not have the nodes that it could use.

    Other jobs use them, they drain, or the cluster has too few of them.
    """
    here = {member.node for member in members}
    nodes = _fitting(spec, cluster)
    drained = [n for n, node in nodes.items() if n in cluster.drained or node.is_draining]
    held: dict[tuple[JobName, ...], list[NodeId]] = {}
    by_node = _by_node(use for use in cluster.uses if use.job != spec.name)
    for name, node in nodes.items():
        uses = by_node.get(name, [])
        free = node.slots - sum(use.slots for use in uses)
        if name not in here and name not in drained and free < max(1, spec.workers_per_node):
            held.setdefault(tuple(sorted(use.job for use in uses)), []).append(name)
    training = {use.job for use in cluster.uses if use.is_training}
    text = "".join(
        f"; in use: {names(found)} by "
        + " and ".join(job if job in training else f"{job}, which waits itself" for job in jobs)
        for jobs, found in held.items()
        if jobs
    )
    text += f"; draining: {names(drained)}" if drained else ""
    if left := [name for name in drained if name in cluster.unattended]:
        text += (
            f" ({names(left)} by `elasticd operator`, which does not run: start it, or take that "
            "back by `elasticd drain --undo`)"
        )
    if len(nodes) >= spec.min_nodes:
        return text
    are, plural = ("is", "") if len(nodes) == 1 else ("are", "s")
    return f"{text}; there {are} {len(nodes)} such node{plural} in all"


def _fitting(spec: JobSpec, cluster: ClusterOccupancy) -> Mapping[NodeId, Node]:
    """Return the nodes that the job could use if no other job used them."""
    return {
        node.node: node
        for node in cluster.nodes
        if spec.may_run_on(node.labels) and node.slots >= spec.workers_per_node
    }


def _uses_of(store: ReadableStore, keys: Keys, job: JobName) -> tuple[Use, ...]:
    spec, status = store.get(keys.spec(job)), store.get(keys.status(job))
    if spec is None or status is None:
        return ()
    world = store.get(keys.world(job))
    members = store.list(keys.members(job)).items
    return uses_of(
        decode(JobSpec, spec.value),
        decode(JobStatus, status.value),
        decode(World, world.value) if world is not None else None,
        [decode(Member, member.value) for member in members],
    )


def _by_node(uses: Iterable[Use]) -> Mapping[NodeId, list[Use]]:
    found: dict[NodeId, list[Use]] = {}
    for use in uses:
        found.setdefault(use.node, []).append(use)
    return found
