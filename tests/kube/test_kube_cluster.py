"""The cluster of the tests is a real one: pods run, come back, reach each other, and nodes fail."""

import json

import pytest

from tests.kube.testbed.cluster import NODES, Cluster
from tests.kube.testbed.daemon import wait_until
from tests.kube.workload import daemon_set, pod, wait_running

pytestmark = pytest.mark.timeout(300)

_IDLE = ("sleep", "100000")


def test_daemon_set_runs_on_each_node_and_a_deleted_pod_comes_back(
    kube_cluster: Cluster, kube_namespace: str
) -> None:
    """The image is on every node; a pod that is deleted by force is replaced on its own node."""
    kubectl = kube_cluster.api.kubectl
    kubectl("-n", kube_namespace, "apply", "-f", "-", stdin=daemon_set("idle", _IDLE))
    before = wait_running(kube_cluster, kube_namespace, 3)
    assert sorted(each.node for each in before.values()) == list(NODES)
    lost, facts = sorted(before.items())[0]
    kubectl("-n", kube_namespace, "delete", "pod", lost, "--grace-period=0", "--force")
    after = wait_running(kube_cluster, kube_namespace, 3)
    assert lost not in after
    assert sorted(each.node for each in after.values()) == list(NODES)
    assert facts.uid not in {each.uid for each in after.values()}


def test_pod_has_the_project_and_torch(kube_cluster: Cluster, kube_namespace: str) -> None:
    """What the image is packed from works there: interpreter, torch, the command elasticd."""
    kubectl = kube_cluster.api.kubectl
    script = "elasticd --version && python -c 'import torch; print(torch.ones(2).sum().item())'"
    manifest = pod("look", ("sh", "-c", script))
    kubectl("-n", kube_namespace, "apply", "-f", "-", stdin=manifest)
    path = f"/api/v1/namespaces/{kube_namespace}/pods/look"
    wait_until(
        lambda: json.loads(kube_cluster.api.get(path) or b"{}")["status"]["phase"] == "Succeeded",
        "the pod succeeds",
        60.0,
    )
    version, total = kubectl("-n", kube_namespace, "logs", "look").splitlines()
    assert "elasticd" in version and total == "2.0"


def test_pods_reach_each_other_and_the_api_server(
    kube_cluster: Cluster, kube_namespace: str
) -> None:
    """Across nodes by their own addresses, and the API server by its service, with their token."""
    kubectl = kube_cluster.api.kubectl
    server = ("python", "-m", "http.server", "8000")
    kubectl("-n", kube_namespace, "apply", "-f", "-", stdin=pod("serve", server, node="node1"))
    kubectl("-n", kube_namespace, "apply", "-f", "-", stdin=pod("ask", _IDLE, node="node2"))
    address = wait_running(kube_cluster, kube_namespace, 2)["serve"].address
    across = (
        "import urllib.request as u, sys, time\n"
        "for _ in range(100):\n"
        "  try: print(u.urlopen(sys.argv[1], timeout=2).status); break\n"
        "  except OSError: time.sleep(0.1)\n"
    )
    run = ("-n", kube_namespace, "exec", "ask", "--", "python", "-c")
    assert kubectl(*run, across, f"http://{address}:8000/") == "200\n"
    inside = (
        "from kubernetes import client, config\n"
        "config.load_incluster_config()\n"
        "print(client.VersionApi().get_code().git_version)\n"
    )
    assert kubectl(*run, inside) == "v1.20.2\n"


def test_feigned_gpus_are_counted(kube_cluster: Cluster, kube_namespace: str) -> None:
    """A pod that asks for GPUs gets a node while one has enough of them, and waits otherwise."""
    kubectl = kube_cluster.api.kubectl
    for name in NODES:
        manifest = json.loads(pod(f"all-of-{name}", _IDLE))
        manifest["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "2"}}
        kubectl("-n", kube_namespace, "apply", "-f", "-", stdin=json.dumps(manifest))
    nodes = {each.node for each in wait_running(kube_cluster, kube_namespace, 3).values()}
    assert nodes == set(NODES)
    manifest = json.loads(pod("too-much", _IDLE))
    manifest["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
    kubectl("-n", kube_namespace, "apply", "-f", "-", stdin=json.dumps(manifest))
    wait_until(
        lambda: "Insufficient nvidia.com/gpu" in kubectl("-n", kube_namespace, "get", "events"),
        "the scheduler says that there are no GPUs left",
        30.0,
    )


def test_node_that_is_cut_off_is_not_ready_until_it_is_mended(kube_cluster: Cluster) -> None:
    """A partition: the node goes on, and nobody hears of it."""
    kube_cluster.network.cut("node3")
    try:
        kube_cluster.wait_ready("node3", is_ready=False)
        assert kube_cluster.nodes["node3"].kubelet.pid is not None
    finally:
        kube_cluster.network.mend("node3")
    kube_cluster.wait_ready("node3")


def test_up_twice_changes_nothing(kube_cluster: Cluster) -> None:
    """`make kube-up` may be called at any time: what runs goes on."""
    nodes = kube_cluster.nodes.values()
    before = [daemon.pid for node in nodes for daemon in node.daemons]
    kube_cluster.up()
    assert [daemon.pid for node in nodes for daemon in node.daemons] == before
    assert kube_cluster.is_up()
