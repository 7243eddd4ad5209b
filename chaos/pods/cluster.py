"""What chaos asks of the API server: pods, nodes, an ElasticJob, and a way to etcd."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from chaos.error import ChaosError
from chaos.pods.agent_pod import AGENT, ETCD, OWN, AgentPod, EtcdPod, agent_pods, etcd_pods
from elasticd.errors import ElasticdError, EnvironmentProblem, Fenced, NotFound, Unavailable
from elasticd.kube.api.connection import ApiServerConnection, open_connection

__all__ = ["KubeCluster", "Variables", "wait_until"]

NAMESPACE = "elasticd"
JOBS = "/apis/elasticd.dev/v1alpha1/namespaces/default/elasticjobs"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
SERVICES = f"/api/v1/namespaces/{NAMESPACE}/services"
AGENTS = f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets/elasticd-agent"
AUTOSCALER = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/elasticd-autoscaler"
SERVICE = "chaos-etcd"
MERGE = "application/merge-patch+json"
POLL_S = 0.2
AGAIN_S = 0.3
LIMIT_S = 20.0
ROLLED_LIMIT_S = 120.0

Object = Mapping[str, Any]
Variables = dict[str, Object | None]
"""By its name what a container has of each variable, such as its `value`; None: it has none."""


class KubeCluster:
    """One API server, asked as the administrator of a kubeconfig.

    All raise ChaosError where it does not answer in time, or refuses.
    """

    def __init__(self, kubeconfig: str) -> None:
        """Connect to the cluster of this file.

        Raises: ChaosError: no file is given, or its cluster cannot be reached.
        """
        if not kubeconfig:
            raise ChaosError("A scenario in pods needs a cluster: set KUBECONFIG to its file.")
        try:
            self._connection: ApiServerConnection = open_connection(kubeconfig)
        except EnvironmentProblem as exc:
            raise ChaosError(str(exc)) from exc
        self._pods: Mapping[str, AgentPod] = {}
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="pods", daemon=True)

    def follow(self) -> None:
        """Look at the agents' pods from now on, again and again, in a thread."""
        self._pods = agent_pods(self.pods(AGENT))
        self._thread.start()

    @property
    def host(self) -> str:
        """Return where the API server answers."""
        return self._connection.host

    def close(self) -> None:
        self._is_over.set()
        if self._thread.is_alive():
            self._thread.join(10.0)
        self._connection.close()

    def agent(self, node: str) -> AgentPod | None:
        """Return an agent's pod as it was last seen."""
        return self._pods.get(node)

    @property
    def agents(self) -> Mapping[str, AgentPod]:
        """The agents' pods by node."""
        return self._pods

    # --- pods

    def pods(self, labels: str = OWN) -> Sequence[Object]:
        """List elasticd's pods with these labels."""
        found = self._ask("GET", PODS, {"labelSelector": labels}, what="list elasticd's pods")
        return list(found.get("items", ()))

    def delete_pod(self, name: str, *, is_forced: bool = False) -> None:
        """Delete a pod, with its own grace or with none."""
        with suppress(NotFound):
            query = {"gracePeriodSeconds": "0"} if is_forced else {}
            self._ask("DELETE", f"{PODS}/{name}", query, what=f"delete the pod {name}")

    def evict(self, name: str) -> None:
        """Evict a pod as `kubectl drain` does; a budget that forbids it is respected.

        Raises: ChaosError: the API server refuses.
        """
        # Servers before 1.22 know no other version.
        body = {
            "apiVersion": "policy/v1beta1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": NAMESPACE},
        }
        try:
            self._once("POST", f"{PODS}/{name}/eviction", {}, body, what=f"evict {name}")
        except (Unavailable, NotFound):
            pass  # A budget forbids it now, or it is gone.
        except ElasticdError as exc:
            raise ChaosError(str(exc)) from exc

    def logs(self, name: str) -> str:
        """Return the last line of a pod's log; empty: there is none."""
        with suppress(ElasticdError, OSError):
            query = {"tailLines": "1"}
            with self._connection.stream(
                f"{PODS}/{name}/log", query, what="read a log", silence_s=5.0
            ) as answer:
                return bytes(answer.read(400)).decode(errors="replace").strip()
        return ""

    def is_replaced(self, old: Sequence[str], labels: str) -> bool:
        """Return whether as many pods with these labels are ready as there were, and none of the
        old.
        """
        ready = {
            str(each["metadata"]["name"])
            for each in self.pods(labels)
            for one in each.get("status", {}).get("conditions", ())
            if one["type"] == "Ready" and one["status"] == "True"
        }
        return len(ready) >= len(old) and not ready & set(old)

    def log_volume(self) -> Object:
        """Return the volume of the agents' DaemonSet that has the workers' logs."""
        found = self.agents_set()
        volumes = found["spec"]["template"]["spec"].get("volumes", ())
        return next((each for each in volumes if each["name"] == "runs"), {})

    def agents_set(self) -> Object:
        """Return the agents' DaemonSet."""
        return self._ask("GET", AGENTS, what="read the agents' DaemonSet")

    def roll_agents(self, mark: str) -> None:
        """Have all agents' pods replaced, as `kubectl rollout restart` does."""
        annotations = {"chaos/rolled-out": mark}
        change = {"spec": {"template": {"metadata": {"annotations": annotations}}}}
        self._ask("PATCH", AGENTS, body=change, what="change the agents' DaemonSet")

    def is_rolled_out(self) -> bool:
        """Return whether each node has a ready pod of the DaemonSet's newest template."""
        found = self.agents_set()
        status = found.get("status", {})
        wanted = status.get("desiredNumberScheduled")
        return bool(
            status.get("observedGeneration") == found["metadata"]["generation"]
            and status.get("updatedNumberScheduled") == wanted
            and status.get("numberReady") == wanted
        )

    def agents_variables(self, *names: str) -> Variables:
        """Return what the agents' containers have under these names."""
        return self._variables(AGENTS, names)

    def set_agents_variables(self, variables: Variables) -> None:
        """Give the agents' containers these variables: all pods are replaced."""
        self._set_variables(AGENTS, variables)

    def autoscaler_variables(self, *names: str) -> Variables:
        """Return what the autoscaler has under these names."""
        return self._variables(AUTOSCALER, names)

    def set_autoscaler_variables(self, variables: Variables) -> None:
        """Give the autoscaler these variables; wait until it has them.

        Raises: ChaosError: its pods are not replaced in time.
        """
        self._set_variables(AUTOSCALER, variables)

        def is_there() -> bool:
            found = self._ask("GET", AUTOSCALER, what="read the autoscaler's Deployment")
            status, wanted = found.get("status", {}), found["spec"]["replicas"]
            return bool(
                status.get("observedGeneration") == found["metadata"]["generation"]
                and status.get("updatedReplicas") == wanted
                and status.get("replicas") == wanted
                and status.get("availableReplicas") == wanted
            )

        wait_until(is_there, "the autoscaler has what it is to read", ROLLED_LIMIT_S)

    def create_pod(self, body: Object) -> None:
        """Create a pod among elasticd's."""
        self._ask("POST", PODS, body=body, what="create a pod")

    def pod_phase(self, name: str) -> str:
        """Return how far a pod is."""
        return str(self.pod_status(name).get("phase", ""))

    def pod_status(self, name: str) -> Object:
        """Return what is known of one of elasticd's pods."""
        found = self._ask("GET", f"{PODS}/{name}", what=f"read the pod {name}")
        return dict(found.get("status", {}))

    # --- nodes

    def taint(self, node: str, key: str, *, is_there: bool = True) -> None:
        """Give a node a taint that lets no new pods in, or take it back."""
        path, what = f"/api/v1/nodes/{node}", f"taint {node}"
        found = self._ask("GET", path, what=what)["spec"].get("taints") or []
        taints = [each for each in found if each["key"] != key]
        if is_there:
            taints.append({"key": key, "effect": "NoSchedule"})
        self._ask("PATCH", path, body={"spec": {"taints": taints or None}}, what=what)

    def take_node(self, node: str) -> Object:
        """Delete a node's object; return it as it was."""
        path, what = f"/api/v1/nodes/{node}", f"delete the node {node}"
        found = self._ask("GET", path, what=what)
        self._ask("DELETE", path, what=what)
        return found

    def give_node(self, was: Object) -> None:
        """Make a node's object again, unless its kubelet has done so.

        Raises: ChaosError: the API server refuses.
        """
        kept = ("name", "labels", "annotations")
        metadata = {key: was["metadata"][key] for key in kept if key in was["metadata"]}
        body = {**was, "metadata": metadata}
        try:
            self._once("POST", "/api/v1/nodes", {}, body, what=f"create the node {metadata}")
        except Fenced:
            pass  # It is there.
        except ElasticdError as exc:
            raise ChaosError(str(exc)) from exc

    def cordon(self, node: str, *, is_cordoned: bool = True) -> None:
        """Cordon a node, or uncordon it."""
        # None removes the field, as the server does with one that is false.
        change = {"spec": {"unschedulable": True if is_cordoned else None}}
        self._ask("PATCH", f"/api/v1/nodes/{node}", body=change, what=f"cordon {node}")

    def is_ready(self, node: str) -> bool:
        """Return whether a node counts as Ready."""
        found = self._ask("GET", f"/api/v1/nodes/{node}", what=f"read the node {node}")
        conditions = found.get("status", {}).get("conditions", ())
        return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)

    # --- the job

    def create_job(self, name: str, spec: Object) -> None:
        body = {
            "apiVersion": "elasticd.dev/v1alpha1",
            "kind": "ElasticJob",
            "metadata": {"name": name, "namespace": "default"},
            "spec": spec,
        }
        self._ask("POST", JOBS, body=body, what=f"create the ElasticJob {name}")

    def scale_job(self, name: str, nodes: int) -> None:
        """Do what `kubectl scale` and an HPA do."""
        with suppress(NotFound):  # It is over.
            change = {"spec": {"replicas": nodes}}
            self._ask("PATCH", f"{JOBS}/{name}/scale", body=change, what=f"scale {name}")

    def job_status(self, name: str) -> Object:
        found = self._ask("GET", f"{JOBS}/{name}", what=f"read the ElasticJob {name}")
        return dict(found.get("status", {}))

    def delete_job(self, name: str) -> None:
        """Delete a job, and wait until it is gone."""

        def is_gone() -> bool:
            try:
                self._ask("GET", f"{JOBS}/{name}", what=f"read the ElasticJob {name}")
            except NotFound:
                return True
            return False

        with suppress(NotFound):
            self._ask("DELETE", f"{JOBS}/{name}", what=f"delete the ElasticJob {name}")
            wait_until(is_gone, f"the ElasticJob {name} is gone", 90.0)

    # --- etcd

    def etcd_pods(self) -> Sequence[EtcdPod]:
        """Return elasticd's own etcd."""
        return etcd_pods(self.pods(ETCD))

    def open_etcd(self) -> list[str]:
        """Make etcd answer at a port of each node; return where it does on its own ones.

        So that whoever reads there does not depend on another node.
        """
        labels = {"app.kubernetes.io/name": "elasticd", "app.kubernetes.io/component": "etcd"}
        body = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": SERVICE, "namespace": NAMESPACE},
            "spec": {
                "type": "NodePort",
                "publishNotReadyAddresses": True,
                "selector": labels,
                "ports": [{"name": "client", "port": 2379, "protocol": "TCP"}],
            },
        }
        self.close_etcd()
        made = self._ask("POST", SERVICES, body=body, what=f"create the Service {SERVICE}")
        port = made["spec"]["ports"][0]["nodePort"]
        nodes = self._ask("GET", "/api/v1/nodes", what="list the nodes")["items"]
        own = {each.node for each in self.etcd_pods()}
        return [
            f"http://{address['address']}:{port}"
            for node in nodes
            if node["metadata"]["name"] in own
            for address in node["status"].get("addresses", ())
            if address["type"] == "InternalIP"
        ]

    def close_etcd(self) -> None:
        with suppress(NotFound):
            self._ask("DELETE", f"{SERVICES}/{SERVICE}", what=f"delete the Service {SERVICE}")

    # --- private

    def _containers(self, path: str) -> list[dict[str, Any]]:
        found = self._ask("GET", path, what=f"read {path}")
        return list(found["spec"]["template"]["spec"]["containers"])

    def _variables(self, path: str, names: Sequence[str]) -> Variables:
        found = {each["name"]: each for each in self._containers(path)[0].get("env", ())}
        return {name: found.get(name) for name in names}

    def _set_variables(self, path: str, variables: Variables) -> None:
        containers = self._containers(path)
        own = {each["name"]: each for each in containers[0].get("env", ())}
        merged = {**own, **variables}.items()
        env = [{"name": name, **each} for name, each in merged if each is not None]
        # A list is replaced as a whole.
        changed = [{**containers[0], "env": env}, *containers[1:]]
        change = {"spec": {"template": {"spec": {"containers": changed}}}}
        self._ask("PATCH", path, body=change, what=f"change {path}")

    def _follow(self) -> None:
        while not self._is_over.wait(POLL_S):
            with suppress(ElasticdError):
                items = self._once("GET", PODS, {"labelSelector": AGENT}, what="list pods")
                self._pods = agent_pods(items.get("items", ()))

    def _ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: object = None,
        *,
        what: str,
    ) -> dict[str, Any]:
        """Ask again while nobody answers; NotFound is the caller's."""
        until_s = time.monotonic() + LIMIT_S
        while True:
            try:
                return self._once(method, path, query or {}, body, what=what)
            except NotFound:
                raise
            except ElasticdError as exc:
                if not isinstance(exc, Unavailable) or time.monotonic() > until_s:
                    raise ChaosError(str(exc)) from exc
                time.sleep(AGAIN_S)

    def _once(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: object = None,
        *,
        what: str,
    ) -> dict[str, Any]:
        kind = MERGE if method == "PATCH" else "application/json"
        return self._connection.ask(method, path, query, body, what=what, content_type=kind)


def wait_until(is_so: Callable[[], bool], what: str, limit_s: float) -> None:
    """Wait for a fact.

    Raises:
        ChaosError: it did not come true.
    """
    until_s = time.monotonic() + limit_s
    while not is_so():
        if time.monotonic() > until_s:
            raise ChaosError(f"It did not come true in {limit_s:g} s that {what}.")
        time.sleep(AGAIN_S)
