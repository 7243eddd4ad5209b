"""The operator's writes to etcd: wants, the end of a job, drains. Each is one transaction.

The store writes only while this process leads. A want is written only while this job is active; a
job that has ended meanwhile, or another job with its name, is not changed.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace

from elasticd.control.jobs import end_unserved
from elasticd.errors import Fenced, NotFound, Refused
from elasticd.kube.resource.job_records import OPERATOR
from elasticd.records.codec import decode, encode
from elasticd.records.ids import JobName, NodeId
from elasticd.records.job import Active, Want
from elasticd.records.keys import Keys
from elasticd.records.member import Drain, NodeLabels
from elasticd.store.api import Delete, KeyValue, ModifiedAt, Op, Put, Store, Txn

__all__ = ["drain_node", "label_node", "stop_job", "undrain_node", "write_want"]


def write_want(
    store: Store,
    keys: Keys,
    job: JobName,
    uid: str,
    *,
    nodes: int | None,
    why: str,
    now_unix_s: float,
) -> None:
    """Write a want for a size, in nodes; None removes it.

    Raises: Fenced: the job changed meanwhile, or is over.
    """

    def changed(want: Want) -> Want:
        since = 0.0 if nodes is None else round(now_unix_s, 3)
        return replace(want, nodes=nodes, why=why, since_unix_s=since)

    _wish(store, keys, job, uid, changed)


def stop_job(store: Store, keys: Keys, job: JobName, uid: str, *, why: str, may_end: bool) -> None:
    """Write the want that a job ends; with `may_end`, if no node is there to read it, end the job
    at once.

    Raises: Fenced: the job changed meanwhile, or is over.
    """
    _wish(store, keys, job, uid, lambda want: replace(want, is_stop=True, why=why))
    if may_end and not store.list(keys.members(job)).items:
        # No node reads the want; a node that joins at this moment reads it.
        with suppress(Refused, NotFound):
            end_unserved(store, keys, job, uid=uid, who="the operator on Kubernetes")


def drain_node(store: Store, keys: Keys, node: NodeId, *, why: str, by: str) -> None:
    """Request the drain of a node; a request of somebody else is not changed.

    Raises: Fenced: somebody else wrote the record meanwhile.
    """
    key = keys.drain(node)
    item = store.get(key)
    if item is not None and decode(Drain, item.value).by != by:
        return
    _commit(store, key, item, Put(key=key, value=encode(Drain(why=why, by=by))))


def undrain_node(store: Store, keys: Keys, node: NodeId, *, by: str) -> None:
    """Withdraw the drain of a node, if it is the operator's own.

    Raises: Fenced: somebody else wrote the record meanwhile.
    """
    key = keys.drain(node)
    item = store.get(key)
    if item is not None and decode(Drain, item.value).by == by:
        _commit(store, key, item, Delete(key=key))


def label_node(
    store: Store, keys: Keys, node: NodeId, *, labels: Mapping[str, str], by: str
) -> None:
    """Write a node's labels for its agent, or remove the record if there are no labels.

    Raises: Fenced: somebody else wrote the record meanwhile.
    """
    key = keys.labels_of(node)
    item = store.get(key)
    if item is not None and decode(NodeLabels, item.value).by != by:
        return
    if labels:
        _commit(store, key, item, Put(key=key, value=encode(NodeLabels(labels=labels, by=by))))
    elif item is not None:
        _commit(store, key, item, Delete(key=key))


# --- private ----------------------------------------------------------------------------------


def _wish(store: Store, keys: Keys, job: JobName, uid: str, change: Callable[[Want], Want]) -> None:
    active = store.get(keys.active_job(job))
    if active is None or decode(Active, active.value).uid != uid:
        raise Fenced(f"Job {job!r} is over, or another one has its name.")
    key = keys.want(job, OPERATOR)
    item = store.get(key)
    before = decode(Want, item.value) if item is not None else Want(writer=OPERATOR)
    after = change(before)
    if item is not None and after == before:
        return
    _commit(
        store,
        key,
        item,
        Put(key=key, value=encode(after)),
        ModifiedAt(key=active.key, revision=active.mod_revision),
    )


def _commit(store: Store, key: str, item: KeyValue | None, op: Op, *more: ModifiedAt) -> None:
    """Write one key, if it has not changed since it was read."""
    standing = ModifiedAt(key=key, revision=item.mod_revision if item is not None else 0)
    if not store.commit(Txn(when=(*more, standing), then=(op,))).succeeded:
        raise Fenced(f"{key} was written by somebody else at the same moment.")
