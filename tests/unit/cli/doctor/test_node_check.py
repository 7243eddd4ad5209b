"""How the answers of nodes are judged, and what is asked of them."""

import socket

import pytest

from elasticd import __version__
from elasticd.cli.doctor.finding import Verdict
from elasticd.cli.doctor.node_check import NodeAnswer, ask, ask_all, findings_of
from elasticd.control.report.unreadable import UnreadableRecords
from elasticd.errors import NotSupported
from elasticd.records.ids import Incarnation, NodeId
from elasticd.records.member import Node
from elasticd.store.api import StoreSettings
from tests.fixtures.ports import free_port

SETTINGS = StoreSettings(endpoints=("http://127.0.0.1:2379",))


def node(
    name: str, *, address: str = "10.0.0.1", version: str = __version__, port: int = 1
) -> Node:
    return Node(
        node=NodeId(name),
        incarnation=Incarnation("1"),
        host=f"host-{name}",
        address=address,
        port=port,
        slots=2,
        version=version,
    )


def test_cluster_that_is_well_is_one_line() -> None:
    (found,) = findings_of([NodeAnswer(node=node(each)) for each in "abc"], UnreadableRecords())
    assert found.verdict is Verdict.OK
    assert found.found == "3 nodes of 3 can be reached, with 6 slots"


@pytest.mark.parametrize(
    ("answers", "verdict", "said"),
    [
        ([], Verdict.WARNING, "no agent is registered"),
        (
            [NodeAnswer(node=node("a"), unreachable="Connection refused")],
            Verdict.PROBLEM,
            "node a at 10.0.0.1:1 cannot be reached from here: Connection refused",
        ),
        (
            [NodeAnswer(node=node("a", address="127.0.0.1")), NodeAnswer(node=node("b"))],
            Verdict.PROBLEM,
            "a registered a loopback address",
        ),
        (
            [NodeAnswer(node=node("a", address="127.0.1.1")), NodeAnswer(node=node("b"))],
            Verdict.PROBLEM,
            "a registered a loopback address",
        ),
        (
            [NodeAnswer(node=node("a"), is_http_silent=True)],
            Verdict.WARNING,
            "the HTTP port of a does not answer",
        ),
        (
            [NodeAnswer(node=node("a", version="0.0.9"))],
            Verdict.WARNING,
            f"1 x 0.0.9, and this command {__version__}",
        ),
        (
            [NodeAnswer(node=node("a"), skew_s=-40.0), NodeAnswer(node=node("b"), skew_s=2.0)],
            Verdict.WARNING,
            "the clock of a is 40 s behind this machine's",
        ),
    ],
)
def test_what_is_wrong_with_nodes_is_told(
    answers: list[NodeAnswer], verdict: Verdict, said: str
) -> None:
    (found,) = [
        each for each in findings_of(answers, UnreadableRecords()) if each.verdict is not Verdict.OK
    ]
    assert found.verdict is verdict
    assert said in found.found and found.advice


def test_one_machine_with_several_nodes_may_use_loopback() -> None:
    (found,) = findings_of([NodeAnswer(node=node("a", address="127.0.0.1"))], UnreadableRecords())
    assert found.verdict is Verdict.OK


def test_few_of_many_nodes_are_named() -> None:
    answers = [NodeAnswer(node=node(f"n{each}"), unreachable="timed out") for each in range(100)]
    found = list(findings_of(answers, UnreadableRecords()))
    assert len(found) == 6
    assert found[-1].found == "95 more nodes cannot be reached"


def test_node_whose_port_is_closed_is_unreachable() -> None:
    (answer,) = ask_all([node("a", address="127.0.0.1", port=free_port())], SETTINGS)
    assert answer.unreachable == "Connection refused"


def test_node_that_serves_no_http_is_silent() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        answer = ask(node("a", address="127.0.0.1", port=listener.getsockname()[1]), SETTINGS)
    assert not answer.unreachable and answer.is_http_silent


def test_node_that_cannot_be_read_is_named() -> None:
    """And a cluster of such nodes is not called one without agents."""
    unreadable = UnreadableRecords()
    with unreadable.left_out("node b"):
        raise NotSupported("The Node record is newer.")
    (found,) = findings_of([], unreadable)
    assert found.verdict is Verdict.WARNING
    assert found.found == "Node b is left out: The Node record is newer."
