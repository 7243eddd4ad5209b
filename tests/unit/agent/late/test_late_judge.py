"""What the node of rank 0 writes down of late nodes, and what it does about one."""

import dataclasses
from collections.abc import Callable

import pytest

from elasticd.errors import Unavailable
from elasticd.records.account.late import LateNode, LateNodes, NodeWait, OnLate
from elasticd.records.codec import decode, encode
from elasticd.records.ids import Generation, Incarnation, JobName
from elasticd.records.job import EntryKind, JobSpec, JobStatus
from elasticd.records.keys import Keys
from elasticd.records.member import Drain, Node
from elasticd.records.reason import Phase
from elasticd.rendezvous.persistent_map import PersistentMap
from elasticd.rendezvous.state import JobState, SeenMember, replace
from elasticd.store.api import Lease, LeaseId, Put, Txn
from elasticd.store.memory import MemoryStore
from elasticd_agent.late import late_judge as module
from elasticd_agent.late.late_judge import DRAIN_AFTER_S, RETRY_S, LateJudge
from tests.unit.agent.job.test_etcd_effects import PromptEffects
from tests.unit.rendezvous.cases import Told, member, name, running, world

JOB, KEYS = JobName("j"), Keys()


class Held:
    """A lease."""

    def __init__(self, deadline_s: float = 1e12) -> None:
        self.id, self.ttl_s, self.deadline_s = LeaseId(1), 5.0, deadline_s

    def revoke(self) -> None:
        pass

    def close(self) -> None:
        pass


