"""Who holds the slots, and what a job that waits is told of it."""

from dataclasses import replace

import pytest

from elasticd.control import job_submission
from elasticd.control.report.node_report import node_reports
from elasticd.control.report.occupancy import (
    ClusterOccupancy,
    Use,
    elsewhere,
    holders,
    left_out,
    read_cluster,
    uses_of,
    waiting_for,
)
from elasticd.control.report.report import JobReport, read_job, with_elsewhere
from elasticd.control.report.unreadable import UnreadableRecords
from elasticd.records.codec import encode
from elasticd.records.failure import Failure
from elasticd.records.ids import Generation, Incarnation, JobName, NodeId, Nonce, Rank, Slot
from elasticd.records.job import EntryKind, JobSpec, JobStatus
from elasticd.records.keys import Keys
from elasticd.records.member import Drain, Member, Node, SlotOffer, StoreAddress
from elasticd.records.reason import Phase, Reason
from elasticd.records.world import World, WorldNode, WorldWorker
from elasticd.store.api import Put, Txn
from elasticd.store.memory import MemoryStore

KEYS = Keys()
A, B, C = JobName("A"), JobName("B"), JobName("C")


def spec_of(job: JobName, **values: object) -> JobSpec:
    base: dict[str, object] = {"min_nodes": 2, "max_nodes": 2}
    return JobSpec(
        name=job,
        uid=f"u-{job}",
        entry_kind=EntryKind.SCRIPT,
        entry="t.py",
        **{**base, **values},  # type: ignore[arg-type]
    )


def node_of(name: str, slots: int = 1, **values: object) -> Node:
    return Node(
        node=NodeId(name),
        incarnation=Incarnation(f"{name}.1"),
        host=name,
        address="x",
        port=1,
        slots=slots,
        **values,  # type: ignore[arg-type]
    )


def member_of(name: str, ready: int = 1, failure: Failure | None = None) -> Member:
    offers = tuple(SlotOffer(slot=Slot(i), nonce=Nonce(1)) for i in range(ready))
    return Member(
        node=NodeId(name),
        incarnation=Incarnation(f"{name}.1"),
        host=name,
        address="x",
        port=1,
        slots=offers,
        failure=failure,
    )


def world_of(*names: str) -> World:
    return World(
        generation=Generation(1),
        nodes=tuple(
            WorldNode(
                node=NodeId(name),
                incarnation=Incarnation(f"{name}.1"),
                host=name,
                address="x",
                port=1,
                first_rank=Rank(rank),
                workers=(WorldWorker(slot=Slot(0), nonce=Nonce(1)),),
            )
            for rank, name in enumerate(names)
        ),
        store=StoreAddress(host="x", port=1),
        reason=Reason.FIRST_WORLD,
    )


def use(job: JobName, node: str, slots: int = 1, *, is_training: bool = True) -> Use:
    return Use(job=job, node=NodeId(node), slots=slots, is_training=is_training)


@pytest.mark.parametrize(
    ("values", "members", "said"),
    [
        ({}, [], "waiting for 2 more nodes: 0 of at least 2 ready"),
        (
            {},
            [member_of("a"), member_of("b", ready=0)],
            "waiting for 1 more node: 1 of at least 2 ready; preparing: b",
        ),
        (
            {"workers_per_node": 8, "min_nodes": 1},
            [],
            "waiting for 1 more node with 8 free slots: 0 of at least 1 ready",
        ),
        (
            {"min_nodes": 1},
            [member_of("a"), member_of("b", ready=0)],
            "waiting for its start: 1 of at least 1 ready; preparing: b",
        ),
    ],
)
def test_one_sentence_says_what_is_missing(
    values: dict[str, object], members: list[Member], said: str
) -> None:
    """The same words as the status of a job that lost nodes."""
    assert waiting_for(spec_of(B, **values), members) == said


