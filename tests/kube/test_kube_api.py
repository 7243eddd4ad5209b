"""The API server of the tests is a real one: it has CRDs and server-side apply, and comes back."""

import json

from tests.kube.testbed.control.api_server import ApiServer

_CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "drills.testbed.example"},
    "spec": {
        "group": "testbed.example",
        "names": {"plural": "drills", "singular": "drill", "kind": "Drill"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "properties": {"replicas": {"type": "integer", "minimum": 1}},
                            },
                            "status": {
                                "type": "object",
                                "properties": {"replicas": {"type": "integer"}},
                            },
                        },
                    }
                },
                "subresources": {
                    "status": {},
                    "scale": {
                        "specReplicasPath": ".spec.replicas",
                        "statusReplicasPath": ".status.replicas",
                    },
                },
            }
        ],
    },
}


def _drill(name: str, replicas: int) -> str:
    return json.dumps(
        {
            "apiVersion": "testbed.example/v1",
            "kind": "Drill",
            "metadata": {"name": name},
            "spec": {"replicas": replicas},
        }
    )


def test_version_is_the_one_that_was_built(kube_api: ApiServer) -> None:
    """A client that asks for the version gets a number and not a template of git's."""
    version = json.loads(kube_api.get("/version") or b"{}")
    assert (version["major"], version["minor"], version["gitVersion"]) == ("1", "20", "v1.20.2")


def test_custom_object_is_validated_applied_and_scaled(kube_api: ApiServer) -> None:
    """What the schema forbids is refused; server-side apply and the sub-resource scale work."""
    kube_api.kubectl("apply", "-f", "-", stdin=json.dumps(_CRD))
    kube_api.kubectl("wait", "--for=condition=Established", "crd/drills.testbed.example")
    refused = kube_api.kubectl("apply", "-f", "-", stdin=_drill("wrong", 0), is_checked=False)
    assert "spec.replicas" in refused and "greater than or equal to 1" in refused
    kube_api.kubectl("apply", "--server-side", "-f", "-", stdin=_drill("right", 2))
    kube_api.kubectl("scale", "drill/right", "--replicas=3")
    seen = json.loads(kube_api.kubectl("get", "drill/right", "-o", "json"))
    assert seen["spec"]["replicas"] == 3


def test_pod_needs_no_service_account(kube_api: ApiServer) -> None:
    """Nobody makes service accounts here, and tests of objects need pods and nodes all the same."""
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "idle"},
        "spec": {"containers": [{"name": "idle", "image": "idle"}]},
    }
    kube_api.kubectl("apply", "-f", "-", stdin=json.dumps(pod))
    assert kube_api.kubectl("get", "pods", "-o", "name").split() == ["pod/idle"]


def test_stopped_and_started_again_it_has_what_it_had(own_kube_api: ApiServer) -> None:
    """The same address, the same tokens and the same objects: a client goes on where it was."""
    own_kube_api.kubectl("create", "namespace", "kept")
    config = own_kube_api.kubeconfig.read_text()
    own_kube_api.stop()
    assert own_kube_api.get("/readyz") is None
    own_kube_api.start()
    assert own_kube_api.kubeconfig.read_text() == config
    assert "namespace/kept" in own_kube_api.kubectl("get", "namespaces", "-o", "name").split()
