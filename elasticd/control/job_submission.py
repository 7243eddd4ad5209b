"""Submit jobs.

A job's name is reserved by `active/<job>`: first with `is_ready` False, while the records of an
ended job of that name are deleted, then True in the transaction that writes the new spec. There are
two transactions, since etcd takes no put under a prefix that the same transaction deletes. If a
submitter dies in between, it leaves a reservation, which the next submitter takes over.

A node that still ends the workers of an ended job has a member record among those records, and is
not to be forgotten: a worker may save yet, or run beside the new job's workers in the same folder.
So the name is free when the last of them is gone; that of a node that is lost goes with its lease.
"""

import time
from collections.abc import Callable

from elasticd.control.jobs import find_spec, wait_left
from elasticd.control.report.unreadable import UnreadableRecords, readable_nodes
from elasticd.control.same_job import check_same
from elasticd.errors import CallError, NotFound, NotSupported, Refused
from elasticd.records.codec import decode, encode
from elasticd.records.ids import JobName, NodeId, names
from elasticd.records.job import Active, JobSpec, JobStatus
from elasticd.records.keys import Keys
from elasticd.store.api import Delete, ModifiedAt, Put, ReadableStore, Store, Txn

__all__ = ["check_room", "submit", "submit_or_join", "wait_ended"]

ATTEMPTS = 5
"""The number of tries of a compare-and-set: a submitter competes with a few others at most."""
LEAVE_SLACK_S = 15.0
"""How long the workers' end takes beside their shutdown timeout: a kill, the end of their pool, and
the lease of a node that was lost meanwhile."""


def submit(store: Store, keys: Keys, spec: JobSpec) -> None:
    """Write the job to etcd as pending; the agents do the rest.

    Raises: Refused: a job of that name runs, or nodes still end the workers of one that is over, or
    another process submits one at this moment.
    NotSupported: the spec is too large for a record.
    """
    record = encode(spec)  # What is refused here must not have cost an ended job its records.
    revision = _reserve(store, keys, spec)
    is_ours = ModifiedAt(key=keys.active_job(spec.name), revision=revision)
    cleared = store.commit(
        Txn(
            when=(is_ours,),
            then=(
                Delete(key=keys.job(spec.name), is_prefix=True),
                Delete(key=keys.ended_job(spec.name)),
            ),
        )
    )
    written = cleared.succeeded and store.commit(
        Txn(
            when=(is_ours,),
            then=(
                Put(key=keys.spec(spec.name), value=record),
                Put(key=keys.status(spec.name), value=encode(JobStatus(uid=spec.uid))),
                Put(
                    key=keys.active_job(spec.name),
                    value=encode(Active(uid=spec.uid, is_ready=True)),
                ),
            ),
        )
    )
    if not written or not written.succeeded:
        raise Refused(
            f"Somebody else submitted a job named {spec.name!r} at the same moment: choose "
            "another --job, or follow theirs with `elasticd status`."
        )


def submit_or_join(
    store: Store,
    keys: Keys,
    spec: JobSpec,
    *,
    wait_s: float = 10.0,
    pause: Callable[[float], None] = time.sleep,
) -> JobSpec:
    """Submit the job unless it runs already; return the spec that is in etcd.

    `wait_s` is the time in seconds for another host to finish its submission. Nodes that end the
    workers of an earlier job of that name have the time that this job gave them.

    Raises:
        Refused: the job that runs under this name is another program, or is not run by `--join`.
    """
    waited_s, limit_s = 0.0, max(2 * wait_s, _leave_s(store, keys, spec.name))
    while True:
        active = _read_active(store, keys, spec.name)
        if active is not None and active.is_ready:
            standing = find_spec(store, keys, spec.name)
            check_same(standing, spec)
            return standing
        # Another host has a reservation: it may finish first; after a while it is taken over.
        if active is None or waited_s >= wait_s:
            try:
                submit(store, keys, spec)
            except Refused:
                if waited_s >= limit_s:
                    raise
            else:
                return spec
        pause(0.1)
        waited_s += 0.1


