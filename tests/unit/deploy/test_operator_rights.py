"""The operator may do what it does, and nothing else."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, cast

from elasticd.errors import Fenced
from elasticd.kube.api.connection import ApiServerConnection
from elasticd.kube.api.kubernetes_api import KubernetesApi
from elasticd.kube.api.port import (
    ELASTIC_JOBS,
    NAMESPACES,
    NODES,
    PODS,
    EventNote,
    EventType,
)
from tests.fixtures.manifests import built

JOB: Mapping[str, Any] = {
    "apiVersion": ELASTIC_JOBS.api_version,
    "kind": ELASTIC_JOBS.kind,
    "metadata": {"name": "x", "namespace": "default", "uid": "u", "resourceVersion": "1"},
}
WATCHED = (ELASTIC_JOBS, NODES, PODS)
Right = tuple[str, str, str]
"""Verb, group, resource."""


class Requests:
    """Takes the requests of the real client, and answers as little as it can."""

    host = "https://nowhere"

    def __init__(self) -> None:
        self.rights: set[Right] = set()
        self.names: set[tuple[str, str]] = set()

    def ask(
        self, method: str, path: str, query: Mapping[str, str], body: object = None, **_: object
    ) -> dict[str, Any]:
        """Note which right this request takes."""
        group, resource, name = parts(path)
        verb = {"GET": "get" if name else "list", "POST": "create"}.get(method, method.lower())
        self.rights.add((verb, group, resource))
        selected = query.get("fieldSelector", "")
        self.names.add((resource, selected.removeprefix("metadata.name=")))
        if method == "POST":
            raise Fenced("There is one of that name.")
        return {"metadata": {"resourceVersion": "1"}, "items": [], "count": 1}


def parts(path: str) -> tuple[str, str, str]:
    """Split the path of a request into group, resource with its subresource, and name."""
    words = path.strip("/").split("/")
    group = words[1] if words[0] == "apis" else ""
    words = words[3 if group else 2 :]
    if words[0] == "namespaces" and len(words) > 2:
        words = words[2:]
    name = words[1] if len(words) > 1 else ""
    return group, "/".join([words[0], *words[2:]]), name


def rules() -> Iterator[tuple[Right, tuple[str, ...]]]:
    """Give each right that the manifests grant to the operator, and the names that it is for."""
    (role,) = (m for m in built("base") if m["kind"] == "ClusterRole")
    (binding,) = (m for m in built("base") if m["kind"] == "ClusterRoleBinding")
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    (subject,) = binding["subjects"]
    assert subject == {
        "kind": "ServiceAccount",
        "name": "elasticd-operator",
        "namespace": "elasticd",
    }
    for rule in role["rules"]:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                for verb in rule["verbs"]:
                    yield (verb, group, resource), tuple(rule.get("resourceNames", ()))


def asked() -> Requests:
    """Have the client make each kind of request that the operator makes."""
    requests = Requests()
    api = KubernetesApi(cast(ApiServerConnection, requests))
    for kind in WATCHED:
        api.list(kind)
        requests.rights.add(("watch", kind.group, kind.plural))
    api.list(NAMESPACES, name="kube-system")
    api.apply(ELASTIC_JOBS, JOB)
    api.apply(ELASTIC_JOBS, JOB, subresource="status")
    api.patch(ELASTIC_JOBS, JOB, {"metadata": {"finalizers": None}})
    api.delete(ELASTIC_JOBS, JOB)
    with suppress(Fenced):
        api.note(EventNote(about=JOB, type=EventType.NORMAL, reason="Any", message="any"))
    return requests


def test_operator_has_each_right_that_it_uses_and_no_other() -> None:
    """One that is missing shows in a cluster alone; one too many is for whoever takes the pod."""
    requests, granted = asked(), dict(rules())
    assert requests.rights == set(granted)
    assert not any("*" in right for right in granted)


def test_namespaces_are_read_by_name() -> None:
    """Of all of them it needs one."""
    granted = dict(rules())
    names = granted["list", "", "namespaces"]
    assert {name for kind, name in asked().names if kind == "namespaces"} == set(names)
