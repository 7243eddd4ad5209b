"""The operator on a real API server, with the rights of its manifest, and on a real etcd."""

import json
import secrets
from dataclasses import replace

import pytest

from elasticd.kube.api.port import NODES, PODS, Name
from elasticd.kube.resource.name import FINALIZER, PART_OF, PART_OF_LABEL
from elasticd.records.codec import decode
from elasticd.records.ids import Incarnation, JobName, NodeId
from elasticd.records.job import EndedJob, JobStatus
from elasticd.records.member import Drain, Member
from elasticd.records.reason import Phase
from elasticd.store.api import Delete, Txn
from tests.kube.elastic_cluster import limit
from tests.kube.operator_run import LIMIT_S, JobScene, OperatorRun
from tests.kube.testbed.daemon import wait_until

POLICY = '[goodput]\nhorizon = "30m"\n'


@pytest.fixture
def scene(operator: OperatorRun) -> JobScene:
    return JobScene(operator, f"t-{secrets.token_hex(4)}")


def begin_to_serve(scene: JobScene, job: JobName) -> str:
    """Have a node be a member of the job, as its agent does; return the key of that."""
    member = Member(
        node=NodeId("n"), incarnation=Incarnation("i.1"), host="n", address="a", port=1, slots=()
    )
    key = scene.run.keys.member(job, NodeId("n"))
    scene.run.put(key, member)
    return key


def end(scene: JobScene, job: JobName, phase: Phase) -> None:
    """Have the job be over, as the agents do."""
    keys = scene.run.keys
    item = scene.run.store.get(keys.status(job))
    assert item is not None
    scene.run.put(keys.status(job), replace(decode(JobStatus, item.value), phase=phase))
    scene.run.put(keys.ended_job(job), EndedJob())
    scene.run.store.commit(Txn(then=(Delete(key=keys.active_job(job)),)))


# --- the life of one object -------------------------------------------------------------------


def test_what_is_applied_becomes_a_job_in_etcd(scene: JobScene) -> None:
    """With a finalizer, with the replicas that it lacks, and with what `kubectl get` shows."""
    refused = scene.run.refused()
    scene.apply({"args": ["--steps", "3"]})
    job = scene.submitted()
    spec = scene.spec(job)
    assert job == f"{scene.namespace}.a" and spec.args == ("--steps", "3")
    found = scene.get()
    assert spec.uid == found["metadata"]["uid"] and spec.max_nodes == 4
    assert found["metadata"]["finalizers"] == [FINALIZER] and found["spec"]["replicas"] == 4
    header, row = scene.kubectl("get", "ej").splitlines()
    assert header.split()[:3] == ["NAME", "PHASE", "NODES"]
    assert row.split()[:3] == ["a", "Pending", "0/4"]
    told = scene.kubectl("describe", "ej/a")
    assert "Submitted" in told and f"It is job {job} in etcd." in told
    assert scene.run.refused() == refused


def test_scale_becomes_the_operators_wish(scene: JobScene) -> None:
    """`kubectl scale`, which an object without replicas does not take: so it has some."""
    scene.apply()
    job = scene.submitted()
    scene.kubectl("scale", "elasticjob/a", "--replicas=2")
    wait_until(lambda: scene.wanted(job) == 2, "the operator wishes for 2 nodes", LIMIT_S)
    scene.apply()  # Without replicas: they stay what they are, as the operator filled them in.
    assert scene.get()["spec"]["replicas"] == 2
    scale = json.loads(scene.kubectl("get", "--raw", f"{path_of(scene)}/scale"))
    assert scale["spec"]["replicas"] == 2 and scale["status"]["selector"]


def path_of(scene: JobScene, name: str = "a") -> str:
    return f"/apis/elasticd.dev/v1alpha1/namespaces/{scene.namespace}/elasticjobs/{name}"


