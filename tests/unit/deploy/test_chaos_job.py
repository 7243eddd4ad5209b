"""The Job that breaks a cluster on purpose: restricted, bounded, and with the rights it uses."""

import re
from pathlib import Path
from typing import Any, cast

import click

from chaos.cluster.__main__ import cluster
from chaos.cluster.cluster_api import AGENT, CONTAINER, ClusterApi, rights
from chaos.cluster.decide import Victim
from chaos.cluster.fault import TRAITS, Kind
from chaos.cluster.observation import AgentPod, JobView
from elasticd.kube.api.connection import ApiServerConnection
from tests.fixtures.manifests import DEPLOY, built
from tests.unit.deploy.test_operator_rights import parts

CHAOS = built("chaos")
ROOM = DEPLOY.parent / "chaos"
OTHER_GRANTS = {("create", "authorization.k8s.io", "selfsubjectaccessreviews")}
"""What every account may ask, by the ClusterRole system:basic-user."""
POD = AgentPod(name="p", uid="u", node="n", is_ready=True, is_deleted=False)


def one(kind: str, name: str = "elasticd-chaos") -> Any:
    (found,) = (m for m in CHAOS if (m["kind"], m["metadata"]["name"]) == (kind, name))
    return found


def job() -> Any:
    return one("Job")["spec"]


def container() -> Any:
    (found,) = job()["template"]["spec"]["containers"]
    return found


def flags() -> dict[str, Any]:
    """What the command makes of the Job's words; a flag that it does not have is an error."""
    found: dict[str, Any] = cluster.make_context("chaos", list(container()["args"])).params
    return found


def granted() -> dict[str, set[tuple[str, str, str]]]:
    """By namespace: verb, group, resource."""
    found: dict[str, set[tuple[str, str, str]]] = {}
    for role in (m for m in CHAOS if m["kind"] == "Role"):
        of = found.setdefault(role["metadata"]["namespace"], set())
        for rule in role["rules"]:
            of |= {
                (verb, group, resource)
                for group in rule["apiGroups"]
                for resource in rule["resources"]
                for verb in rule["verbs"]
            }
    return found


def test_roles_grant_what_the_command_needs_and_no_more() -> None:
    """Each verb by name, for one namespace each, and nothing for the whole cluster."""
    params = flags()
    needed: dict[str, set[tuple[str, str, str]]] = {}
    for right in rights(tuple(Kind), params["namespace"], params["agents_namespace"]):
        of = needed.setdefault(right.namespace, set())
        of.add((right.verb, right.group, right.resource))
    assert granted() == needed
    assert "*" not in str(granted())
    assert {m["kind"] for m in CHAOS} == {"ServiceAccount", "Role", "RoleBinding", "Job"}


def test_what_it_asks_is_what_it_checks_beforehand() -> None:
    """A request that no right is named for would fail in the middle of a run."""

    class Requests:
        def __init__(self) -> None:
            self.rights: set[tuple[str, str, str]] = set()

        def ask(self, method: str, path: str, *_: object, **__: object) -> dict[str, Any]:
            if path != "/api/v1":
                group, resource, name = parts(path)
                verb = {"GET": "get" if name else "list", "POST": "create"}.get(
                    method, method.lower()
                )
                self.rights.add((verb, group, resource))
            return {"status": {"allowed": True}}

        def run(self, pod: str, container: str, command: object) -> str:
            self.rights |= {("get", "", "pods/exec"), ("create", "", "pods/exec")}
            return "{}"

    requests = Requests()
    api = ClusterApi(
        cast(ApiServerConnection, requests), requests, namespace="default", agents="elasticd"
    )
    api.check(tuple(Kind))
    api.look(())
    api.workers(POD)
    for kind in (each for each in Kind if not TRAITS[each].is_of_worker):
        api.strike(kind, Victim(pod=POD, jobs={"x": JobView(name="x")}), stop_s=1.0, is_dry=False)
    assert requests.rights - OTHER_GRANTS == set().union(*granted().values())


def test_bindings_are_for_its_own_account_alone() -> None:
    account = one("ServiceAccount")
    assert account["automountServiceAccountToken"] is False
    roles = {
        (m["metadata"]["namespace"], m["metadata"]["name"]) for m in CHAOS if m["kind"] == "Role"
    }
    bound = set()
    for binding in (m for m in CHAOS if m["kind"] == "RoleBinding"):
        assert binding["subjects"] == [
            {"kind": "ServiceAccount", "name": "elasticd-chaos", "namespace": "elasticd"}
        ]
        assert binding["roleRef"]["kind"] == "Role"
        bound.add((binding["metadata"]["namespace"], binding["roleRef"]["name"]))
    assert bound == roles


def test_its_pod_is_restricted() -> None:
    """As all others of that namespace, which enforces it."""
    pod = job()["template"]["spec"]
    context = pod["securityContext"]
    assert context["runAsNonRoot"] and context["runAsUser"] == context["runAsGroup"] == 65532
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod) and not pod["enableServiceLinks"]
    assert pod["serviceAccountName"] == "elasticd-chaos" and pod["automountServiceAccountToken"]
    assert pod["volumes"] == [{"name": "tmp", "emptyDir": {}}]
    assert container()["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert set(container()["resources"]) == {"requests", "limits"}


def test_it_is_run_once_and_ends() -> None:
    """And tells its verdict before the deadline takes its pod, and the log, away."""
    params = flags()
    assert job()["backoffLimit"] == 0
    assert job()["template"]["spec"]["restartPolicy"] == "Never"
    longest_s = params["timeout"] + params["recover_within"]
    assert job()["activeDeadlineSeconds"] >= longest_s + 120
    assert params["at_once"] == 1 and not params["names"], "what is labelled, one pod at a time"


def test_pods_that_it_looks_for_are_the_agents_of_the_base() -> None:
    (agents,) = (m for m in built("base") if m["kind"] == "DaemonSet")
    wanted = dict(part.split("=") for part in AGENT.split(","))
    assert wanted.items() <= agents["spec"]["template"]["metadata"]["labels"].items()
    assert [c["name"] for c in agents["spec"]["template"]["spec"]["containers"]] == [CONTAINER]
    assert agents["metadata"]["namespace"] == flags()["agents_namespace"]


def test_image_is_that_of_the_operator_and_has_the_room() -> None:
    """The package has no chaos: the image gets the one room that needs no torch."""
    (operator,) = (
        m
        for m in built("base")
        if (m["kind"], m["metadata"]["name"]) == ("Deployment", "elasticd-operator")
    )
    (theirs,) = operator["spec"]["template"]["spec"]["containers"]
    assert container()["image"] == theirs["image"]
    assert container()["command"] == ["python3", "-m", "chaos.cluster"]
    text = (DEPLOY / "docker" / "control.Dockerfile").read_text()
    copied = re.search(r"cp -r ((?:/src/chaos/\S+ )+)chaos\n", text)
    assert copied is not None
    names = [Path(word).relative_to("/src/chaos") for word in copied[1].split()]
    assert {str(name) for name in names} == {"__init__.py", "error.py", "cluster"}
    assert all((ROOM / name).exists() for name in names)
    assert "!chaos" in (DEPLOY.parent / ".dockerignore").read_text().splitlines()


def test_a_flag_that_it_does_not_have_is_found() -> None:
    try:
        cluster.make_context("chaos", ["--fualts=5"])
    except click.UsageError:
        return
    raise AssertionError("else the test of its flags says nothing")