class Scene:
    """One job on four nodes, seen by one of them."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        *,
        me: int = 0,
        on_late: OnLate = OnLate.REPORT,
        min_nodes: int = 1,
        store: MemoryStore | None = None,
    ) -> None:
        self.store, self.now_s = store or MemoryStore(), 1000.0
        monkeypatch.setattr(module, "now_s", lambda: self.now_s)
        self.lease: Lease = Held()
        self.told_of: list[LateNode] = []
        self.judge = LateJudge(
            job=JOB,
            on_late=on_late,
            store=self.store,
            keys=KEYS,
            effect_thread=PromptEffects(),
            lease=lambda: self.lease,
            post=lambda call: call(),
            tell=self.told_of.append,
        )
        spec = JobSpec(
            name=JOB, uid="u", entry_kind=EntryKind.SCRIPT, entry="t.py", min_nodes=min_nodes
        )
        standing = world(1, 0, 1, 2, 3)
        self.put(KEYS.spec(JOB), spec)
        self.put(KEYS.status(JOB), JobStatus(phase=running(1).phase))
        self.put(KEYS.active_job(JOB), Drain())
        self.put(KEYS.world(JOB), standing)
        for index in range(4):
            self.put(KEYS.member(JOB, name(index)), member(index))
            node = Node(
                node=name(index),
                incarnation=Incarnation("i"),
                host="h",
                address="a",
                port=1,
                slots=1,
            )
            self.put(KEYS.node(name(index)), node)
        self.state: JobState = replace(
            Told(me).state, world=standing, status=running(1), has_all_members=True
        )

    def put(self, key: str, record: object) -> None:
        self.store.commit(Txn(then=(Put(key=key, value=encode(record)),)))

    def told(self, *waits_s: float | None, for_s: float = 5.0) -> None:
        """Let the nodes say this, and the judge look as often as it wants to, for so long."""
        seen = []
        for index, wait_s in enumerate(waits_s):
            wait = None
            if wait_s is not None:
                wait = NodeWait(
                    generation=Generation(1),
                    steps=50,
                    step_s=0.1,
                    wait_s=wait_s,
                    low_s=wait_s - 0.001,
                    high_s=wait_s + 0.001,
                )
            one = dataclasses.replace(member(index), wait=wait)
            seen.append(
                (
                    one.node,
                    SeenMember(member=one, create_revision=1, mod_revision=1, seen_s=self.now_s),
                )
            )
        self.state = replace(self.state, members=PersistentMap(seen))
        self.look(for_s)

    def look(self, for_s: float) -> None:
        until_s, looks = self.now_s + for_s, 0
        while True:
            self.judge.judge(self.state, self.now_s)
            wake_s = self.judge.wake_s
            if wake_s is None or wake_s > until_s:
                break
            looks += 1
            assert looks < 100, "it is woken again and again"
            self.now_s = max(self.now_s, wake_s)
        self.now_s = until_s

    def end(self, *, is_replaced: bool = False) -> None:
        """Let the job succeed, or let another job have its name."""
        status = None if is_replaced else JobStatus(phase=Phase.SUCCEEDED)
        self.state = replace(self.state, status=status, is_replaced=is_replaced)
        self.look(0.0)

    @property
    def late(self) -> list[LateNode]:
        item = self.store.get(KEYS.late(JOB))
        return list(decode(LateNodes, item.value).nodes) if item is not None else []

    @property
    def drained(self) -> list[str]:
        return [item.key.removeprefix(KEYS.drains) for item in self.store.list(KEYS.drains).items]


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Scene]:
    return lambda **given: Scene(monkeypatch, **given)


def test_late_node_is_written_down_with_its_end(scene: Callable[..., Scene]) -> None:
    """Once when it is found, once when it is over, and nothing in between."""
    one = scene()
    one.told(0.03, 0.005, 0.03, 0.03)
    (found,) = one.late
    assert (found.node, found.ratio, found.until_unix_s) == (name(1), 0.333, 0.0)
    assert found.cost_nodes == 0.75
    assert one.judge.ratio == pytest.approx(1 / 3)
    assert one.drained == []
    item = one.store.get(KEYS.late(JOB))
    one.told(0.03, 0.006, 0.03, 0.03, for_s=30.0)
    assert one.store.get(KEYS.late(JOB)) == item
    one.told(0.005, 0.005, 0.006, 0.005)
    assert one.late[0].until_unix_s > 0.0
    assert one.judge.ratio == 0.0
    begun, over = one.told_of
    assert begun == found and over == one.late[0]


def test_what_is_open_ends_with_the_job(scene: Callable[..., Scene]) -> None:
    """Else nobody would know until when the node was late; nothing is written after that."""
    one = scene()
    one.told(0.03, 0.005, 0.03, 0.03)
    one.end()
    (found,) = one.late
    assert found.until_unix_s >= found.since_unix_s > 0.0
    assert (one.judge.ratio, one.judge.wake_s) == (0.0, None)
    assert [each.until_unix_s > 0.0 for each in one.told_of] == [False, True]
    item = one.store.get(KEYS.late(JOB))
    one.told(0.03, 0.005, 0.03, 0.03)
    assert one.store.get(KEYS.late(JOB)) == item


def test_end_is_written_by_a_judge_that_wrote_nothing_before(scene: Callable[..., Scene]) -> None:
    """Who has got rank 0 just before does not know the waits of all nodes."""
    first = scene()
    first.told(0.03, 0.005, 0.03, 0.03)
    last = scene(store=first.store)
    last.told(0.03, None, 0.03, 0.03)
    assert [each.until_unix_s for each in last.late] == [0.0]
    last.end()
    assert [each.until_unix_s > 0.0 for each in last.late] == [True]


def test_end_that_etcd_does_not_take_is_written_later(
    scene: Callable[..., Scene], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as this node still serves the job."""
    one = scene()
    one.told(0.03, 0.005, 0.03, 0.03)

    def refused(txn: Txn) -> object:
        raise Unavailable("no")

    with monkeypatch.context() as patch:
        patch.setattr(one.store, "commit", refused)
        one.end()
    assert one.late[0].until_unix_s == 0.0
    one.look(2 * RETRY_S)
    assert one.late[0].until_unix_s > 0.0


@pytest.mark.parametrize("me", [0, 2])
def test_end_is_left_to_whom_the_record_belongs(scene: Callable[..., Scene], me: int) -> None:
    """The node of rank 0 writes it, and not where another job has the name by now."""
    first = scene()
    first.told(0.03, 0.005, 0.03, 0.03)
    one = scene(store=first.store, me=me)
    one.told(0.03, None, 0.03, 0.03)
    one.end(is_replaced=me == 0)
    assert [each.until_unix_s for each in one.late] == [0.0]


def test_late_node_that_left_ends_with_that_if_one_node_is_left(
    scene: Callable[..., Scene],
) -> None:
    """A node alone waits for nobody, so nothing else would ever tell that it is over."""
    one = scene()
    one.told(0.03, 0.005, 0.03, 0.03)
    one.state = replace(one.state, world=world(2, 0), status=running(2))
    one.told(None, None, None, None)
    assert [each.until_unix_s > 0.0 for each in one.late] == [True]


