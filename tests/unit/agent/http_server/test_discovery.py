"""What Prometheus' service discovery is answered, also where nothing is known."""

import json
from http import HTTPStatus
from typing import Any

import pytest

from elasticd.errors import Unavailable
from elasticd.records.codec import encode
from elasticd.records.ids import Incarnation, NodeId
from elasticd.records.keys import Keys
from elasticd.records.member import Node
from elasticd.store.api import Put, Txn, WatchSnapshot
from elasticd.store.memory import MemoryStore
from elasticd_agent.http_server.answer import HttpAnswer
from elasticd_agent.http_server.discovery import Discovery

KEYS = Keys("c")


def store_of(*nodes: Node) -> MemoryStore:
    store = MemoryStore()
    for node in nodes:
        store.commit(Txn(then=(Put(key=KEYS.node(node.node), value=encode(node)),)))
    return store


def a_node(name: str, **given: Any) -> Node:
    return Node(
        **{
            "node": NodeId(name),
            "incarnation": Incarnation("i"),
            "host": f"host-{name}",
            "address": "10.0.0.1",
            "port": 1,
            "slots": 1,
            "http_port": 9480,
            "version": "1.2",
            **given,
        }
    )


def answer_of(discovery: Discovery) -> HttpAnswer:
    answer = discovery("/sd", "")
    assert answer is not None
    return answer


def groups(discovery: Discovery) -> list[dict[str, Any]]:
    answer = answer_of(discovery)
    assert (answer.status, answer.content_type) == (HTTPStatus.OK, "application/json")
    found: list[dict[str, Any]] = json.loads(answer.body)
    return found


def test_each_agent_is_a_target_with_labels_to_choose_from() -> None:
    """Nothing that becomes a label by itself: `node` and the like are the operator's choice."""
    store = store_of(a_node("a", labels={"rack-1/é": "r"}), a_node("b", address="fd00::1"))
    first, second = groups(Discovery(store.list, "c"))
    assert first["targets"] == ["10.0.0.1:9480"]
    assert first["labels"] == {
        "__meta_elasticd_cluster": "c",
        "__meta_elasticd_node": "a",
        "__meta_elasticd_host": "host-a",
        "__meta_elasticd_version": "1.2",
        "__meta_elasticd_label_rack_1__": "r",
    }
    assert second["targets"] == ["[fd00::1]:9480"]


def test_agents_with_certificates_are_asked_over_tls() -> None:
    """Without a word in Prometheus' configuration but that of the certificates."""
    (group,) = groups(Discovery(store_of(a_node("a")).list, "c", is_tls=True))
    assert group["labels"]["__scheme__"] == "https"


def test_agents_are_those_of_this_moment() -> None:
    """Not those of a minute ago: it is asked for what is there."""
    store = store_of(a_node("a"))
    discovery = Discovery(store.list, "c")
    assert len(groups(discovery)) == 1
    store.commit(Txn(then=(Put(key=KEYS.node(NodeId("b")), value=encode(a_node("b"))),)))
    assert len(groups(discovery)) == 2


def test_etcd_that_does_not_answer_is_an_error_and_no_empty_list() -> None:
    """An empty list would remove every target."""

    def silent(prefix: str) -> WatchSnapshot:
        raise Unavailable("etcd is away.")

    answer = answer_of(Discovery(silent, "c"))
    assert answer.status == HTTPStatus.SERVICE_UNAVAILABLE
    assert b"etcd is away." in answer.body


@pytest.mark.parametrize("nodes", [(), (a_node("old", http_port=0),)])
def test_list_without_a_target_is_an_error(nodes: tuple[Node, ...]) -> None:
    """One agent answers, so it cannot be true: etcd was restored, or this node was forgotten."""
    answer = answer_of(Discovery(store_of(*nodes).list, "c"))
    assert answer.status == HTTPStatus.SERVICE_UNAVAILABLE


def test_record_that_cannot_be_read_hides_nobody_else() -> None:
    """That of a newer elasticd."""
    store = store_of(a_node("a"))
    store.commit(Txn(then=(Put(key=KEYS.node(NodeId("z")), value=b'{"schema": 99}'),)))
    assert [group["targets"] for group in groups(Discovery(store.list, "c"))] == [["10.0.0.1:9480"]]


def test_other_paths_are_others_affair() -> None:
    """It is one route of several."""
    assert Discovery(MemoryStore().list, "c")("/sd/", "") is None
