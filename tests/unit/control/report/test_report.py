"""Records put together for reading."""

from dataclasses import replace

from elasticd.cli.terminal import words
from elasticd.control.report.node_report import node_reports
from elasticd.control.report.report import job_report, job_reports
from elasticd.control.report.unreadable import UnreadableRecords
from elasticd.records.account.incident import Incident, announced
from elasticd.records.account.time_spent import TimeSpent
from elasticd.records.codec import encode
from elasticd.records.failure import Failure
from elasticd.records.ids import Generation, Incarnation, JobName, Life, NodeId, Nonce, Rank, Slot
from elasticd.records.job import EntryKind, JobSpec, JobStatus, Want
from elasticd.records.keys import Keys
from elasticd.records.member import Drain, Member, Node, Result, Saved, StoreAddress
from elasticd.records.reason import Cause, Phase, Reason
from elasticd.records.world import World, WorldNode
from elasticd.store.api import KeyValue

KEYS = Keys()
JOB = JobName("j")
A, B, C = NodeId("a"), NodeId("b"), NodeId("c")
CULPRIT = Failure(
    node=B,
    incarnation=Incarnation("i"),
    host="hb",
    generation=Generation(1),
    rank=Rank(1),
    local_rank=0,
    slot=Slot(0),
    nonce=Nonce(1),
    signal="SIGKILL",
)


def item(key: str, record: object) -> KeyValue:
    return KeyValue(key=key, value=encode(record), mod_revision=1, create_revision=1)


def incident(generation: int, node: NodeId, reason: Reason, size: int, **phases: float) -> KeyValue:
    record = Incident(
        generation=Generation(generation),
        node=node,
        host=f"h{node}",
        reason=reason,
        culprit=CULPRIT if reason is Reason.WORKER_KILLED else None,
        lost=(B,) if reason is Reason.NODE_LOST else (),
        world_size=size,
        nodes=size,
        phases_s=phases,
        at_unix_s=100.0 + generation,
    )
    return item(KEYS.incident(JOB, Generation(generation), node), record)


def records() -> list[KeyValue]:
    spec = JobSpec(name=JOB, uid="u", entry_kind=EntryKind.SCRIPT, entry="t.py", max_nodes=4)
    return [
        item(KEYS.spec(JOB), spec),
        item(KEYS.status(JOB), JobStatus(generation=Generation(4))),
        item(KEYS.want(JOB, "user"), Want(writer="user", nodes=2)),
        incident(1, A, Reason.FIRST_WORLD, 2, agree=0.1),
        incident(1, B, Reason.FIRST_WORLD, 2, agree=0.2),
        incident(2, A, Reason.WORKER_KILLED, 2, detect=0.1, stop=0.5),
        incident(2, B, Reason.WORKER_KILLED, 2, stop=0.2, start=0.4),
        incident(3, A, Reason.NODE_LOST, 1, detect=5.0),
        incident(4, A, Reason.JOINED, 2, agree=0.3),
        incident(4, C, Reason.JOINED, 2, start=0.2),
    ]


def test_agents_of_a_job_that_is_over_have_written_their_last_account() -> None:
    """If not, they were killed; while the job runs, they write it yet."""
    found = []
    for phase in (Phase.RUNNING, Phase.STOPPED):
        spent = TimeSpent(node=A, uid="u", seconds={"start": 1.0}, slots=1)
        items = [item(KEYS.time_spent(JOB, A, Life("l")), spent)]
        items += [each for each in records() if each.key == KEYS.spec(JOB)]
        items.append(item(KEYS.status(JOB), JobStatus(phase=phase)))
        report = job_report(items, KEYS, JOB)
        assert report is not None and report.time is not None
        found.append((report.time.unwritten_agents, report.time.goodput))
    assert found == [(0, 0.0), (1, None)]


