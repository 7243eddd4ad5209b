"""Chaos in a user's own cluster: its rights on a real API server, and a run on a real cluster."""

import copy
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from chaos.cluster.cluster_api import ClusterApi, NotStruck
from chaos.cluster.connect import connect
from chaos.cluster.decide import Victim
from chaos.cluster.fault import Kind
from chaos.cluster.observation import AgentPod
from chaos.error import WrongInput
from tests.fixtures.manifests import KUSTOMIZE, built
from tests.fixtures.patience import patience_s
from tests.kube.elastic_cluster import ElasticCluster
from tests.kube.operator_run import CHAOS, kubeconfig_of
from tests.kube.testbed.cluster import Cluster
from tests.kube.testbed.control.api_server import ApiServer
from tests.kube.testbed.daemon import wait_until
from tests.kube.testbed.image.store import IMAGES

pytestmark = pytest.mark.timeout(900)

LONG = 100_000
"""Steps of a job that a test deletes."""
LABELS = {"app.kubernetes.io/component": "agent", "app.kubernetes.io/part-of": "elasticd"}
ARGS = (
    *("--faults=4", "--interval=5"),
    *(
        f"--recover-within={patience_s(240.0):.0f}",
        f"--timeout={min(patience_s(600.0), 3600.0):.0f}",
    ),
)


# --- with only an API server ------------------------------------------------------------------


@pytest.fixture
def api(elasticd_api: ApiServer, tmp_path: Path) -> Iterator[ClusterApi]:
    """As the account of the Job, with the rights of its Roles."""
    folder = str(KUSTOMIZE / "chaos")
    elasticd_api.kubectl("apply", "-k", folder)
    config = kubeconfig_of(elasticd_api, tmp_path / "chaos.kubeconfig", user=CHAOS)
    api = connect(str(config), namespace="default", agents="elasticd")
    yield api
    api.close()
    elasticd_api.kubectl("delete", "-k", folder, "--ignore-not-found")


def agent_pod(server: ApiServer, api: ClusterApi, name: str) -> AgentPod:
    """Make the object of a pod that stands on a node; nothing runs it."""
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "elasticd", "labels": LABELS},
        "spec": {
            "nodeName": "nowhere",
            "serviceAccountName": "elasticd-agent",
            "containers": [{"name": "agent", "image": "none"}],
        },
    }
    server.kubectl("apply", "-f", "-", stdin=json.dumps(body))
    return next(pod for pod in api.look(()).pods if pod.name == name)


def test_roles_of_the_manifests_suffice(api: ClusterApi, elasticd_api: ApiServer) -> None:
    """And where one is missing, that is said before anything is broken."""
    api.check(tuple(Kind))
    assert api.look(()).jobs == {}
    elasticd_api.kubectl("-n", "elasticd", "delete", "rolebinding", "elasticd-chaos")
    with pytest.raises(WrongInput, match="delete pods in namespace elasticd"):
        api.check(tuple(Kind))


@pytest.mark.parametrize("kind", [Kind.POD_DELETE, Kind.POD_FORCE_DELETE, Kind.POD_EVICT])
def test_a_pod_is_struck_as_it_was_seen_and_a_dry_run_leaves_it(
    kind: Kind, api: ClusterApi, elasticd_api: ApiServer
) -> None:
    """By a server as old as 1.20, which has another version of an eviction."""
    pod = agent_pod(elasticd_api, api, f"agent-{kind}")
    other = AgentPod(name=pod.name, uid="another", node=pod.node, is_ready=True, is_deleted=False)
    assert api.strike(kind, Victim(pod=pod, jobs={}), stop_s=1.0, is_dry=True) == ""
    with pytest.raises(NotStruck):
        api.strike(kind, Victim(pod=other, jobs={}), stop_s=1.0, is_dry=False)
    assert pod in api.look(()).pods
    assert api.strike(kind, Victim(pod=pod, jobs={}), stop_s=1.0, is_dry=False) == ""
    left = [each for each in api.look(()).pods if each.name == pod.name]
    assert all(each.is_deleted for each in left)
    force = ("--grace-period=0", "--force", "--ignore-not-found")
    elasticd_api.kubectl("-n", "elasticd", "delete", "pod", pod.name, *force)


# --- on a real cluster ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def elastic(kube_cluster: Cluster) -> Iterator[ElasticCluster]:
    """What is there already is used, and left running."""
    elastic = ElasticCluster(kube_cluster)
    was_up = elastic.is_up()
    elastic.up()
    yield elastic
    if not was_up:
        elastic.down()