def test_a_deleted_object_stays_until_its_job_has_stopped(scene: JobScene) -> None:
    """Its finalizer keeps it while a node serves the job; then it goes, and the job is over."""
    scene.apply()
    job = scene.submitted()
    member = begin_to_serve(scene, job)
    scene.kubectl("delete", "ej/a", "--wait=false")

    def is_stopped() -> bool:
        want = scene.want(job)
        return want is not None and want.is_stop

    wait_until(is_stopped, "the job is stopped", LIMIT_S)
    wait_until(lambda: scene.status()["phase"] == "Stopping", "it says so", LIMIT_S)
    end(scene, job, Phase.STOPPED)
    scene.run.store.commit(Txn(then=(Delete(key=member),)))
    wait_until(lambda: scene.get() is None, "the object is gone", LIMIT_S)


def test_force_delete_does_not_wait(scene: JobScene) -> None:
    """The object goes at once; its job is stopped all the same."""
    scene.apply()
    job = scene.submitted()
    begin_to_serve(scene, job)
    scene.kubectl("annotate", "ej/a", "elasticd.dev/force-delete=true")
    scene.kubectl("delete", "ej/a", "--timeout=20s")

    def is_stopped() -> bool:
        want = scene.want(job)
        return want is not None and want.is_stop

    wait_until(is_stopped, "the job is stopped", LIMIT_S)


def test_a_job_that_is_over_is_complete_and_expires(scene: JobScene) -> None:
    """`kubectl wait --for=condition=Complete` ends; `ttlSecondsAfterFinished` deletes it."""
    scene.apply()
    job = scene.submitted()
    end(scene, job, Phase.SUCCEEDED)
    scene.kubectl("wait", "--for=condition=Complete", "ej/a", limit(30))
    assert scene.status()["phase"] == "Succeeded" and scene.status()["completionTime"]
    scene.kubectl("patch", "ej/a", "--type=merge", "-p", '{"spec": {"ttlSecondsAfterFinished": 1}}')
    wait_until(lambda: scene.get() is None, "the object has expired", LIMIT_S)


# --- bad input --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"nodes": {"min": 0, "max": 2}}, "greater than or equal to 1"),
        ({"script": ""}, "at least 1 chars long"),
        ({"args": "--steps"}, "ElasticJob.spec.args"),
        ({"env": [{"value": "x"}]}, "ElasticJob.spec.env"),
    ],
)
def test_the_schema_refuses_a_field_of_the_wrong_form(
    scene: JobScene, spec: dict[str, object], words: str
) -> None:
    """Before anybody makes a job of it."""
    said = scene.apply(spec, is_checked=False)
    assert words in said and scene.get() is None


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"nodes": {"min": 3, "max": 2}}, "nodes.min"),
        ({"replicas": 9}, "replicas"),
        ({"module": "x"}, "module"),
        ({"checkpoint": {"url": "nowhere://x/y"}}, "checkpoint.url"),
        ({"files": {"../x": "1"}}, "files"),
        ({"autoscale": {"policy": "nonsense ["}}, "autoscale.policy"),
    ],
)
def test_what_no_schema_refuses_is_invalid_with_a_sentence(
    scene: JobScene, spec: dict[str, object], words: str
) -> None:
    """No job is made of it, an event says why, and what is mended is submitted."""
    scene.apply(spec)
    scene.kubectl("wait", "--for=condition=Invalid", "ej/a", limit(30))
    said = scene.condition("Invalid")["message"]
    assert words in said and said == scene.status()["message"]
    assert scene.status()["phase"] == "Invalid" and "job" not in scene.status()
    assert said in scene.kubectl("get", "events", "-o", "jsonpath={.items[*].message}")
    gone = dict.fromkeys(spec.keys() - {"nodes"})
    mended = {"spec": {**gone, "nodes": {"min": 1, "max": 2}}}
    scene.kubectl("patch", "ej/a", "--type=merge", "-p", json.dumps(mended))
    scene.submitted()
    wait_until(lambda: scene.condition("Invalid")["status"] == "False", "it is valid", LIMIT_S)


def test_a_fixed_field_of_a_job_that_stands_cannot_be_changed(scene: JobScene) -> None:
    """A server of this version takes it; the job goes on as it was, and the object says so."""
    scene.apply()
    job = scene.submitted()
    scene.apply({"script": "other.py"})
    scene.kubectl("wait", "--for=condition=Invalid", "ej/a", limit(30))
    assert "script, module or command cannot be changed" in scene.condition("Invalid")["message"]
    assert scene.spec(job).entry == "train.py"
    scene.apply()
    wait_until(lambda: scene.condition("Invalid")["status"] == "False", "it is valid", LIMIT_S)


