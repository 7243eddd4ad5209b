"""Resize and end jobs: each wish is one record, which is written only while the job runs.

A job that no node serves any more is ended here; of any other the agents read the wish.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from elasticd.control.near_names import near
from elasticd.errors import CallError, NotFound, Refused, Unavailable
from elasticd.records.codec import decode, encode
from elasticd.records.ids import JobName
from elasticd.records.job import (
    UNSERVED_LIMIT_S,
    Active,
    EndedJob,
    JobSpec,
    JobStatus,
    Want,
    may_end_unserved,
    target_nodes,
)
from elasticd.records.keys import Keys
from elasticd.records.reason import Phase, Reason
from elasticd.store.api import Delete, ModifiedAt, Put, ReadableStore, Store, Txn, UnchangedSince

__all__ = [
    "find_spec",
    "end_unserved",
    "scale",
    "stop",
    "unpin",
    "wait_left",
]

ATTEMPTS = 5
"""The number of tries of a compare-and-set: a command competes with a few writers at most."""
LEAVE_POLL_S = 0.05
"""The pause between two looks for the last node; a local run's etcd ends soon after it has left."""
UNSERVED_POLL_S = 0.25
USER = "user"


def find_spec(store: ReadableStore, keys: Keys, job: JobName, *, uid: str = "") -> JobSpec:
    """Read the spec of a job, running or ended.

    `uid` is the job's; if it is empty, the job that has the name now is meant.

    Raises: NotFound: there is no such job (the message lists similar names), or another one has the
        name.
    """
    item = store.get(keys.spec(job))
    if item is None:
        names = {key.removeprefix(keys.jobs).split("/", 1)[0] for key in store.keys(keys.jobs)}
        raise NotFound(f"There is no job {job!r}{near(job, names, 'elasticd status')}")
    spec = decode(JobSpec, item.value)
    if uid and spec.uid != uid:
        raise _replaced(job)
    return spec


def scale(
    store: Store, keys: Keys, job: JobName, nodes: int, *, is_dry_run: bool = False
) -> JobSpec:
    """Write the user's wish for a number of nodes, which wins over an autoscaler's wish.

    Raises:
        NotFound: there is no such job, or the job is over.
        CallError: the number is outside the range with which the job was submitted.
    """
    spec = _running(store, keys, job)
    if not spec.min_nodes <= nodes <= spec.max_nodes:
        raise CallError(
            f"{nodes} is outside of --nnodes {spec.min_nodes}:{spec.max_nodes}, with which job "
            f"{job!r} was submitted: choose a number of nodes between them."
        )
    if not is_dry_run:
        at_unix_s = round(time.time(), 3)
        _wish(
            store,
            keys,
            job,
            lambda want: replace(want, nodes=nodes, why="elasticd scale", since_unix_s=at_unix_s),
        )
    return spec


def unpin(store: Store, keys: Keys, job: JobName, *, is_dry_run: bool = False) -> int:
    """Withdraw the user's wish for a size; return the number of nodes that is wanted after that.

    Raises:
        NotFound: there is no such job, the job is over, or there is no user's wish for a size.
    """
    spec = _running(store, keys, job)
    wants = {
        want.writer: want
        for want in (decode(Want, item.value) for item in store.list(keys.wants(job)).items)
    }
    mine = wants.get(USER)
    if mine is None or mine.nodes is None:
        raise NotFound(
            f"Nobody has scaled job {job!r} to a size: there is nothing to take back, "
            f"`elasticd status {job}` shows its size."
        )
    if not is_dry_run:
        _wish(store, keys, job, lambda want: replace(want, nodes=None, why="", since_unix_s=0.0))
    return target_nodes(spec, {**wants, USER: replace(mine, nodes=None)})