def wait_ended(
    store: ReadableStore,
    keys: Keys,
    job: JobName,
    *,
    on_wait: Callable[[str], None],
    is_given_up: Callable[[], bool],
    pause: Callable[[float], None] = time.sleep,
) -> None:
    """Wait for nodes that still end the workers of a job that is over, for as long as it gave them.

    The name of a job that runs is not waited for. `on_wait` gets a sentence if there is a wait.
    """
    if timeout_s := _leave_s(store, keys, job):
        on_wait(f"job {job} has just ended: waiting for its workers to end, and to save")
        wait_left(store, keys, job, timeout_s=timeout_s, is_given_up=is_given_up, pause=pause)


def check_room(store: ReadableStore, keys: Keys, spec: JobSpec) -> None:
    """Check that at least one node could hold the job's workers, if there is any node.

    Raises: CallError: every node offers fewer slots than the job wants on each node.
    """
    unread, items = UnreadableRecords(), store.list(keys.nodes).items
    nodes = [n for n in readable_nodes(items, keys, unread) if spec.may_run_on(n.labels)]
    if nodes and not unread.clause and all(n.slots < spec.workers_per_node for n in nodes):
        offers = ", ".join(f"{node.node}: {node.slots}" for node in nodes[:8])
        raise CallError(
            f"--nproc-per-node {spec.workers_per_node} is more than any node's slots ({offers}): "
            "ask for fewer, or start the agents with more --slots."
        )


# --- private ----------------------------------------------------------------------------------


def _reserve(store: Store, keys: Keys, spec: JobSpec) -> int:
    """Take `active/<job>` with is_ready False; return its revision."""
    key = keys.active_job(spec.name)
    mine = encode(Active(uid=spec.uid, is_ready=False))
    for _ in range(ATTEMPTS):
        item = store.get(key)
        if item is not None and item.value == mine:
            return item.mod_revision
        if item is not None and decode(Active, item.value).is_ready:
            raise Refused(
                f"The job name {spec.name!r} is in use by a running job: choose another --job, "
                f"or end that one with `elasticd stop {spec.name}`."
            )
        if left := _serving(store, keys, spec.name):
            end = "ends" if len(left) == 1 else "end"
            raise Refused(
                f"Job {spec.name!r} has just ended, and {names(left)} still {end} its workers: try "
                "again in a moment, or choose another --job."
            )
        revision = item.mod_revision if item is not None else 0
        store.commit(
            Txn(when=(ModifiedAt(key=key, revision=revision),), then=(Put(key=key, value=mine),))
        )
    raise Refused(
        f"Others keep submitting a job named {spec.name!r} at this moment: choose another --job."
    )


def _serving(store: ReadableStore, keys: Keys, job: JobName) -> list[NodeId]:
    """Return the nodes that have a part in the job, or end it; a lost one goes with its lease."""
    prefix = keys.members(job)
    return [NodeId(key.removeprefix(prefix)) for key in store.keys(prefix)]


def _leave_s(store: ReadableStore, keys: Keys, job: JobName) -> float:
    """Return how long nodes may need to end the workers of a job that is over; 0.0: none does."""
    active = store.get(keys.active_job(job))
    if (active is not None and decode(Active, active.value).is_ready) or not _serving(
        store, keys, job
    ):
        return 0.0
    try:
        return find_spec(store, keys, job).shutdown_timeout_s + LEAVE_SLACK_S
    except (NotFound, NotSupported):  # Cleared by a submitter that died, or newer than this one.
        return LEAVE_SLACK_S


def _read_active(store: ReadableStore, keys: Keys, job: JobName) -> Active | None:
    item = store.get(keys.active_job(job))
    return decode(Active, item.value) if item is not None else None