def test_an_edit_of_replicas_is_undone_where_the_autoscaler_rules(scene: JobScene) -> None:
    """With an event that says what to do instead."""
    scene.apply({"autoscale": {"policy": POLICY}})
    job = scene.submitted()
    wait_until(lambda: scene.get()["spec"].get("replicas") == 4, "replicas show 4", LIMIT_S)
    scene.kubectl("scale", "ej/a", "--replicas=2")
    wait_until(lambda: scene.get()["spec"]["replicas"] == 4, "the edit is undone", LIMIT_S)
    told = scene.kubectl("get", "events", "-o", "jsonpath={.items[*].message}")
    assert "spec.replicas was set to 2 and is 4 again" in told
    assert scene.wanted(job) is None


# --- faults -----------------------------------------------------------------------------------


def test_it_goes_on_when_the_api_server_comes_back(scene: JobScene) -> None:
    """Killed, the server has forgotten what the watches have seen, and begins them anew."""
    scene.apply(name="before")
    scene.submitted("before")
    pid = scene.run.daemon.pid
    scene.run.server.daemon.kill()
    scene.run.server.start()
    scene.kubectl("scale", "ej/before", "--replicas=3")
    scene.apply(name="after")
    job = scene.submitted("before")
    wait_until(lambda: scene.wanted(job) == 3, "it follows the old object", LIMIT_S)
    scene.submitted("after")
    assert scene.run.daemon.pid == pid


def test_what_happened_while_no_operator_ran_is_made_up_for(scene: JobScene) -> None:
    """One that is killed keeps its lease for a while; the next one leads after that."""
    scene.apply(name="a")
    job = scene.submitted("a")
    scene.run.daemon.kill()
    scene.kubectl("delete", "ej/a", "--wait=false")
    scene.apply(name="b")
    assert scene.get("a") is not None
    scene.run.daemon.start()
    wait_until(lambda: scene.get("a") is None, "the deleted object is gone", LIMIT_S)
    want = scene.want(job)
    assert want is not None and want.is_stop
    scene.submitted("b")
    scene.run.wait_leads()


def test_a_cordoned_node_is_drained_until_it_is_uncordoned(scene: JobScene) -> None:
    """Of nodes with an agent's pod alone; a person's own drain stays."""
    run = scene.run
    for name in ("with-agent", "idle", "taken-out"):
        manifest = {"apiVersion": "v1", "kind": NODES.kind, "metadata": {"name": name}}
        scene.kubectl("apply", "-f", "-", stdin=json.dumps(manifest))
        ready = {"type": "Ready", "status": "True", "reason": "x", "message": "x"}
        run.server.patch(
            f"{NODES.path(Name('', name))}/status", {"status": {"conditions": [ready]}}
        )
    for node in ("with-agent", "taken-out"):
        metadata = {"name": node, "labels": {PART_OF_LABEL: PART_OF}}
        spec = {"nodeName": node, "containers": [{"name": "agent", "image": "x"}]}
        pod = {"apiVersion": "v1", "kind": PODS.kind, "metadata": metadata, "spec": spec}
        scene.kubectl("apply", "-f", "-", stdin=json.dumps(pod))
    run.put(run.keys.drain(NodeId("taken-out")), Drain(why="a new disk"))

    def drain(node: str) -> Drain | None:
        item = run.store.get(run.keys.drain(NodeId(node)))
        return decode(Drain, item.value) if item is not None else None

    def is_drained() -> bool:
        found = drain("with-agent")
        return found is not None and found.why == "its node is cordoned"

    for node in ("with-agent", "idle", "taken-out"):
        scene.kubectl("cordon", node)
    wait_until(is_drained, "the node is drained", LIMIT_S)
    assert drain("idle") is None
    for node in ("with-agent", "idle", "taken-out"):
        scene.kubectl("uncordon", node)
    wait_until(lambda: drain("with-agent") is None, "the drain is taken back", LIMIT_S)
    assert drain("taken-out") == Drain(why="a new disk")
    scene.kubectl("delete", "node", "with-agent", "idle", "taken-out")
