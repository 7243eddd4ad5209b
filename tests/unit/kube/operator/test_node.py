"""One operator on a Kubernetes and an etcd in memory: nodes that are lost, and their labels."""

import pytest

from elasticd.kube.api.port import ELASTIC_JOBS, NODES, PODS, Name
from elasticd.kube.operator.write.etcd_write import stop_job
from elasticd.kube.resource.job_status import DEADLINE_WHY
from elasticd.leader.election import Election
from elasticd.records.codec import decode
from elasticd.records.ids import Incarnation, JobName, NodeId
from elasticd.records.job import Want
from elasticd.records.member import Member, NodeLabels
from elasticd.store.api import Delete, Txn
from tests.fixtures.operator_scene import OperatorScene


def the_job(scene: OperatorScene) -> JobName:
    (job,) = scene.jobs
    return job


@pytest.mark.parametrize("writer", ["operator", "user"])
def test_a_job_whose_last_node_is_lost_while_it_is_stopped_is_ended(
    scene: OperatorScene, writer: str
) -> None:
    """Nobody is left who would read the wish: else the deleted object stayed for ever."""
    scene.create()
    operator = scene.begin()
    scene.converge(operator)
    job = the_job(scene)
    member = Member(
        node=NodeId("n"), incarnation=Incarnation("i.1"), host="n", address="a", port=1, slots=()
    )
    scene.put(scene.keys.member(job, NodeId("n")), member)
    scene.run(job)
    if writer == "user":  # `elasticd stop` saw a node that served it, too.
        scene.put(scene.keys.want(job, writer), Want(writer=writer, is_stop=True))
    else:
        scene.delete()
    scene.converge(operator)
    scene.store.commit(Txn(then=(Delete(key=scene.keys.member(job, NodeId("n"))),)))
    for _ in range(4):
        operator.evaluate()
        scene.now_s += 2.0
    assert scene.jobs == [job], "a node whose lease was lost comes back, with workers that save"
    scene.now_s += 3.0
    scene.converge(operator)
    assert not scene.jobs and (scene.get() is None) == (writer == "operator")


def test_a_job_whose_nodes_have_just_lost_their_lease_is_not_ended_at_once(
    scene: OperatorScene,
) -> None:
    """Etcd was away while the object was deleted: the workers come back, and save."""
    scene.create()
    operator = scene.begin()
    scene.converge(operator)
    job = the_job(scene)
    scene.run(job)
    scene.delete()
    for _ in range(4):
        operator.evaluate()
        scene.now_s += 2.0
    assert scene.jobs == [job] and scene.get() is not None
    item = scene.store.get(scene.keys.want(job, "operator"))
    assert item is not None and decode(Want, item.value).is_stop
    scene.now_s += 3.0
    scene.converge(operator)
    assert not scene.jobs and scene.get() is None


def test_a_job_that_nobody_serves_does_not_say_that_a_person_gave_it_up(
    scene: OperatorScene,
) -> None:
    """It is the operator that ends it, as after its deadline."""
    scene.create()
    operator = scene.begin()
    scene.converge(operator)
    job = the_job(scene)
    uid = (scene.get() or {})["metadata"]["uid"]
    stop_job(scene.store, scene.keys, job, uid, why=DEADLINE_WHY, may_end=True)
    scene.converge(operator)
    assert scene.status()["message"] == (
        f"It was stopped: {DEADLINE_WHY}. Given up by the operator on Kubernetes before a world "
        "had formed."
    )


def test_a_node_is_told_its_labels_and_that_they_are_gone(scene: OperatorScene) -> None:
    """Its agent has no right to ask the API server."""
    scene.node("n0")
    scene.objects.patch(NODES, Name("", "n0"), {"metadata": {"labels": {"zone": "a", "b": "c"}}})
    scene.api.hand_out()
    scene.create(nodeSelector={"zone": "a"})
    operator = scene.begin()
    scene.converge(operator)
    key = scene.keys.labels_of(NodeId("n0"))
    item = scene.store.get(key)
    assert item is not None and decode(NodeLabels, item.value).labels == {"zone": "a"}
    scene.delete()
    scene.converge(operator)
    assert scene.store.get(key) is None


def test_node_that_is_silent_is_taken_out_though_other_objects_cannot_be_followed(
    scene: OperatorScene,
) -> None:
    """What is seen of nodes is fresh: it may be the right to read pods that was taken away."""
    for name in ("n1", "n2", "n3"):
        scene.node(name)
    operator = scene.begin()
    scene.converge(operator)
    for watch in scene.api._watches:
        if watch.kind == PODS:
            watch.trouble = "It may not list pods."
    not_ready = {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}
    scene.objects.patch(NODES, Name("", "n1"), not_ready, "status")
    scene.api.hand_out()
    for _ in range(20):
        operator.evaluate()
        scene.now_s += 1.0
    assert scene.store.keys(scene.keys.drains)


def test_operators_of_two_namespaces_agree_on_the_labels_of_a_node(scene: OperatorScene) -> None:
    """Each sees its own ElasticJobs alone, and the record of a node has room for both."""
    scene.node("n0")
    change = {"metadata": {"labels": {"zone": "a", "rack": "7", "x": "y"}}}
    scene.objects.patch(NODES, Name("", "n0"), change)
    scene.api.hand_out()
    for namespace, selector in (("team", {"zone": "a"}), ("other", {"rack": "7"})):
        body = {
            "metadata": {"name": "a", "namespace": namespace},
            "spec": {"script": "train.py", "nodeSelector": selector},
        }
        scene.api.create(ELASTIC_JOBS, body)
    operators = []
    for namespace in ("team", "other"):
        term = Election(scene.store, scene.keys.operator_election(namespace)).campaign()
        assert term is not None
        operators.append(scene.begin(term, namespace=namespace))
    for _ in range(30):
        for operator in operators:
            operator.evaluate()
        scene.now_s += 3.0
    item = scene.store.get(scene.keys.labels_of(NodeId("n0")))
    assert item is not None and decode(NodeLabels, item.value).labels == {"zone": "a", "rack": "7"}
    for _ in range(60):
        for operator in operators:
            operator.evaluate()
        scene.now_s += 3.0
    after = scene.store.get(scene.keys.labels_of(NodeId("n0")))
    assert after is not None and after.mod_revision == item.mod_revision
