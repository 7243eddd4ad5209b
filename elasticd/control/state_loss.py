"""Checks whether a person's command would lose a job's state that only its processes have.

Such a command is refused unless it is forced. The script of a job in restart mode keeps the state
itself, and a job with `--checkpoint` saves its state before it ends. If other nodes have the same
state, the loss of a node loses nothing.
"""

from collections.abc import Iterable

from elasticd.control.jobs import find_spec
from elasticd.errors import Refused
from elasticd.records.codec import decode
from elasticd.records.ids import JobName, NodeId, names
from elasticd.records.job import JobStatus
from elasticd.records.keys import Keys
from elasticd.records.member import Member
from elasticd.records.reason import Phase
from elasticd.store.api import ReadableStore

__all__ = ["check_drain", "check_stop"]


def check_stop(store: ReadableStore, keys: Keys, job: JobName) -> None:
    """Check that the end of the job loses no trained state.

    Raises: Refused: the job has trained, and does not save its state.
    """
    if _is_saved(store, keys, job) or not _holders(_members(store, keys, job)):
        return
    raise Refused(
        f"Job {job!r} has trained and saves nothing (it was submitted without --checkpoint): to "
        "stop it throws that away. Call again with --force if that is what you want."
    )


def check_drain(
    store: ReadableStore, keys: Keys, node: NodeId, others: Iterable[NodeId] = ()
) -> None:
    """Check that every job on the node goes on elsewhere with its trained state.

    `others` are nodes that count as drained, though etcd does not say so.

    Raises: Refused: the node has the only copy of a state, or is to take it over from nodes that
        leave, and no other node can take it over.
    """
    drained = {NodeId(i.key.removeprefix(keys.drains)) for i in store.list(keys.drains).items}
    drained.update((node, *others))
    for item in store.list(keys.active).items:
        job = JobName(item.key.removeprefix(keys.active))
        if store.get(keys.member(job, node)) is None or _is_saved(store, keys, job):
            continue
        members = _members(store, keys, job)
        holders, targets = _holders(members), _state_targets(members)
        if not holders or node not in holders | targets:
            continue
        if holders - drained - _leaving(members):
            continue
        # They get the state before the node leaves. Without a world only a node that leaves already
        # keeps it for those who come.
        if targets - drained and (node not in holders or _is_running(store, keys, job)):
            continue
        part = f"has the only copy of what job {job!r} has trained"
        if node not in holders:
            # The drain of the others was accepted because of this node.
            source = names(sorted(holders))
            part = f"is to take over what job {job!r} has trained from {source}, which leaves"
        raise Refused(
            f"Node {node!r} {part}: no other node can take it over, and nothing is saved (no "
            "--checkpoint). Start `elasticd agent` on another machine first, or call again with "
            "--force to throw it away."
        )


def _is_saved(store: ReadableStore, keys: Keys, job: JobName) -> bool:
    """Return whether the job's state is saved.

    The result is always true in restart mode, where the script itself saves.
    """
    status = _status(store, keys, job)
    if status is None or status.phase.is_final:
        return True
    if not status.is_in_process and not any(m.is_in_process for m in _members(store, keys, job)):
        return True
    return find_spec(store, keys, job).checkpoint is not None


def _is_running(store: ReadableStore, keys: Keys, job: JobName) -> bool:
    status = _status(store, keys, job)
    return status is not None and status.phase is Phase.RUNNING


def _status(store: ReadableStore, keys: Keys, job: JobName) -> JobStatus | None:
    item = store.get(keys.status(job))
    return decode(JobStatus, item.value) if item is not None else None


def _members(store: ReadableStore, keys: Keys, job: JobName) -> tuple[Member, ...]:
    return tuple(decode(Member, item.value) for item in store.list(keys.members(job)).items)


def _holders(members: Iterable[Member]) -> set[NodeId]:
    """Return the nodes with a process that has the state."""
    return {m.node for m in members if any(o.has_state and o.is_prepared for o in m.slots)}


def _state_targets(members: Iterable[Member]) -> set[NodeId]:
    """Return the nodes that could take the state over, now or when they are prepared."""
    return {
        m.node
        for m in members
        if m.leaving is None and m.failure is None and not any(o.has_state for o in m.slots)
    }


def _leaving(members: Iterable[Member]) -> set[NodeId]:
    return {member.node for member in members if member.leaving is not None}
