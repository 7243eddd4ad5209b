"""What is asked of the API server: named by uid, checked first, and told in sentences."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import pytest

from chaos.cluster.cluster_api import ClusterApi, NotStruck
from chaos.cluster.decide import Victim
from chaos.cluster.fault import LOST, Kind
from chaos.cluster.observation import AgentPod, JobView, Worker
from chaos.cluster.pod_exec import NotStarted
from chaos.error import ChaosError, WrongInput
from elasticd.errors import ElasticdError, NotFound, Refused, Unavailable
from elasticd.kube.api.connection import ApiServerConnection
from elasticd.kube.api.failure import Busy, Failed, Unreached

POD = AgentPod(name="agent-1", uid="u1", node="n1", is_ready=True, is_deleted=False)
ON_POD = Victim(pod=POD, jobs={"x": JobView(name="x")})
WORKER = Worker(pid=7, ticks=99, job="default.x", rank=1)
ON_WORKER = Victim(pod=POD, jobs={"x": JobView(name="x")}, worker=WORKER)

PODS_PATH = "/api/v1/namespaces/elasticd/pods"


def listed(uid: str = "u1", **metadata: str) -> dict[str, Any]:
    """What the API server says of a pod with the name of the victim."""
    return {
        "metadata": {"name": "agent-1", "uid": uid, **metadata},
        "spec": {"nodeName": "n1"},
    }


class Asked:
    """Stands for the connection, and for the exec; keeps what it was asked."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, Mapping[str, str], Any]] = []
        self.commands: list[Sequence[str]] = []
        self.printed: str | ChaosError = json.dumps({"done": True})
        self.answers: dict[str, dict[str, Any]] = {}
        self.refuses: Callable[[str, str], ElasticdError | None] = lambda method, path: None

    def ask(
        self, method: str, path: str, query: Mapping[str, str], body: Any = None, **more: Any
    ) -> dict[str, Any]:
        self.read_s = more.get("read_s", 10.0)
        self.requests.append((method, path, query, body))
        if (error := self.refuses(method, path)) is not None:
            raise error
        if path.endswith("selfsubjectaccessreviews"):
            wanted = body["spec"]["resourceAttributes"]
            return {"status": {"allowed": wanted["resource"] not in self.answers}}
        return self.answers.get(path, {})

    def run(self, pod: str, container: str, command: Sequence[str]) -> str:
        assert (pod, container) == ("agent-1", "agent")
        self.commands.append(command)
        if isinstance(self.printed, ChaosError):
            raise self.printed
        return self.printed


@pytest.fixture
def asked() -> Asked:
    return Asked()


@pytest.fixture
def api(asked: Asked) -> ClusterApi:
    connection = cast(ApiServerConnection, asked)
    return ClusterApi(connection, asked, namespace="team", agents="elasticd")


def strike(api: ClusterApi, kind: Kind, victim: Victim, *, is_dry: bool = False) -> str:
    return api.strike(kind, victim, stop_s=5.0, is_dry=is_dry)


@pytest.mark.parametrize("is_dry", [False, True])
@pytest.mark.parametrize("kind", [Kind.POD_DELETE, Kind.POD_FORCE_DELETE, Kind.POD_EVICT])
def test_a_pod_is_named_with_its_uid(
    api: ClusterApi, asked: Asked, kind: Kind, is_dry: bool
) -> None:
    """One that has taken its name meanwhile is another pod. A dry run is the server's."""
    assert strike(api, kind, ON_POD, is_dry=is_dry) == ""
    method, path, _, body = asked.requests[-1]
    options = body["deleteOptions"] if kind is Kind.POD_EVICT else body
    assert options["preconditions"] == {"uid": "u1"}
    assert options.get("dryRun") == (["All"] if is_dry else None)
    assert options.get("gracePeriodSeconds") == (0 if kind is Kind.POD_FORCE_DELETE else None)
    assert path.startswith("/api/v1/namespaces/elasticd/pods/agent-1")
    assert method == ("POST" if kind is Kind.POD_EVICT else "DELETE")