def test_node_that_can_start_no_worker_is_not_being_prepared() -> None:
    """It never will be; its own sentence says why."""
    failure = Failure(
        node=NodeId("b"),
        incarnation=Incarnation("b.1"),
        host="b",
        generation=Generation(0),
        rank=Rank(0),
        local_rank=0,
        slot=Slot(0),
        nonce=Nonce(0),
        exception="no torch here.",
    )
    said = waiting_for(spec_of(B), [member_of("b", ready=0, failure=failure)])
    assert "preparing" not in said
    assert said.endswith("; b cannot start workers: no torch here")


def test_it_is_said_who_holds_the_other_nodes() -> None:
    """Grouped by holder; what has room is not mentioned, nor what the job has already."""
    cluster = ClusterOccupancy(
        nodes=(node_of("a"), node_of("b"), node_of("c", slots=2), node_of("d"), node_of("e")),
        drained=frozenset({NodeId("e")}),
        uses=(use(A, "a"), use(A, "b"), use(A, "c"), use(B, "d", is_training=False)),
    )
    said = elsewhere(spec_of(B), [member_of("d", ready=0)], cluster)
    assert said == "; in use: a, b by A; draining: e"


def test_holder_that_has_too_few_nodes_itself_is_told_as_such() -> None:
    """Jobs are served in their order: a large one keeps what it has while it waits."""
    cluster = ClusterOccupancy(
        nodes=(node_of("a"), node_of("b"), node_of("c")),
        uses=(
            use(A, "a", is_training=False),
            use(C, "b"),
            use(C, "c", is_training=False),
        ),
    )
    said = elsewhere(spec_of(B), [], cluster)
    assert said == "; in use: a by A, which waits itself; in use: b, c by C"


def test_it_is_said_where_waiting_does_not_help() -> None:
    """Too few machines are there, whoever uses them."""
    cluster = ClusterOccupancy(nodes=(node_of("a"), node_of("b", slots=8)))
    more = "start `elasticd agent` on more machines"
    assert (
        elsewhere(spec_of(B, min_nodes=5), [], cluster)
        == f"; there are 2 such nodes in all: {more}"
    )
    wide = spec_of(B, workers_per_node=8)
    assert elsewhere(wide, [], cluster) == f"; there is 1 such node in all: {more}"
    own = spec_of(B, is_local=True, min_nodes=3)
    assert elsewhere(own, [], cluster).endswith("in all: call the same on the other hosts")


def test_a_node_that_is_too_small_is_not_waited_for() -> None:
    """Whoever uses it, and whether or not it drains."""
    cluster = ClusterOccupancy(
        nodes=(node_of("a"), node_of("b"), node_of("c", slots=8)),
        drained=frozenset({NodeId("b")}),
        uses=(use(A, "a"), use(A, "c")),
    )
    said = holders(spec_of(B, min_nodes=2, workers_per_node=8), [], cluster)
    assert said == "; in use: c by A; there is 1 such node in all"


def test_nodes_without_the_labels_of_a_job_are_not_told_of() -> None:
    """They would not help, whoever uses them; what would is said."""
    nodes = (node_of("a", labels={"gpu": "a100"}), node_of("b", labels={"gpu": "h100"}))
    cluster = ClusterOccupancy(nodes=nodes, drained=frozenset({NodeId("a")}), uses=(use(A, "a"),))
    spec = spec_of(B, node_labels={"gpu": "h100"})
    more = "start `elasticd agent --label gpu=h100` on more machines"
    assert elsewhere(spec, [], cluster) == f"; there is 1 such node in all: {more}"
    assert waiting_for(spec, []).startswith("waiting for 2 more nodes labelled gpu=h100: 0 of")


def test_slots_that_were_given_up_are_named_with_what_to_do() -> None:
    """In `status`, whatever else it says."""
    members = [member_of("a"), replace(member_of("b", ready=2), given_up=(Slot(0), Slot(1)))]
    said = left_out(members)
    assert said.startswith("slot 0 of b, slot 1 of b are left out, as 8 processes in a row ended")
    report = JobReport(
        spec=spec_of(A), status=JobStatus(phase=Phase.RUNNING), members=tuple(members)
    )
    assert report.message == said
    assert left_out([member_of("a")]) == ""