@pytest.fixture(autouse=True)
def leave_nothing(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "elastic" in request.fixturenames:
        elastic = request.getfixturevalue("elastic")
        elastic.kubectl("delete", "-k", str(KUSTOMIZE / "chaos"), "--ignore-not-found")
        elastic.kubectl("delete", "ej", "--all", "--timeout=60s")


def apply_chaos(elastic: ElasticCluster, *args: str) -> None:
    """Apply what a user applies, with the testbed's image and these flags."""
    manifests = [copy.deepcopy(dict(each)) for each in built("chaos")]
    (job,) = (each for each in manifests if each["kind"] == "Job")
    (container,) = job["spec"]["template"]["spec"]["containers"]
    container["image"] = IMAGES[1]
    container["args"] = list(args)
    items = {"apiVersion": "v1", "kind": "List", "items": manifests}
    elastic.kubectl("apply", "-f", "-", stdin=json.dumps(items))


def end_of_chaos(elastic: ElasticCluster) -> tuple[int, str]:
    """Wait for the Job's pod to end; return its exit code and its log."""
    codes: list[int] = []

    def is_over() -> bool:
        words = ("get", "pods", "-l", "job-name=elasticd-chaos", "-o", "json")
        for item in json.loads(elastic.ours(*words))["items"]:
            for each in item["status"].get("containerStatuses", ()):
                if "terminated" in each["state"]:
                    codes.append(int(each["state"]["terminated"]["exitCode"]))
        return bool(codes)

    wait_until(is_over, "chaos has ended", 800.0)
    return codes[0], elastic.ours("logs", "job/elasticd-chaos")


def verdict_of(log: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads(
        next(line for line in log.splitlines() if line.startswith("{"))
    )
    return found


def kinds_of(faults: Sequence[Mapping[str, Any]]) -> set[str]:
    return {str(fault["kind"]) for fault in faults}


def test_a_labelled_job_is_broken_and_every_rule_holds(elastic: ElasticCluster) -> None:
    """Pods and workers, one after the other, by a pod with the rights of its Roles alone."""
    elastic.apply("broken", steps=LONG)
    elastic.kubectl("label", "ej/broken", "elasticd.dev/chaos=allowed")
    elastic.wait_trains("broken", nodes=3)
    kinds = "pod-force-delete,worker-kill,worker-stop"
    apply_chaos(elastic, *ARGS, f"--kinds={kinds}", "--stop-for=3", "--seed=3")
    code, log = end_of_chaos(elastic)
    verdict = verdict_of(log)
    assert code == 0 and verdict["holds"], log
    assert len(verdict["faults"]) == 4 and verdict["most_disturbed"] == 1
    assert kinds_of(verdict["faults"]) <= set(kinds.split(","))
    elastic.wait_trains("broken", nodes=3, after_s=time.monotonic())


def test_a_job_without_the_label_is_left_alone(elastic: ElasticCluster) -> None:
    elastic.apply("whole", steps=LONG)
    elastic.wait_trains("whole", nodes=3)
    before = elastic.changes("whole")
    apply_chaos(elastic, *ARGS, "whole")
    code, log = end_of_chaos(elastic)
    assert code == 2 and "elasticd.dev/chaos=allowed" in log
    assert elastic.changes("whole") == before


def test_a_dry_run_names_the_victims_and_touches_nothing(elastic: ElasticCluster) -> None:
    elastic.apply("dry", steps=LONG)
    elastic.kubectl("label", "ej/dry", "elasticd.dev/chaos=allowed")
    elastic.wait_trains("dry", nodes=3)
    before = elastic.changes("dry")
    apply_chaos(elastic, *ARGS, "--dry-run")
    code, log = end_of_chaos(elastic)
    assert code == 0 and "agent" in log and "nobody" not in log, log
    assert elastic.changes("dry") == before


def test_nothing_stays_broken_when_its_job_is_deleted(elastic: ElasticCluster) -> None:
    """In the middle of a fault: the pod that was deleted comes back, the worker goes on."""
    elastic.apply("left", steps=LONG)
    elastic.kubectl("label", "ej/left", "elasticd.dev/chaos=allowed")
    elastic.wait_trains("left", nodes=3)
    apply_chaos(elastic, *ARGS, "--kinds=pod-force-delete,worker-stop", "--stop-for=30")

    def has_struck() -> bool:
        return "fault 1" in elastic.kubectl(
            *("-n", "elasticd", "logs", "job/elasticd-chaos"), is_checked=False
        )

    wait_until(has_struck, "the first fault was done", 300.0)
    elastic.ours("delete", "job/elasticd-chaos", "--grace-period=0", "--force")
    elastic.wait_trains("left", nodes=3, after_s=time.monotonic())
