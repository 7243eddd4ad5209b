"""What chaos asks of the API server, and the one way in which it strikes.

Everything that is deleted or evicted is named with its uid, so a pod that has taken the name of
another one is never struck. Nothing is asked twice by itself: a deletion whose answer was lost may
have been done. Whether it was, the pod itself shows: it is looked at once more.
"""

import inspect
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from chaos.cluster import in_pod
from chaos.cluster.decide import Victim
from chaos.cluster.fault import LOST, TRAITS, Kind
from chaos.cluster.observation import (
    ALLOWED,
    LABEL,
    AgentPod,
    Observation,
    Worker,
    agent_pods,
    job_view,
    workers,
)
from chaos.cluster.pod_exec import NotStarted
from chaos.error import ChaosError, WrongInput
from elasticd.errors import ElasticdError, Fenced, NotFound, Refused
from elasticd.kube.api.connection import ApiServerConnection
from elasticd.kube.api.failure import Busy, Failed, Unreached
from elasticd.kube.api.port import ELASTIC_JOBS, PODS, Name, ResourceKind

__all__ = ["ClusterApi", "NotStruck", "Right", "rights"]

AGENT = "app.kubernetes.io/part-of=elasticd,app.kubernetes.io/component=agent"
CONTAINER = "agent"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
DEED_S = 40.0
"""The most time for the answer to a deed: more than a webhook may take (30 s). An API server tries
an eviction that conflicts again for 10 s before it says no, as of a Pending pod with another
uid."""
_WAYS = {Kind.WORKER_KILL: "kill", Kind.WORKER_STOP: "stop"}


class Right(NamedTuple):
    """What a Role has to grant."""

    verb: str
    group: str
    resource: str
    """With its sub-resource."""
    namespace: str

    def __str__(self) -> str:
        kind = f"{self.resource}.{self.group}" if self.group else self.resource
        return f"{self.verb} {kind} in namespace {self.namespace}"


class NotStruck(ChaosError):
    """Nothing was done, and the next victim may be tried."""


class Exec(Protocol):
    """Runs a program in a container of a pod."""

    def run(self, pod: str, container: str, command: Sequence[str]) -> str:
        """Return what it has printed.

        Raises: NotStarted: it could not be started. ChaosError: it may have been.
        """