def test_a_change_takes_each_phase_from_the_node_where_it_took_longest() -> None:
    """Every node measures by its own clock; the sum is an upper bound."""
    report = job_report(records(), KEYS, JOB)
    assert report is not None
    change = report.changes[1]
    assert change.phases_s == {"detect": 0.1, "stop": 0.5, "start": 0.4}
    assert change.total_s == 1.0
    assert change.culprit == CULPRIT


def announcement(generation: int, reason: Reason, proposer: NodeId) -> KeyValue:
    record = Incident(
        generation=Generation(generation),
        node=proposer,
        host=proposer,
        reason=reason,
        culprit=CULPRIT,
        nodes=2,
        world_size=2,
        is_announced=True,
    )
    return item(KEYS.incident(JOB, Generation(generation), proposer), record)


def test_generation_in_which_nobody_arrived_has_its_row() -> None:
    """It is the one with the culprit, and makes the next one no larger."""
    told = [
        incident(1, A, Reason.FIRST_WORLD, 2),
        incident(1, B, Reason.FIRST_WORLD, 2),
        announcement(2, Reason.WORKER_HUNG, B),
        incident(3, A, Reason.JOINED, 2, agree=0.3),
        incident(3, B, Reason.JOINED, 2, agree=0.3),
    ]
    report = job_report([*records()[:2], *told], KEYS, JOB)
    assert report is not None
    first, second, third = report.changes
    assert (second.reason, second.culprit, second.told) == (Reason.WORKER_HUNG, CULPRIT, 0)
    assert third.joined == () and (first.told, third.told) == (2, 2)
    assert report.arrivals(second) == "no node went through it before the next change"
    assert report.arrivals(third) == ""


def test_worker_that_was_replaced_on_its_node_is_no_node_that_joined() -> None:
    """As far as all nodes have told: one that has not may be new."""
    first = [incident(1, node, Reason.FIRST_WORLD, 2) for node in (A, B)]
    for told, is_known in (((A, B), True), ((A,), False), ((A, C), False)):
        second = [incident(2, node, Reason.JOINED, 2) for node in told]
        report = job_report([*records()[:2], *first, *second], KEYS, JOB)
        assert report is not None
        assert report.changes[1].has_no_new_node is is_known
        assert words.timeline(report.changes[1]).endswith("(workers joined)") is is_known


def test_change_under_way_says_how_far_it_is() -> None:
    """From the members' own word."""
    node = WorldNode(
        node=A,
        incarnation=Incarnation("i"),
        host="h",
        address="x",
        port=1,
        first_rank=Rank(0),
        workers=(),
    )
    world = World(
        generation=Generation(2),
        nodes=(node, replace(node, node=B)),
        store=StoreAddress(host="x", port=1),
        reason=Reason.WORKER_HUNG,
        proposer=A,
    )
    member = Member(
        node=B,
        incarnation=Incarnation("i"),
        host="h",
        address="x",
        port=1,
        slots=(),
        arrived=Generation(2),
    )
    running = item(KEYS.status(JOB), JobStatus(phase=Phase.RUNNING, generation=Generation(2)))
    report = job_report(
        [
            *records()[:1],
            running,
            incident(1, A, Reason.FIRST_WORLD, 2),
            item(KEYS.incident(JOB, Generation(2), A), announced(world)),
            item(KEYS.world(JOB), world),
            item(KEYS.member(JOB, B), member),
        ],
        KEYS,
        JOB,
    )
    assert report is not None
    assert report.changes[1].reason is Reason.WORKER_HUNG
    assert report.arrivals(report.changes[1]) == "under way: 1 of 2 nodes have arrived"


def test_changes_say_what_changed_in_order() -> None:
    """The order of the generations, with who was lost and who came."""
    report = job_report(reversed(records()), KEYS, JOB)
    assert report is not None
    assert [change.generation for change in report.changes] == [1, 2, 3, 4]
    assert report.changes[2].lost == (B,)
    assert report.changes[3].joined == (C,)
    assert [change.has_no_new_node for change in report.changes] == [False, True, True, False]
    assert report.world_sizes == (2, 1, 2)


