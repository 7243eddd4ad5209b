"""One operator on a Kubernetes and an etcd in memory: what it does, and what it leaves alone."""

from collections.abc import Sequence
from typing import Any

import pytest

from elasticd.errors import NotSupported, Refused, Unavailable
from elasticd.kube.api.event import EVENTS
from elasticd.kube.api.memory import MemoryApi
from elasticd.kube.api.port import NODES, Name
from elasticd.kube.decide.action import Action, WriteJob
from elasticd.kube.decide.cluster import ObservedCluster
from elasticd.kube.decide.decide import decide
from elasticd.kube.operator.counts import OperatorCounts
from elasticd.kube.resource.name import FINALIZER
from elasticd.leader.election import boottime_s
from elasticd.records.codec import decode, encode
from elasticd.records.ids import Generation, Incarnation, JobName, NodeId
from elasticd.records.job import JobSpec, Want
from elasticd.records.member import Drain, Member, Result, Saved, Training
from elasticd.records.reason import Phase
from elasticd.store.api import Delete, Put, Txn
from tests.fixtures.operator_scene import NAME, OperatorScene


def the_job(scene: OperatorScene) -> JobName:
    (job,) = scene.jobs
    return job


def metadata(scene: OperatorScene) -> Any:
    found = scene.get()
    assert found is not None
    return found["metadata"]


# --- the life of one object -------------------------------------------------------------------


def test_an_object_becomes_a_job_with_a_finalizer_and_replicas(scene: OperatorScene) -> None:
    """The finalizer comes first: no job stands that a deleted object would leave behind."""
    scene.create()
    operator = scene.begin()
    operator.evaluate()
    assert metadata(scene)["finalizers"] == [FINALIZER] and not scene.jobs
    scene.converge(operator)
    item = scene.store.get(scene.keys.spec(the_job(scene)))
    assert item is not None and decode(JobSpec, item.value).uid == metadata(scene)["uid"]
    assert (scene.get() or {})["spec"]["replicas"] == 4
    assert scene.status()["job"] == the_job(scene) and scene.status()["phase"] == "Pending"


def test_where_nothing_changes_nothing_is_asked_or_written(scene: OperatorScene) -> None:
    """Idle, the API server hears of the operator by its watches alone."""
    scene.create()
    operator = scene.begin()
    scene.converge(operator)
    scene.api.calls.clear()
    before = scene.store.list("").revision
    for _ in range(60):
        operator.evaluate()
        scene.now_s += 2.0
    assert scene.api.calls == [] and scene.store.list("").revision == before


def test_a_change_of_phase_is_told_at_once_and_the_rest_after_ten_seconds(
    scene: OperatorScene,
) -> None:
    """A status that is written at each change of each number is a load for the API server."""
    scene.create()
    operator = scene.begin()
    scene.converge(operator)
    scene.run(the_job(scene), nodes=2)
    operator.evaluate()
    assert scene.status()["phase"] == "Running" and scene.status()["nodes"] == 2
    scene.now_s += 3.0
    operator.evaluate()
    scene.api.calls.clear()
    scene.run(the_job(scene), nodes=3)
    for _ in range(5):
        operator.evaluate()
        scene.now_s += 1.0
    assert "apply elasticjobs/status" not in scene.api.calls
    scene.now_s += 5.0
    operator.evaluate()
    assert scene.status()["nodes"] == 3


@pytest.mark.parametrize(
    ("ended", "phase"),
    [
        (
            {"training": Training(steps=300, epochs=3, samples=9, repeated=0, skipped=0)},
            Phase.SUCCEEDED,
        ),
        ({"saved": Saved(at_step=300, durable_step=300)}, Phase.STOPPED),
    ],
)
def test_a_job_that_is_over_shows_its_last_step(
    scene: OperatorScene, ended: dict[str, Any], phase: Phase
) -> None:
    """Not the one that its nodes told when they were last asked, some steps before that."""
    scene.create()
    operator = scene.begin()
    scene.converge(operator)
    job = the_job(scene)
    scene.run(job)
    result = Result(
        node=NodeId("n"), incarnation=Incarnation("i.1"), generation=Generation(1), **ended
    )
    scene.put(scene.keys.result(job, NodeId("n")), result)
    operator.evaluate()
    assert "step" not in scene.status()
    scene.end(job, phase)
    operator.evaluate()
    assert scene.status()["step"] == 300


