"""A Prometheus of ours in a pod, which the cluster's autoscaler reads while a scenario runs.

It is the script `chaos/jobs/scripted_prometheus.py`, with the agents' image and the folder that all
agents have: an order is a file there. The autoscaler has its address, and a short period, from two
variables of its Deployment, which are at the end what they were before.
"""

import shutil
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chaos.error import ChaosError
from chaos.pods.container import contained
from elasticd.errors import NotFound

if TYPE_CHECKING:
    from chaos.pods.cluster import KubeCluster, Variables

__all__ = ["POLICY", "Prometheus"]

SCRIPT = Path(__file__).parents[2] / "jobs" / "scripted_prometheus.py"
PORT = 9090
URL, PERIOD = "ELASTICD_PROMETHEUS", "ELASTICD_PERIOD"
POLICY = """
window = "4s"
cooldown = "1s"

[target.scale_down]
stabilization = "1s"

[[target.metrics]]
name = "load"
query = 'max(chaos_load{job_name="$job"})'
load = 1
per_node = true
max_age = "5s"
"""
"""A node for each unit of the load, as soon as an autoscaler may act."""


class Prometheus:
    def __init__(self, cluster: "KubeCluster", name: str, folder: Path, inside: Path) -> None:
        """Describe it; `inside` is how the agents see `folder`."""
        self._cluster, self._name = cluster, f"{name}-prometheus"
        self._folder, self._inside = folder, inside
        self._container = ""
        self._before: Variables = {}
        """What the autoscaler had before."""

    def start(self, *, load: int) -> None:
        """Start it with a load, and have the autoscaler read it.

        Raises: ChaosError: its pod or the autoscaler's new ones are not ready in time.
        """
        from chaos.pods.cluster import wait_until

        shutil.copyfile(SCRIPT, self._folder / SCRIPT.name)
        (self._folder / SCRIPT.name).chmod(0o644)
        self.order(f"truth {load}")
        self._cluster.create_pod(self._pod())
        address: list[str] = []

        def is_running() -> bool:
            status = self._cluster.pod_status(self._name)
            for each in status.get("containerStatuses", ()):
                self._container = str(each.get("containerID", "")).rpartition("/")[2]
            address[:] = [str(status.get("podIP", ""))]
            return status.get("phase") == "Running" and bool(self._container and address[0])

        wait_until(is_running, f"the pod {self._name} runs", 60.0)
        url = f"http://{address[0]}:{PORT}"
        self._before = self._cluster.autoscaler_variables(URL, PERIOD)
        self._cluster.set_autoscaler_variables({URL: {"value": url}, PERIOD: {"value": "1s"}})

    def order(self, words: str) -> None:
        """Say what it answers from now on."""
        partial = self._folder / "prometheus.partial"
        partial.write_text(words)
        partial.chmod(0o644)
        partial.rename(self._folder / "prometheus")

    def pids(self) -> list[int]:
        """Return its processes, as this machine sees them."""
        return [each.pid for each in contained(self._container)]

    def close(self) -> None:
        """Take it away, and give the autoscaler back what it had."""
        with suppress(ChaosError, NotFound):
            self._cluster.delete_pod(self._name, is_forced=True)
        if self._before:
            self._cluster.set_autoscaler_variables(self._before)

    def _pod(self) -> dict[str, Any]:
        template = self._cluster.agents_set()["spec"]["template"]["spec"]
        agent = template["containers"][0]
        inside = self._inside
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": self._name,
                "labels": {"app.kubernetes.io/component": "chaos-prometheus"},
            },
            "spec": {
                "restartPolicy": "Never",
                "securityContext": template.get("securityContext", {}),
                "volumes": [each for each in template["volumes"] if each["name"] == "runs"],
                "containers": [
                    {
                        "name": "prometheus",
                        "image": agent["image"],
                        "imagePullPolicy": agent.get("imagePullPolicy", "IfNotPresent"),
                        "command": [
                            "python",
                            str(inside / SCRIPT.name),
                            str(inside / "prometheus"),
                        ],
                        "volumeMounts": [
                            each for each in agent["volumeMounts"] if each["name"] == "runs"
                        ],
                    }
                ],
            },
        }