def test_only_the_node_of_rank_0_judges(scene: Callable[..., Scene]) -> None:
    """Else each would write, and each with an opinion of its own."""
    one = scene(me=2)
    one.told(0.03, 0.005, 0.03, 0.03)
    assert (one.late, one.judge.ratio, one.judge.wake_s) == ([], 0.0, None)


def test_undisturbed_job_costs_no_write(scene: Callable[..., Scene]) -> None:
    """There is no record where nothing is to be said."""
    one = scene()
    one.told(0.005, 0.005, 0.006, 0.005)
    assert one.store.get(KEYS.late(JOB)) is None


def test_next_judge_goes_on_with_the_record(scene: Callable[..., Scene]) -> None:
    """What it does not know stays open; once it knows all, what is over is closed."""
    first = scene()
    first.told(0.03, 0.005, 0.03, 0.03)
    next_one = scene(store=first.store)
    next_one.told(0.03, None, 0.03, 0.03)
    assert [each.until_unix_s for each in next_one.late] == [0.0]
    next_one.told(0.005, 0.005, 0.005, 0.005)
    assert [each.until_unix_s > 0.0 for each in next_one.late] == [True]
    assert (first.told_of[0].node, first.told_of[1:]) == (name(1), [])
    assert next_one.told_of == next_one.late


def test_etcd_that_does_not_answer_is_asked_again(
    scene: Callable[..., Scene], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a pause, until it has been written."""
    one = scene()

    def refused(txn: Txn) -> object:
        raise Unavailable("no")

    with monkeypatch.context() as patch:
        patch.setattr(one.store, "commit", refused)
        one.told(0.03, 0.005, 0.03, 0.03)
    assert one.late == [] and one.told_of == []
    one.look(2 * RETRY_S)
    assert [each.node for each in one.late] == [name(1)]
    assert one.told_of == one.late


def test_late_node_is_drained_where_that_was_asked_for(scene: Callable[..., Scene]) -> None:
    """After a while, and with a word of it."""
    one = scene(on_late=OnLate.DRAIN)
    one.told(0.03, 0.005, 0.03, 0.03)
    assert (len(one.late), one.drained) == (1, [])
    one.look(2 * DRAIN_AFTER_S)
    assert one.drained == [name(1)]
    (found,) = one.late
    assert found.drained_unix_s > 0.0
    item = one.store.get(KEYS.drain(name(1)))
    assert item is not None
    assert decode(Drain, item.value).why == "job j: its steps take 33% longer"


def test_job_keeps_its_least_number_of_nodes(scene: Callable[..., Scene]) -> None:
    """And its status says why the node stays."""
    one = scene(on_late=OnLate.DRAIN, min_nodes=4)
    one.told(0.03, 0.005, 0.03, 0.03, for_s=3 * DRAIN_AFTER_S)
    assert one.drained == []
    said = "not drained: job j would have fewer nodes than its least number, 4"
    assert [each.note for each in one.late] == [said]


def test_one_node_is_drained_at_a_time(scene: Callable[..., Scene]) -> None:
    """The second one of two may be well once the first is gone, or be needed."""
    one = scene(on_late=OnLate.DRAIN)
    one.told(0.03, 0.005, 0.03, 0.005, for_s=200.0)
    assert len(one.drained) == 1
    (note,) = [each.note for each in one.late if not each.drained_unix_s]
    assert note in ("", f"not drained: node {one.drained[0]} is being drained")


def test_node_that_an_operator_drains_is_waited_for(scene: Callable[..., Scene]) -> None:
    """Two that leave at once might be one too many."""
    one = scene(on_late=OnLate.DRAIN)
    one.put(KEYS.drain(name(3)), Drain(why="disk"))
    one.told(0.03, 0.005, 0.03, 0.03, for_s=3 * DRAIN_AFTER_S)
    assert one.drained == [name(3)]
    assert one.late[0].note == f"not drained: node {name(3)} is being drained"


def test_node_without_a_lease_writes_nothing(scene: Callable[..., Scene]) -> None:
    """Another one may have rank 0 by now."""
    one = scene()
    one.lease = Held(deadline_s=0.0)
    one.told(0.03, 0.005, 0.03, 0.03)
    assert one.late == []