def test_a_scaled_object_scales_the_job(scene: OperatorScene) -> None:
    """`kubectl scale` writes `spec.replicas`, and the operator's want follows."""
    scene.create()
    operator = scene.begin()
    scene.converge(operator)
    scene.run(the_job(scene))
    scene.edit({"spec": {"replicas": 2}})
    operator.evaluate()
    item = scene.store.get(scene.keys.want(the_job(scene), "operator"))
    assert item is not None and decode(Want, item.value).nodes == 2


def test_a_deleted_object_stays_until_its_job_has_stopped(scene: OperatorScene) -> None:
    """Nobody loses a step because the object is gone before the agents have saved."""
    scene.create()
    operator = scene.begin()
    scene.converge(operator)
    job = the_job(scene)
    member = Member(
        node=NodeId("n"), incarnation=Incarnation("i.1"), host="n", address="a", port=1, slots=()
    )
    scene.put(scene.keys.member(job, NodeId("n")), member)
    scene.run(job)
    scene.delete()
    scene.converge(operator)
    item = scene.store.get(scene.keys.want(job, "operator"))
    assert item is not None and decode(Want, item.value).is_stop
    assert scene.get() is not None
    scene.store.commit(Txn(then=(Delete(key=scene.keys.member(job, NodeId("n"))),)))
    scene.end(job, Phase.STOPPED)
    scene.converge(operator)
    assert scene.get() is None


def test_a_job_that_nobody_serves_is_ended_with_its_object(scene: OperatorScene) -> None:
    """There is no agent that would read the wish."""
    scene.create()
    operator = scene.begin()
    scene.converge(operator)
    scene.delete()
    scene.converge(operator)
    assert scene.get() is None and not scene.jobs


def test_the_finalizer_of_another_controller_is_left_alone(scene: OperatorScene) -> None:
    """Ours is taken out of a list of several."""
    scene.create()
    operator = scene.begin()
    scene.edit({"metadata": {"finalizers": ["others.dev/x"]}})
    scene.converge(operator)
    assert metadata(scene)["finalizers"] == ["others.dev/x", FINALIZER]
    scene.delete()
    scene.converge(operator)
    assert metadata(scene)["finalizers"] == ["others.dev/x"]


def test_a_cordoned_node_is_drained_and_comes_back(scene: OperatorScene) -> None:
    """A wish of a person for another node stands."""
    scene.node("n1")
    scene.node("n2")
    operator = scene.begin()
    scene.converge(operator)
    scene.put(scene.keys.drain(NodeId("n2")), Drain(why="mine"))
    scene.objects.patch(NODES, Name("", "n1"), {"spec": {"unschedulable": True}})
    scene.api.hand_out()
    scene.converge(operator)
    item = scene.store.get(scene.keys.drain(NodeId("n1")))
    assert item is not None and decode(Drain, item.value).by
    scene.objects.patch(NODES, Name("", "n1"), {"spec": {"unschedulable": None}})
    scene.api.hand_out()
    scene.converge(operator)
    assert scene.store.keys(scene.keys.drains) == [scene.keys.drain(NodeId("n2"))]


def test_an_event_is_told_once(scene: OperatorScene) -> None:
    """Also by an operator that begins anew: the same event is counted, and is no second one."""
    scene.create()
    operator = scene.begin()
    scene.converge(operator)
    scene.run(the_job(scene))
    scene.converge(operator)
    told = [(each["reason"], each["message"]) for each in scene.objects.items(EVENTS)]
    assert told and len(set(told)) == len(told)
    scene.converge(operator)
    assert all(each["count"] == 1 for each in scene.objects.items(EVENTS))