def test_restarts_and_lost_seconds_leave_the_first_world_out() -> None:
    """A start is not a loss."""
    report = job_report(records(), KEYS, JOB)
    assert report is not None
    assert report.restarts_by_cause == {Cause.NODE_LOSS: 2, Cause.RESIZE: 1}
    assert report.lost_s["agree"] == 0.3
    assert report.lost_s["detect"] == 5.1


def test_the_users_wish_is_the_target() -> None:
    """Else the most that the job was submitted with."""
    report = job_report(records(), KEYS, JOB)
    assert report is not None and report.target_nodes == 2


def test_records_without_a_spec_are_no_job() -> None:
    """As while a submitter clears away the one before."""
    assert job_report(records()[1:], KEYS, JOB) is None


def test_jobs_are_told_apart_by_their_whole_name() -> None:
    """A name may be the begin of another."""
    spec = JobSpec(name=JobName("j2"), uid="u", entry_kind=EntryKind.SCRIPT, entry="t.py")
    found = job_reports(
        [*records(), item(KEYS.spec(JobName("j2")), spec)], KEYS, UnreadableRecords()
    )
    assert [report.spec.name for report in found] == ["j", "j2"]
    assert found[1].changes == ()


def test_a_drained_node_is_listed_with_the_reason() -> None:
    """Whether its agent knows already is another fact."""
    node = Node(node=A, incarnation=Incarnation("i"), host="h", address="x", port=1, slots=1)
    (report,) = node_reports(
        [item(KEYS.node(A), node)],
        [item(KEYS.drain(A), Drain(why="disk"))],
        KEYS,
        UnreadableRecords(),
    )
    assert (report.is_drained, report.drain_why, report.node.is_draining) == (True, "disk", False)


def test_node_that_can_start_no_worker_is_named_beside_what_the_proposer_says() -> None:
    """Else only the node's own log would tell why the job does not begin, or has too few nodes."""

    def message_of(phase: Phase, message: str) -> str:
        useless = Member(
            node=B,
            incarnation=Incarnation("i"),
            host="hb",
            address="x",
            port=1,
            slots=(),
            failure=replace(CULPRIT, generation=Generation(0), exception="no torch here."),
        )
        own = item(KEYS.status(JOB), JobStatus(phase=phase, message=message))
        report = job_report([*records(), own, item(KEYS.member(JOB, B), useless)], KEYS, JOB)
        assert report is not None
        return report.message

    why = "b cannot start workers: no torch here"
    assert message_of(Phase.PENDING, "waiting for 1 more node") == f"waiting for 1 more node; {why}"
    assert message_of(Phase.RUNNING, "") == why
    assert message_of(Phase.STOPPED, "stopped by ann") == "stopped by ann"


def test_state_of_a_stopped_job_is_what_its_nodes_know_together() -> None:
    """Of one that goes on, or has ended well, nothing is said."""

    def saved_of(phase: Phase, *told: Saved | None) -> Saved | None:
        results = [
            item(
                KEYS.result(JOB, NodeId(f"n{number}")),
                Result(
                    node=NodeId(f"n{number}"),
                    incarnation=Incarnation("i"),
                    generation=Generation(1),
                    saved=saved,
                ),
            )
            for number, saved in enumerate(told)
        ]
        status = item(KEYS.status(JOB), JobStatus(phase=phase))
        report = job_report([*records(), status, *results], KEYS, JOB)
        assert report is not None
        return report.saved

    good, bad = Saved(at_step=9, durable_step=9), Saved(at_step=9, why="no time")
    assert saved_of(Phase.STOPPED, None, bad, good) == good
    assert saved_of(Phase.WAITING, bad) == bad
    assert saved_of(Phase.STOPPED, None) is None
    assert saved_of(Phase.SUCCEEDED, bad) is None