class ClusterApi:
    """The API server of one cluster: jobs in one namespace, agents' pods in one."""

    def __init__(
        self, connection: ApiServerConnection, pod_exec: Exec, *, namespace: str, agents: str
    ) -> None:
        """`namespace`: of the ElasticJobs; `agents`: of the pods of the agents."""
        self._connection, self._exec = connection, pod_exec
        self._namespace, self._agents = namespace, agents

    def check(self, kinds: Sequence[Kind]) -> None:
        """See that we may do all that these kinds need.

        Raises: WrongInput: a right is missing.
        """
        needed = rights(kinds, self._namespace, self._agents)
        lacking = [str(right) for right in needed if not self._may(right)]
        if lacking:
            raise WrongInput(
                f"The Role of chaos lacks {'; '.join(lacking)}: apply "
                "deploy/kustomize/chaos/role.yaml for these namespaces, or take fewer --kinds."
            )

    def look(self, names: Sequence[str]) -> Observation:
        """Read the agents' pods and the ElasticJobs: the named ones, or all with the label.

        Raises: ElasticdError: the API server does not answer, or refuses.
        """
        pods = self._list(PODS, self._agents, {"labelSelector": AGENT})
        chosen = {} if names else {"labelSelector": f"{LABEL}={ALLOWED}"}
        jobs = [job_view(item) for item in self._list(ELASTIC_JOBS, self._namespace, chosen)]
        return Observation(
            pods=agent_pods(pods),
            jobs={job.name: job for job in jobs if not names or job.name in names},
        )

    def workers(self, pod: AgentPod) -> tuple[Worker, ...]:
        """Look into a pod.

        Raises: NotStruck: that cannot be done now.
        """
        return workers(self._in_pod(pod, "look").get("workers") or ())

    def strike(self, kind: Kind, victim: Victim, *, stop_s: float, is_dry: bool) -> str:
        """Do a fault, or have the API server check it; return a note for the verdict.

        Raises: NotStruck: it is known that nothing was done.
        """
        pod, worker = victim.pod, victim.worker
        if TRAITS[kind].is_of_worker:
            if is_dry:
                return "not done"
            assert worker is not None
            words = [_WAYS[kind], str(worker.pid), str(worker.ticks)]
            words += [f"{stop_s:g}"] if kind is Kind.WORKER_STOP else []
            found = self._in_pod(pod, *words, is_deed=True)
            if not found.get("done", True):
                raise NotStruck(f"{victim} had ended before it was struck.")
            return str(found.get("lost") or "")
        name, sure = Name(self._agents, pod.name), {"uid": pod.uid}
        options: dict[str, Any] = {"preconditions": sure}
        if is_dry:
            options["dryRun"] = ["All"]
        if kind is Kind.POD_EVICT:
            body = {
                "apiVersion": self._eviction_version(),
                "kind": "Eviction",
                "metadata": {"name": pod.name, "namespace": self._agents},
                "deleteOptions": options,
            }
            return self._deed(pod, "POST", PODS.path(name, "eviction"), body, "evict")
        if kind is Kind.POD_FORCE_DELETE:
            options["gracePeriodSeconds"] = 0
        body = {"apiVersion": "v1", "kind": "DeleteOptions", **options}
        return self._deed(pod, "DELETE", PODS.path(name), body, "delete")

    def close(self) -> None:
        self._connection.close()

    # --- private ------------------------------------------------------------------------------

    def _may(self, right: Right) -> bool:
        resource, _, subresource = right.resource.partition("/")
        wanted = {
            "namespace": right.namespace,
            "verb": right.verb,
            "group": right.group,
            "resource": resource,
            "subresource": subresource,
        }
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": wanted},
        }
        try:
            found = self._connection.ask("POST", REVIEWS, {}, body, what="say what chaos may do")
        except Refused:
            return True  # Whether we may is then seen when it is done.
        return bool((found.get("status") or {}).get("allowed"))

    def _list(
        self, kind: ResourceKind, namespace: str, chosen: Mapping[str, str]
    ) -> Sequence[Mapping[str, Any]]:
        path = kind.path(namespace=namespace)
        found = self._connection.ask("GET", path, chosen, what=f"list {kind.resource}")
        return [item for item in found.get("items") or () if isinstance(item, Mapping)]

    def _deed(self, pod: AgentPod, method: str, path: str, body: object, verb: str) -> str:
        what = f"{verb} pod {pod.name}"
        try:
            self._connection.ask(method, path, {}, body, what=what, read_s=DEED_S)
        except NotFound as exc:
            raise NotStruck(f"It had gone before it was struck ({exc}).") from exc
        except ElasticdError as exc:
            if _is_undone(exc):
                raise NotStruck(str(exc)) from exc
            match self._stays(pod):
                case False:
                    return f"it was done, whatever the answer says ({exc})"
                case True if _is_no(exc):
                    raise NotStruck(str(exc)) from exc
            return f"{LOST} ({exc})"
        return ""

    def _stays(self, pod: AgentPod) -> bool | None:
        """Return whether nobody wants this pod gone; None: that cannot be seen."""
        try:
            found = agent_pods(self._list(PODS, self._agents, {"labelSelector": AGENT}))
        except ElasticdError:
            return None
        return any(each.uid == pod.uid and not each.is_deleted for each in found)

    def _in_pod(self, pod: AgentPod, *words: str, is_deed: bool = False) -> dict[str, Any]:
        """Run our program in a pod; what it says of a deed counts as done if it cannot be read."""
        command = ["python3", "-I", "-c", inspect.getsource(in_pod), *words]
        try:
            found = json.loads(self._exec.run(pod.name, CONTAINER, command))
            if not isinstance(found, dict):
                raise ValueError("no object")
        except ChaosError as exc:
            if is_deed and not isinstance(exc, NotStarted):
                return {"lost": f"{LOST} ({exc})"}
            raise NotStruck(str(exc)) from exc
        except ValueError as exc:
            raise NotStruck(f"Our program in pod {pod.name} printed something else.") from exc
        return found

    def _eviction_version(self) -> str:
        """Return which version of an eviction the server knows: before 1.22 it was v1beta1."""
        found = self._connection.ask("GET", "/api/v1", {}, what="tell of pods/eviction")
        for each in found.get("resources") or ():
            if each.get("name") == "pods/eviction":
                return f"{each.get('group') or 'policy'}/{each.get('version') or 'v1'}"
        return "policy/v1"


def rights(kinds: Sequence[Kind], namespace: str, agents: str) -> Iterator[Right]:
    """Yield what a run of these kinds needs.

    An exec over a WebSocket is a GET: older API servers ask for the verb `get`, newer ones for
    `create` as well.
    """
    yield Right("list", ELASTIC_JOBS.group, ELASTIC_JOBS.plural, namespace)
    yield Right("list", "", "pods", agents)
    yield Right("get", "", "pods/exec", agents)
    yield Right("create", "", "pods/exec", agents)
    if {Kind.POD_DELETE, Kind.POD_FORCE_DELETE} & set(kinds):
        yield Right("delete", "", "pods", agents)
    if Kind.POD_EVICT in kinds:
        yield Right("create", "", "pods/eviction", agents)


# --- private ----------------------------------------------------------------------------------


def _is_undone(exc: ElasticdError) -> bool:
    """Whether it is known that nothing was done: the API server has said no, or was not reached.

    A 429 is what it says of a pod under a budget.
    """
    if isinstance(exc, Refused | Fenced | Unreached):
        return True
    return isinstance(exc, Busy) and "(429:" in str(exc)


def _is_no(exc: ElasticdError) -> bool:
    """Whether a failure is the API server's last word on a request.

    A webhook is asked before anything is written; for a deletion without a grace period once more
    after the pod was marked, so that pod may end all the same. An eviction fails if two
    PodDisruptionBudgets select the pod. Other failures, as of its etcd, may be done later.
    """
    words = ("failed calling webhook", "more than one PodDisruptionBudget")
    return isinstance(exc, Failed) and any(each in str(exc) for each in words)
