"""What is remembered of actions."""

from elasticd.kube.decide.action import AddFinalizer, ApplyReplicas, ApplyStatus, TellEvent
from elasticd.kube.decide.memory import NodeMemory, OperatorMemory, remembered, with_nodes, without
from elasticd.kube.resource.elastic_job import ElasticJob
from elasticd.kube.resource.status import ElasticJobStatus
from elasticd.records.ids import NodeId

JOB = ElasticJob(namespace="team", name="x", uid="u1", resource_version="5", generation=2)
SEEN = {"u1": JOB}


def test_writes_are_remembered_with_what_was_seen_then() -> None:
    memory = remembered(
        OperatorMemory(), ApplyStatus(job=JOB.key, status=ElasticJobStatus()), SEEN, now_s=7.0
    )
    memory = remembered(
        memory, ApplyReplicas(job=JOB.key, replicas=4, at_generation=2), SEEN, now_s=8.0
    )
    found = memory.objects["u1"]
    assert (found.status_s, found.status_version) == (7.0, "5")
    assert (found.replicas, found.replicas_generation) == (4, 2)


def test_replicas_that_were_filled_in_with_the_finalizer_are_remembered() -> None:
    """Else they would be applied once more, where the watch is behind."""
    taken = AddFinalizer(job=JOB.key, replicas=4, at_generation=2)
    found = remembered(OperatorMemory(), taken, SEEN, now_s=1.0).objects["u1"]
    assert (found.replicas, found.replicas_generation) == (4, 2)


def test_events_are_remembered_by_topic_and_worlds_by_generation() -> None:
    memory = OperatorMemory()
    for event in (
        TellEvent(job=JOB.key, reason="Invalid", message="a", topic="spec"),
        TellEvent(job=JOB.key, reason="Invalid", message="b", topic="spec"),
        TellEvent(job=JOB.key, reason="WorldFormed", message="c", topic="world", generation=3),
    ):
        memory = remembered(memory, event, SEEN, now_s=1.0)
    assert memory.objects["u1"].told == {"spec": "Invalid: b"}
    assert memory.objects["u1"].generation == 3


def test_other_actions_leave_it_as_it_was() -> None:
    memory = OperatorMemory()
    assert remembered(memory, AddFinalizer(job=JOB.key), SEEN, now_s=1.0) is memory


def test_objects_that_are_gone_are_forgotten() -> None:
    status = ApplyStatus(job=JOB.key, status=ElasticJobStatus())
    memory = remembered(OperatorMemory(), status, SEEN, now_s=7.0)
    assert without(memory, SEEN) is memory
    assert without(memory, {}).objects == {}


def test_nodes_are_remembered_while_they_or_their_pods_are_there() -> None:
    """Since when one is missing is its first moment without an object."""
    a, b = NodeId("a"), NodeId("b")
    memory = with_nodes(OperatorMemory(), {a}, {a, b}, now_s=1.0)
    assert memory.nodes == {a: NodeMemory(was_seen=True), b: NodeMemory(missed_s=1.0)}
    assert with_nodes(memory, {a}, {a, b}, now_s=2.0) is memory
    memory = with_nodes(memory, set(), {a, b}, now_s=3.0)
    assert memory.nodes[a] == NodeMemory(was_seen=True, missed_s=3.0)
    assert memory.nodes[b].missed_s == 1.0
    assert with_nodes(memory, {b}, set(), now_s=4.0).nodes == {b: NodeMemory(was_seen=True)}