def test_what_cannot_be_is_said_in_the_status_and_never_submitted(scene: OperatorScene) -> None:
    """And the others are looked after as if it were not there."""
    scene.create("wrong", nodes={"min": 5, "max": 2})
    scene.create()
    operator = scene.begin()
    scene.converge(operator)
    assert scene.status("wrong")["phase"] == "Invalid" and scene.status("wrong")["message"]
    assert scene.status()["job"] == the_job(scene)


# --- faults -----------------------------------------------------------------------------------


def test_an_api_server_that_is_away_is_left_alone_for_longer_and_longer(
    scene: OperatorScene,
) -> None:
    """The job trains on; afterwards its status is what it is then."""
    scene.create()
    operator = scene.begin()
    scene.converge(operator)
    scene.api.go_away()
    assert operator.trouble
    scene.run(the_job(scene))
    scene.api.calls.clear()
    for _ in range(100):
        operator.evaluate()
        scene.now_s += 1.0
    assert 1 <= len(scene.api.calls) < 40
    scene.api.come_back()
    scene.now_s += 120.0
    operator.evaluate()
    assert scene.status()["phase"] == "Running" and not operator.trouble


@pytest.mark.parametrize("is_away", [True, False])
def test_node_that_is_silent_is_taken_out_while_the_api_server_answers_alone(
    scene: OperatorScene, is_away: bool
) -> None:
    """Else nobody knows whether it is heard of again."""
    for name in ("n1", "n2", "n3"):
        scene.node(name)
    operator = scene.begin()
    scene.converge(operator)
    not_ready = {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}
    scene.objects.patch(NODES, Name("", "n1"), not_ready, "status")
    scene.api.hand_out()
    scene.converge(operator)
    if is_away:
        scene.api.go_away()
    for _ in range(60):
        operator.evaluate()
        scene.now_s += 1.0
    assert bool(scene.store.keys(scene.keys.drains)) is not is_away


def test_an_etcd_that_is_away_changes_nothing_in_kubernetes(scene: OperatorScene) -> None:
    """What was seen of it last stands; nobody says that a job is lost."""
    scene.create()
    operator = scene.begin()
    scene.converge(operator)
    scene.run(the_job(scene))
    operator.evaluate()
    scene.store.go_away()
    scene.edit({"spec": {"replicas": 2}})
    for _ in range(20):
        operator.evaluate()
        scene.now_s += 1.0
    assert scene.status()["phase"] == "Running"
    scene.store.come_back()
    scene.now_s += 120.0
    operator.evaluate()
    item = scene.store.get(scene.keys.want(the_job(scene), "operator"))
    assert item is not None and decode(Want, item.value).nodes == 2


def test_the_next_leader_goes_on_where_the_one_before_was_killed(scene: OperatorScene) -> None:
    """After each single write; what comes out is the same, and no job is there twice."""
    scene.create()
    for _ in range(8):
        term = scene.elect()
        operator = scene.begin(term)
        operator.evaluate()
        operator.close()
        scene.store.expire(term.lease.id)
        scene.now_s += 1.0
    last = scene.begin()
    scene.converge(last)
    assert scene.status()["job"] == the_job(scene)
    assert metadata(scene)["finalizers"] == [FINALIZER]


def test_a_leader_of_before_writes_nothing_to_etcd(scene: OperatorScene) -> None:
    """It was stopped in the middle of a look, and does not know of the next one."""
    scene.create()
    term = scene.elect()
    old = scene.begin(term)
    old.evaluate()
    scene.store.commit(Txn(then=(Delete(key=scene.keys.operator_election()),)))
    scene.elect()
    term.is_over = False  # By its own clock its lease lives on.
    assert term.leads(boottime_s())
    before = scene.store.list(scene.keys.root).revision
    for _ in range(5):
        old.evaluate()
        scene.now_s += 1.0
    assert not scene.jobs and scene.store.list(scene.keys.root).revision == before


