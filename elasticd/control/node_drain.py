"""Drain nodes: an operator's wish that a node takes no more work, in etcd."""

from elasticd.control.near_names import near
from elasticd.errors import NotFound
from elasticd.records.codec import decode, encode
from elasticd.records.ids import JobName, NodeId
from elasticd.records.keys import Keys
from elasticd.records.member import Drain, Member, Node
from elasticd.store.api import Delete, Put, ReadableStore, Store, Txn

__all__ = ["drain", "undrain"]


def drain(
    store: Store, keys: Keys, node: NodeId, *, why: str = "", is_dry_run: bool = False
) -> Node:
    """Write the wish that a node takes no more work; its jobs go on without this node.

    Raises:
        NotFound: there is no such node; the message lists similar names.
    """
    found = _find_node(store, keys, node)
    if not is_dry_run:
        put = Put(key=keys.drain(node), value=encode(Drain(why=why)))
        store.commit(Txn(then=(put,)))
    return found


def undrain(
    store: Store, keys: Keys, node: NodeId, *, is_dry_run: bool = False
) -> tuple[JobName, ...]:
    """Delete the wish that a node takes no more work.

    Return the jobs that the node leaves all the same: their next world may be on its way already.

    Raises:
        NotFound: the node is not being drained.
    """
    if store.get(keys.drain(node)) is None:
        names = {item.key.removeprefix(keys.drains) for item in store.list(keys.drains).items}
        rest = near(node, names, "elasticd nodes") if names else ", and no other is either."
        raise NotFound(f"Node {node!r} is not being drained{rest}")
    if not is_dry_run:
        store.commit(Txn(then=(Delete(key=keys.drain(node)),)))
    jobs = (JobName(i.key.removeprefix(keys.active)) for i in store.list(keys.active).items)
    return tuple(sorted(job for job in jobs if _is_leaving(store, keys, job, node)))


def _is_leaving(store: ReadableStore, keys: Keys, job: JobName, node: NodeId) -> bool:
    item = store.get(keys.member(job, node))
    return item is not None and decode(Member, item.value).leaving is not None


def _find_node(store: ReadableStore, keys: Keys, node: NodeId) -> Node:
    item = store.get(keys.node(node))
    if item is None:
        names = {entry.key.removeprefix(keys.nodes) for entry in store.list(keys.nodes).items}
        raise NotFound(f"There is no node {node!r}{near(node, names, 'elasticd nodes')}")
    return decode(Node, item.value)