@pytest.mark.parametrize("namespace", ["", "training"])
def test_drain_that_nobody_would_take_back_is_said(namespace: str) -> None:
    """All nodes were cordoned; after `uncordon` only an operator would know of it."""
    store = MemoryStore()

    def put(key: str, record: object) -> None:
        store.commit(Txn(then=(Put(key=key, value=encode(record)),)))

    for name in ("a", "b"):
        put(KEYS.node(NodeId(name)), node_of(name))
    put(KEYS.drain(NodeId("a")), Drain(why="its node is cordoned", by="kubernetes/c/"))
    put(KEYS.drain(NodeId("b")), Drain())
    job_submission.submit(store, KEYS, spec_of(A))
    report = read_job(store, KEYS, A)
    assert report is not None
    (alone,) = with_elsewhere(store, KEYS, [report], UnreadableRecords())
    assert alone.message == (
        "waiting for 2 more nodes: 0 of at least 2 ready; draining: a, b (a by `elasticd "
        "operator`, which does not run: start it, or take that back by `elasticd drain --undo`)"
    )
    put(KEYS.operator_election(namespace), Drain())
    (attended,) = with_elsewhere(store, KEYS, [report], UnreadableRecords())
    assert attended.message.endswith("; draining: a, b")


def test_why_a_node_that_is_drained_trains_on_is_said() -> None:
    """Its successor may never get ready, and a drain that waits without a word looks stuck."""
    state = SlotOffer(slot=Slot(0), nonce=Nonce(1), is_prepared=True, has_state=True)
    going = replace(member_of("a"), slots=(state,), leaving=Reason.DRAINED)
    said = (
        "a trains on until another node has taken over the state, which no other has: "
        "waiting for b to be ready"
    )
    report = JobReport(
        spec=spec_of(A),
        status=JobStatus(phase=Phase.RUNNING),
        world=world_of("a"),
        members=(going, member_of("b")),
    )
    assert report.message == said
    assert replace(report, status=JobStatus(phase=Phase.SUCCEEDED)).message == ""
    staying = replace(member_of("b"), slots=(state,))
    assert replace(report, members=(going, staying)).message == ""
    assert replace(report, members=(replace(going, leaving=None), staying)).message == ""


def test_uses_tell_who_trains_from_who_waits() -> None:
    """A spare holds its slots too; an ended job holds nothing."""
    running = JobStatus(phase=Phase.RUNNING)
    members = [member_of("a"), member_of("b")]
    uses = uses_of(spec_of(A), running, world_of("a"), members)
    assert uses == (use(A, "a"), use(A, "b", is_training=False))
    assert uses_of(spec_of(A), JobStatus(phase=Phase.FAILED), world_of("a"), members) == ()


def test_waiting_job_is_told_of_the_others_by_its_report() -> None:
    """As `status`, `nodes` and the follower read it."""
    store = MemoryStore()

    def put(key: str, record: object) -> None:
        store.commit(Txn(then=(Put(key=key, value=encode(record)),)))

    for name in ("a", "b"):
        put(KEYS.node(NodeId(name)), node_of(name))
    put(KEYS.drain(NodeId("b")), Drain())
    for job in (A, B):
        job_submission.submit(store, KEYS, spec_of(job, min_nodes=1))
    put(KEYS.status(A), JobStatus(phase=Phase.RUNNING))
    put(KEYS.world(A), world_of("a"))
    put(KEYS.member(A, NodeId("a")), member_of("a"))
    found = [read_job(store, KEYS, job) for job in (A, B)]
    first, second = with_elsewhere(
        store, KEYS, [r for r in found if r is not None], UnreadableRecords()
    )
    assert first.message == ""
    assert second.message == (
        "waiting for 1 more node: 0 of at least 1 ready; in use: a by A; draining: b"
    )
    none = UnreadableRecords()
    reports = node_reports(
        store.list(KEYS.nodes).items,
        store.list(KEYS.drains).items,
        KEYS,
        none,
        read_cluster(store, KEYS, none).uses,
    )
    assert none.sentence == ""
    assert [(r.node.node, r.free_slots, [u.job for u in r.uses]) for r in reports] == [
        ("a", 0, [A]),
        ("b", 1, []),
    ]