def stop(
    store: Store,
    keys: Keys,
    job: JobName,
    *,
    why: str = "",
    uid: str = "",
    is_dry_run: bool = False,
    unserved_limit_s: float = UNSERVED_LIMIT_S,
    now_s: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> JobSpec:
    """Write the wish that the job ends; its workers get SIGTERM and the shutdown timeout.

    A job that no node serves is ended here: if it has trained, only after `unserved_limit_s`, in
    which nodes that have just lost their leases come back, and save. `uid` is the job's; if it is
    empty, the job that has the name now is meant, and no later one.

    Raises: NotFound: there is no such job, or the job is over.
    """
    spec = _running(store, keys, job, uid=uid)
    if not is_dry_run:
        _wish(store, keys, job, lambda want: replace(want, is_stop=True, why=why), uid=spec.uid)
        began_s, status = now_s(), _status(store, keys, job)
        while not store.list(keys.members(job)).items:
            if not may_end_unserved(status, now_s() - began_s, limit_s=unserved_limit_s):
                pause(UNSERVED_POLL_S)
                continue
            # No node serves the job, so none reads the wish; a node that comes now will read it.
            with suppress(Refused, NotFound):
                end_unserved(store, keys, job, uid=spec.uid)
            break
    return spec


def wait_left(
    store: ReadableStore,
    keys: Keys,
    job: JobName,
    *,
    timeout_s: float,
    is_given_up: Callable[[], bool] = lambda: False,
    now_s: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> bool:
    """Wait until no node serves the job; return False if a node still does after `timeout_s`.

    Raises: Unavailable: etcd is gone, as at the end of a local run.
    """
    until_s = now_s() + timeout_s
    while store.list(keys.members(job)).items:
        if now_s() >= until_s or is_given_up():
            return False
        pause(LEAVE_POLL_S)
    return True


def end_unserved(
    store: Store,
    keys: Keys,
    job: JobName,
    *,
    uid: str = "",
    is_dry_run: bool = False,
    who: str = "a person",
) -> None:
    """End a job that no node serves any more, so that its name is free again.

    `uid` is the job's; if it is empty, the job that has the name now is meant, and no later one.
    `who` names the caller in the job's last sentence.

    Raises:
        NotFound: there is no such job, or the job is over.
        Refused: nodes still serve the job.
    """
    for _ in range(ATTEMPTS):
        active = store.get(keys.active_job(job))
        is_ours = ModifiedAt(
            key=keys.active_job(job), revision=active.mod_revision if active is not None else 0
        )
        if active is not None and store.get(keys.spec(job)) is None:
            # The submitter died between its two transactions: only the reservation is left.
            found = decode(Active, active.value).uid
            txn = Txn(when=(is_ours,), then=(Delete(key=keys.active_job(job)),))
        else:
            found = _running(store, keys, job).uid
            txn = _giving_up(store, keys, job, is_ours, who)
        if uid and found != uid:
            raise _replaced(job)
        if is_dry_run:
            return
        if store.commit(txn).succeeded:
            return
        uid = found
    raise Unavailable(f"Job {job!r} keeps changing while it is given up: try again.")


# --- private ----------------------------------------------------------------------------------


def _running(store: ReadableStore, keys: Keys, job: JobName, *, uid: str = "") -> JobSpec:
    spec = find_spec(store, keys, job, uid=uid)
    if (status := _status(store, keys, job)).phase.is_final:
        raise NotFound(
            f"Job {job!r} is over ({status.phase}): `elasticd why {job}` tells what happened."
        )
    return spec


def _status(store: ReadableStore, keys: Keys, job: JobName) -> JobStatus:
    item = store.get(keys.status(job))
    return decode(JobStatus, item.value) if item is not None else JobStatus()


def _giving_up(
    store: ReadableStore, keys: Keys, job: JobName, is_ours: ModifiedAt, who: str
) -> Txn:
    """Return what ends the job, if nothing changes before.

    Raises: Refused: nodes still serve the job.
    """
    members = store.list(keys.members(job))
    if members.items:
        names = ", ".join(item.key.removeprefix(keys.members(job)) for item in members.items)
        raise Refused(f"Job {job!r} is still served by {names}: end it with `elasticd stop {job}`.")
    item = store.get(keys.status(job))
    status = decode(JobStatus, item.value) if item is not None else JobStatus()
    ended = replace(
        status,
        phase=Phase.STOPPED,
        reason=Reason.STOP_REQUESTED,
        message=(
            f"Given up by {who}; no node served it any more."
            if status.generation
            else f"Given up by {who} before a world had formed."
        ),
    )
    revision = item.mod_revision if item is not None else 0
    return Txn(
        when=(
            is_ours,
            ModifiedAt(key=keys.status(job), revision=revision),
            UnchangedSince(prefix=keys.members(job), revision=members.revision),
        ),
        then=(
            Put(key=keys.status(job), value=encode(ended)),
            Delete(key=keys.active_job(job)),
            Put(key=keys.ended_job(job), value=encode(EndedJob())),
        ),
    )


def _replaced(job: JobName) -> NotFound:
    return NotFound(f"Job {job!r} is over, and another one has its name now.")


def _wish(
    store: Store, keys: Keys, job: JobName, change: Callable[[Want], Want], *, uid: str = ""
) -> None:
    """Change the user's wish, if the job (of this uid, if it is given) still runs at that moment.

    Raises: NotFound: the job is over.
    """
    key = keys.want(job, USER)
    for _ in range(ATTEMPTS):
        active = store.get(keys.active_job(job))
        if active is None:
            raise NotFound(f"Job {job!r} is over: `elasticd why {job}` tells what happened.")
        if uid and decode(Active, active.value).uid != uid:
            raise _replaced(job)
        item = store.get(key)
        want = decode(Want, item.value) if item is not None else Want(writer=USER)
        result = store.commit(
            Txn(
                when=(
                    ModifiedAt(key=keys.active_job(job), revision=active.mod_revision),
                    ModifiedAt(key=key, revision=item.mod_revision if item is not None else 0),
                ),
                then=(Put(key=key, value=encode(change(want))),),
            )
        )
        if result.succeeded:
            return
    raise Unavailable(f"Job {job!r} keeps changing while the wish is written: try again.")
