"""Drain nodes: an operator's wish that a node takes no more work, in etcd."""

from elasticd.control.near_names import near
from elasticd.errors import NotFound
from elasticd.records.codec import decode, encode
from elasticd.records.ids import NodeId
from elasticd.records.keys import Keys
from elasticd.records.member import Drain, Node
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


def undrain(store: Store, keys: Keys, node: NodeId, *, is_dry_run: bool = False) -> None:
    """Delete the wish that a node takes no more work.

    Raises:
        NotFound: the node is not being drained.
    """
    if store.get(keys.drain(node)) is None:
        names = {item.key.removeprefix(keys.drains) for item in store.list(keys.drains).items}
        rest = near(node, names, "elasticd nodes") if names else ", and no other is either."
        raise NotFound(f"Node {node!r} is not being drained{rest}")
    if not is_dry_run:
        store.commit(Txn(then=(Delete(key=keys.drain(node)),)))


def _find_node(store: ReadableStore, keys: Keys, node: NodeId) -> Node:
    item = store.get(keys.node(node))
    if item is None:
        names = {entry.key.removeprefix(keys.nodes) for entry in store.list(keys.nodes).items}
        raise NotFound(f"There is no node {node!r}{near(node, names, 'elasticd nodes')}")
    return decode(Node, item.value)
