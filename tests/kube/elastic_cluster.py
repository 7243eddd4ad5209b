"""All of elasticd on a cluster, from deploy/kustomize, and ElasticJobs on it."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elasticd.kube.api.port import ELASTIC_JOBS
from tests.fixtures.manifests import KUSTOMIZE
from tests.fixtures.patience import patience_s
from tests.kube.testbed.cluster import NODES, Cluster
from tests.kube.testbed.daemon import wait_until
from tests.kube.testbed.image.store import IMAGES

__all__ = ["Commit", "ElasticCluster", "limit"]

_AGENT = "app.kubernetes.io/component=agent"
_SCRIPT = Path(__file__).parent / "paced.py"
_LIMIT_S = 120.0
_SLOW_ROLLOUT = json.dumps({"spec": {"minReadySeconds": 30}})
"""So long have workers of a new pod to take over a job's state; the overlay for a first try gives
them no time, and the base a minute."""
_COMMIT = re.compile(r"^C (\d+) (\d+) (\S+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Commit:
    """A commit of one rank; `at_s` on this machine's monotonic clock."""

    at_s: float
    node: str
    generation: int
    step: int


class ElasticCluster:
    """Agents on all nodes, an etcd, two operators, an autoscaler and a dashboard."""

    def __init__(self, cluster: Cluster, *, runs: Path | None = None) -> None:
        """`runs`: a folder of this machine in which all agents have the logs of their workers."""
        self.cluster = cluster
        self._runs = runs

    def is_up(self) -> bool:
        """Whether somebody has applied it already."""
        path = "/apis/apps/v1/namespaces/elasticd/daemonsets/elasticd-agent"
        return self.cluster.api.get(path) is not None

    def up(self) -> None:
        """Apply what a user applies, with the images of the testbed, and wait until it is ready."""
        if self._runs is not None:
            self._runs.mkdir(exist_ok=True)
            self._runs.chmod(0o777)  # The agents' user is not ours.
        self.kubectl("apply", "-k", str(self._overlay()))
        self.kubectl("wait", "--for=condition=Established", "crd/elasticjobs.elasticd.dev")
        # An old kubectl looks for a name that it does not know again, but not for a short one.
        self.kubectl("get", "elasticjobs")
        for each in (
            "statefulset/elasticd-etcd",
            "daemonset/elasticd-agent",
            "deployment/elasticd-operator",
        ):
            self.ours("rollout", "status", each, limit(200))  # An agent's grace is 120 s.
        if self._runs is not None:  # Afterwards: nothing trains here yet that a rollout could harm.
            self.ours("patch", "daemonset/elasticd-agent", "--patch", _SLOW_ROLLOUT)

    def down(self) -> None:
        """Take it away again, jobs first: without an operator they would stay."""
        self.kubectl("delete", "ej", "--all", "--all-namespaces", limit(60))
        # Pods first: Kubernetes looks at a namespace that still has some only after half of their
        # grace again, and that of the agents is 120 s.
        kinds = "daemonsets,deployments,statefulsets"
        self.ours("delete", kinds, "--all", "--cascade=foreground", limit(110))
        self.kubectl("delete", "-k", str(self._overlay()), "--ignore-not-found", limit(200))

    def kubectl(self, *words: str, stdin: str = "", is_checked: bool = True) -> str:
        return self.cluster.api.kubectl(*words, stdin=stdin, is_checked=is_checked)

    def ours(self, *words: str) -> str:
        """Run kubectl in elasticd's own namespace."""
        return self.kubectl("-n", "elasticd", *words)

    def elasticd(self, *words: str) -> str:
        """Run the command line in a pod of an agent, as a user does."""
        return self.ours("exec", f"pod/{self.agent(NODES[0])}", "--", "elasticd", *words)

    def agent(self, node: str) -> str:
        """Wait until an agent's pod on a node is ready; return its name."""
        found: list[str] = []

        def is_ready() -> bool:
            items = json.loads(self.ours("get", "pods", "-l", _AGENT, "-o", "json"))["items"]
            found[:] = [
                each["metadata"]["name"]
                for each in items
                if each["spec"].get("nodeName") == node
                and "deletionTimestamp" not in each["metadata"]
                and any(
                    one["type"] == "Ready" and one["status"] == "True"
                    for one in each["status"].get("conditions", ())
                )
            ]
            return bool(found)

        wait_until(is_ready, f"the agent on {node} is ready", _LIMIT_S)
        return found[0]

    def renew_agents(self) -> None:
        """Replace the agents' pods whose container was ever started anew.

        Kubernetes lets a container that has ended wait ever longer for its next start
        (CrashLoopBackOff), and forgets that after ten minutes, or with the pod.
        """
        items = json.loads(self.ours("get", "pods", "-l", _AGENT, "-o", "json"))["items"]
        restarted = [
            each["metadata"]["name"]
            for each in items
            if any(one["restartCount"] for one in each["status"].get("containerStatuses", ()))
        ]
        if restarted:
            self.ours("delete", "pods", *restarted, limit(110))

    def apply(self, name: str, *, steps: int, nodes: Sequence[int] = (1, 3)) -> None:
        """Apply an ElasticJob of one worker a node, which brings its script along."""
        spec = {
            "script": "paced.py",
            "args": ["--steps", str(steps)],
            "nodes": {"min": nodes[0], "max": nodes[1]},
            "files": {"paced.py": _SCRIPT.read_text()},
        }
        body = {
            "apiVersion": ELASTIC_JOBS.api_version,
            "kind": ELASTIC_JOBS.kind,
            "metadata": {"name": name},
            "spec": spec,
        }
        self.kubectl("apply", "-f", "-", stdin=json.dumps(body))

    def status(self, name: str) -> Mapping[str, Any]:
        path = f"/apis/elasticd.dev/v1alpha1/namespaces/default/elasticjobs/{name}"
        found: Mapping[str, Any] = json.loads(self.cluster.api.get(path) or b"{}").get("status", {})
        return found

    def wait_complete(self, name: str, *, limit_s: int = 110) -> None:
        self.kubectl("wait", "--for=condition=Complete", f"ej/{name}", limit(limit_s))

    def changes(self, name: str) -> Sequence[Mapping[str, Any]]:
        """Return what `elasticd why` tells of each world of a job."""
        found: Sequence[Mapping[str, Any]] = json.loads(
            self.elasticd("why", f"default.{name}", "--json")
        )["changes"]
        return found

    def commits(self, name: str) -> Sequence[Commit]:
        """Read what the ranks wrote that stands on the nodes' disks, in the order of time."""
        found = []
        for node, machine in self.cluster.nodes.items():
            volumes = machine.machine.root / "var/lib/kubelet/pods"
            pattern = f"*/volumes/kubernetes.io~empty-dir/runs/default.{name}*/gen-*/rank-*.out"
            for path in volumes.glob(pattern):
                for step, generation, at_s in _COMMIT.findall(path.read_text()):
                    found.append(
                        Commit(
                            at_s=float(at_s), node=node, generation=int(generation), step=int(step)
                        )
                    )
        return sorted(found)

    def wait_trains(self, name: str, *, nodes: int, after_s: float = 0.0) -> Sequence[Commit]:
        """Wait until so many nodes commit in the newest world, after a moment; return all."""
        newest: list[Commit] = []

        def do_train() -> bool:
            newest[:] = self.commits(name)
            last = [c for c in newest if c.generation == newest[-1].generation]
            return bool(last) and len({c.node for c in last if c.at_s > after_s}) == nodes

        wait_until(do_train, f"{nodes} nodes train {name}", _LIMIT_S)
        return newest

    def _overlay(self) -> Path:
        """Write a kustomization as a user writes one: an overlay of ours, and where images are."""
        folder = self.cluster.folder / "overlay"
        folder.mkdir(exist_ok=True)
        names = ("elasticd-agent", "elasticd", "etcd")
        images = [
            {"name": name, "newName": image.rpartition(":")[0], "newTag": "testbed"}
            for name, image in zip(names, IMAGES, strict=True)
        ]
        # kustomize takes no absolute paths.
        up = "../" * (len(folder.resolve().parts) - 1)
        base = f"{up}{str(KUSTOMIZE / 'overlays' / 'kubernetes-1.20').lstrip('/')}"
        text = {
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "bases": [base],
            "images": images,
        }
        if self._runs is not None:
            # With the rest, and not afterwards: that would replace pods that have just begun.
            (folder / "runs.yaml").write_text(_runs_patch(self._runs))
            text["patchesStrategicMerge"] = ["runs.yaml"]
        (folder / "kustomization.yaml").write_text(json.dumps(text))
        return folder


def limit(quiet_s: int) -> str:
    """Return the option that ends a hang of kubectl, before its process is ended for it."""
    return f"--timeout={patience_s(quiet_s):.0f}s"


def _runs_patch(folder: Path) -> str:
    """Say of the volume `runs` that it is a folder of the machine; chaos/README.md has the same."""
    volume = {"name": "runs", "emptyDir": None, "hostPath": {"path": str(folder)}}
    return json.dumps(
        {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {"name": "elasticd-agent", "namespace": "elasticd"},
            "spec": {"template": {"spec": {"volumes": [volume]}}},
        }
    )