def test_a_record_of_a_newer_version_is_no_reason_to_say_that_the_job_is_gone(
    scene: OperatorScene,
) -> None:
    """Its object stays as it is until somebody can read the record."""
    scene.create()
    operator = scene.begin()
    scene.converge(operator)
    job = the_job(scene)
    scene.run(job)
    scene.converge(operator)
    newer = encode(scene.job_status(job)).replace(b'"schema":"1.0"', b'"schema":"99.0"')
    scene.store.commit(Txn(then=(Put(key=scene.keys.status(job), value=newer),)))
    with pytest.raises(NotSupported):
        scene.job_status(job)
    scene.delete()
    for one in (operator, scene.begin(scene.elect_anew())):
        for _ in range(5):
            one.evaluate()
            scene.now_s += 20.0
    assert scene.status()["phase"] == "Running" and metadata(scene)["finalizers"] == [FINALIZER]


class Refusing(MemoryApi):
    """Refuses to have anything applied to one object."""

    def apply(self, kind: Any, body: Any, *, subresource: str = "") -> Any:
        if body["metadata"]["name"] == "bad":
            self.calls.append("refused")
            raise Refused("The API server refuses it.")
        return super().apply(kind, body, subresource=subresource)


def test_what_is_refused_is_tried_seldom_and_hinders_nobody_else(scene: OperatorScene) -> None:
    """An admission webhook may refuse one object for ever."""
    scene.api = Refusing(scene.objects)
    scene.create("bad")
    scene.create()
    operator = scene.begin()
    for _ in range(100):
        operator.evaluate()
        scene.now_s += 1.0
    assert scene.status()["job"] and 2 <= scene.api.calls.count("refused") < 40


def test_what_is_written_and_never_seen_is_written_ever_less_often(scene: OperatorScene) -> None:
    """As a job whose record this version cannot read; each write is counted."""
    scene.create()
    writes: list[Action] = []

    def decide_once(seen: ObservedCluster, *, now_s: float, now_unix_s: float) -> Sequence[Action]:
        found = decide(seen, now_s=now_s, now_unix_s=now_unix_s)
        writes.extend(each for each in found if isinstance(each, WriteJob) and not writes)
        return [*found, *(each for each in writes if each not in found)]

    counts = OperatorCounts()
    operator = scene.begin(decide=decide_once, counts=counts)
    for _ in range(600):
        operator.evaluate()
        scene.now_s += 1.0
    (line,) = (
        line
        for line in counts.exposition().decode().splitlines()
        if 'action="write_job",outcome="done"' in line
    )
    assert len(scene.jobs) == 1 and 3 <= int(line.split()[-1]) <= 20


class Slow(MemoryApi):
    """Answers 429 with Retry-After to everything but reading."""

    def patch(self, *args: Any, **more: Any) -> Any:
        from elasticd.kube.api.failure import Busy

        self.calls.append("busy")
        raise Busy("Too many requests.", 30.0)


def test_retry_after_holds_all_that_goes_there(scene: OperatorScene) -> None:
    """For as long as it says, and the other writes too."""
    scene.api = Slow(scene.objects)
    scene.create()
    operator = scene.begin()
    operator.evaluate()
    scene.api.calls.clear()
    for _ in range(29):
        scene.now_s += 1.0
        operator.evaluate()
    assert "busy" not in scene.api.calls
    scene.now_s += 2.0
    operator.evaluate()
    assert "busy" in scene.api.calls


def test_the_operator_says_when_it_wants_to_look_again(scene: OperatorScene) -> None:
    """What failed is tried again before the period is over."""

    class Away(MemoryApi):
        def patch(self, *args: Any, **more: Any) -> Any:
            raise Unavailable("away")

    scene.api = Away(scene.objects)
    scene.create()
    again_s = scene.begin().evaluate()
    assert again_s is not None and 0.0 < again_s <= 0.5
    assert scene.get(NAME) is not None
