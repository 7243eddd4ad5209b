"""What is kept of late nodes."""

from elasticd.goodput.late import Lateness
from elasticd.goodput.late_record import drained, followed
from elasticd.records.account.late import HISTORY_LIMIT, LateNodes
from elasticd.records.codec import decode, encode
from elasticd.records.ids import NodeId

A, B = NodeId("a"), NodeId("b")


def late(ratio: float = 0.34) -> Lateness:
    return Lateness(share=0.25, ratio=ratio, cost_nodes=0.8, is_apart=True, is_clear=True)


def test_late_node_keeps_its_beginning_and_gets_an_end() -> None:
    """How late it is may change meanwhile."""
    record = followed(LateNodes(), {B: late()}, now_unix_s=100.0)
    record = followed(record, {B: late(0.5)}, now_unix_s=200.0)
    (found,) = record.nodes
    assert (found.node, found.ratio, found.since_unix_s, found.until_unix_s) == (B, 0.5, 100.0, 0.0)
    over = followed(record, {}, now_unix_s=300.0)
    assert over.nodes[0].until_unix_s == 300.0
    again = followed(over, {B: late()}, now_unix_s=400.0)
    assert [(each.since_unix_s, each.until_unix_s) for each in again.nodes] == [
        (100.0, 300.0),
        (400.0, 0.0),
    ]
    assert decode(LateNodes, encode(again)) == again


def test_nothing_is_said_of_who_is_unknown() -> None:
    """A judge that has just begun does not know yet who is well."""
    record = followed(LateNodes(), {B: late()}, now_unix_s=100.0)
    assert followed(record, {}, unknown={B}, now_unix_s=200.0) is record


def test_record_is_bounded() -> None:
    """The newest stay."""
    record = LateNodes()
    for number in range(3 * HISTORY_LIMIT):
        found = {A: late()} if number % 2 == 0 else {}
        record = followed(record, found, now_unix_s=float(number + 1))
    record = followed(record, {A: late(), B: late()}, now_unix_s=1000.0)
    assert len(record.nodes) == HISTORY_LIMIT
    assert len(encode(record)) < 4096
    assert {each.node for each in record.nodes if not each.until_unix_s} == {A, B}


def test_who_is_late_for_long_stays_however_often_another_one_is() -> None:
    """Since when, and whether it was drained, must not begin anew."""
    record = followed(LateNodes(), {A: late()}, now_unix_s=1.0)
    for number in range(3 * HISTORY_LIMIT):
        found = {A: late(), B: late()} if number % 2 == 0 else {A: late()}
        record = followed(record, found, now_unix_s=float(number + 2))
    assert len(record.nodes) == HISTORY_LIMIT
    assert (record.nodes[0].node, record.nodes[0].since_unix_s) == (A, 1.0)
    assert record.nodes[-1].since_unix_s == float(3 * HISTORY_LIMIT), "the newest stay"


def test_drain_or_why_not_stands_beside_it() -> None:
    """Who reads the status must know what was done about it."""
    notes = {B: "not drained: why"}
    record = followed(LateNodes(), {B: late()}, notes=notes, now_unix_s=1.0)
    assert record.nodes[0].note == "not drained: why"
    (found,) = drained(record, B, now_unix_s=2.0).nodes
    assert (found.drained_unix_s, found.note) == (2.0, "")