def test_an_eviction_is_of_the_version_that_the_server_has(api: ClusterApi, asked: Asked) -> None:
    """Before 1.22 it was another one, which newer servers do not know."""
    strike(api, Kind.POD_EVICT, ON_POD)
    assert asked.requests[-1][3]["apiVersion"] == "policy/v1"
    told = {"name": "pods/eviction", "group": "policy", "version": "v1beta1"}
    asked.answers["/api/v1"] = {"resources": [{"name": "pods"}, told]}
    strike(api, Kind.POD_EVICT, ON_POD)
    assert asked.requests[-1][3]["apiVersion"] == "policy/v1beta1"


def test_a_deed_waits_longer_than_the_api_server_tries_an_eviction(
    api: ClusterApi, asked: Asked
) -> None:
    """It tries one of a pod that has gone for 10 s; a no that came too late would count as done."""
    strike(api, Kind.POD_EVICT, ON_POD)
    assert asked.read_s > 20.0


def test_a_worker_is_named_with_the_moment_at_which_it_began(api: ClusterApi, asked: Asked) -> None:
    strike(api, Kind.WORKER_KILL, ON_WORKER)
    strike(api, Kind.WORKER_STOP, ON_WORKER)
    kill, stop = asked.commands
    assert list(kill[-3:]) == ["kill", "7", "99"] and list(stop[-4:]) == ["stop", "7", "99", "5"]
    assert list(kill[:3]) == ["python3", "-I", "-c"] and "def look()" in kill[3]


@pytest.mark.parametrize("kind", [Kind.WORKER_KILL, Kind.WORKER_STOP])
def test_a_dry_run_sends_nothing_to_a_worker(api: ClusterApi, asked: Asked, kind: Kind) -> None:
    assert strike(api, kind, ON_WORKER, is_dry=True) == "not done"
    assert not asked.commands and not asked.requests


def test_a_worker_that_has_ended_is_no_victim(api: ClusterApi, asked: Asked) -> None:
    asked.printed = json.dumps({"done": False})
    with pytest.raises(NotStruck, match="had ended"):
        strike(api, Kind.WORKER_KILL, ON_WORKER)


@pytest.mark.parametrize(
    "error",
    [
        NotFound("It is not there."),
        Refused("It may not be done."),
        Busy("The server cannot evict it now (429: budget): try again.", 0.0),
        Unreached("The server refuses the connection."),
        Failed("The server cannot evict it now (500: failed calling webhook x): try again."),
        Failed(
            "(500: This pod has more than one PodDisruptionBudget, which the eviction does not)"
        ),
    ],
)
def test_what_the_server_refuses_or_has_not_heard_was_not_done(
    api: ClusterApi, asked: Asked, error: ElasticdError
) -> None:
    asked.answers[PODS_PATH] = {"items": [listed()]}
    asked.refuses = lambda method, path: error if method != "GET" else None
    with pytest.raises(NotStruck):
        strike(api, Kind.POD_EVICT, ON_POD)


def test_what_may_have_been_done_counts_as_done(api: ClusterApi, asked: Asked) -> None:
    """Else one more pod than allowed would be disturbed."""
    asked.refuses = lambda method, path: Unavailable("The server does not answer.")
    assert "may not have been done" in strike(api, Kind.POD_DELETE, ON_POD)
    asked.refuses = lambda method, path: Failed("(500: etcdserver: request timed out)")
    assert strike(api, Kind.POD_DELETE, ON_POD).startswith(LOST)
    asked.answers[PODS_PATH] = {"items": [listed()]}
    asked.refuses = lambda method, path: None if method == "GET" else Unavailable("No answer.")
    assert strike(api, Kind.POD_DELETE, ON_POD).startswith(LOST), "it may be done yet"
    asked.refuses = lambda method, path: Failed("(500: etcdserver: request timed out)")
    assert "may not have been done" in strike(api, Kind.POD_DELETE, ON_POD)
    asked.printed = ChaosError("The connection ended.")
    assert "may not have been done" in strike(api, Kind.WORKER_KILL, ON_WORKER)


@pytest.mark.parametrize("kind", [Kind.POD_DELETE, Kind.POD_FORCE_DELETE, Kind.POD_EVICT])
@pytest.mark.parametrize("is_gone", [False, True])
@pytest.mark.parametrize(
    "error",
    [
        Failed("(500: etcdserver: request timed out)"),
        Failed("(500: failed calling webhook x)"),
        Unavailable("The server does not answer."),
    ],
)
def test_a_pod_that_goes_was_struck_whatever_the_answer_says(
    api: ClusterApi, asked: Asked, kind: Kind, is_gone: bool, error: ElasticdError
) -> None:
    """A forced deletion is marked before a webhook is asked for the second time."""
    asked.refuses = lambda method, path: error if method != "GET" else None
    others = [listed("another")] if is_gone else [listed(deletionTimestamp="2026-11-27T00:00:00Z")]
    asked.answers[PODS_PATH] = {"items": others}
    note = strike(api, kind, ON_POD)
    assert note.startswith("it was done") and LOST not in note


def test_a_program_that_was_not_started_has_struck_nobody(api: ClusterApi, asked: Asked) -> None:
    """A fault that was not done would be judged as one that was not overcome."""
    asked.printed = NotStarted("The API server says 403.")
    with pytest.raises(NotStruck, match="403"):
        strike(api, Kind.WORKER_KILL, ON_WORKER)


@pytest.mark.parametrize("printed", ["", "Traceback", "[]", ChaosError("There is no python3.")])
def test_a_pod_that_cannot_be_looked_into_is_no_victim(
    api: ClusterApi, asked: Asked, printed: str | ChaosError
) -> None:
    asked.printed = printed
    with pytest.raises(NotStruck):
        api.workers(POD)


def test_a_right_that_is_missing_is_said_in_one_sentence(api: ClusterApi, asked: Asked) -> None:
    """Before anything is broken; a kind that is not asked for needs none."""
    api.check(tuple(Kind))
    asked.answers = {"elasticjobs": {}}
    with pytest.raises(WrongInput) as caught:
        api.check((Kind.WORKER_KILL,))
    told = str(caught.value)
    assert "list elasticjobs.elasticd.dev in namespace team" in told and "role.yaml" in told
    verbs = [
        (r[3]["spec"]["resourceAttributes"]["verb"], r[3]["spec"]["resourceAttributes"])
        for r in asked.requests[-4:]
    ]
    assert "delete" not in {verb for verb, _ in verbs}


def test_jobs_are_those_that_are_named_or_all_with_the_label(api: ClusterApi, asked: Asked) -> None:
    labels = {"elasticd.dev/chaos": "allowed"}
    status = {
        "job": "team.x", "phase": "Running", "nodes": 3, "wanted": 3, "generation": 4,
        "step": 70, "stepsPerSecond": 2.5, "lossesByReason": {"node_left": 1},
    }  # fmt: skip
    asked.answers = {
        "/apis/elasticd.dev/v1alpha1/namespaces/team/elasticjobs": {
            "items": [
                {"metadata": {"name": "x", "labels": labels}, "status": status},
                {"metadata": {"name": "y"}, "spec": {"checkpoint": {"url": "s3://b"}}},
            ]
        },
        "/api/v1/namespaces/elasticd/pods": {"items": [{"metadata": {"name": "p"}}]},
    }
    seen = api.look(())
    (pods, jobs) = asked.requests[-2:]
    assert pods[2]["labelSelector"].endswith("component=agent")
    assert jobs[2] == {"labelSelector": "elasticd.dev/chaos=allowed"}
    assert seen.pods == ()  # One that is on no node yet disturbs nobody.
    found = seen.jobs["x"]
    assert found.is_allowed and found.is_full and found.is_measured and found.losses
    seen = api.look(["y"])
    assert asked.requests[-1][2] == {} and set(seen.jobs) == {"y"}
    assert seen.jobs["y"].has_checkpoint and not seen.jobs["y"].is_allowed
