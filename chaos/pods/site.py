"""A cluster that has elasticd already: its agents' pods, and an ElasticJob of ours in it.

The job's script and what it imports come with the job (`spec.files`), as a user's do. What the
ranks write down has to outlive their pods, and stand in one file: so the volume of the agents in
which the workers' logs lie must be a folder of this machine, the same for all nodes. For a user's
cluster, whose nodes are machines of their own, that is not enough: see this package's charter.
"""

import os
import secrets
import shutil
from contextlib import ExitStack, suppress
from pathlib import Path

from chaos.error import ChaosError
from chaos.history.tail import Tail
from chaos.plan.fault import Fault, Kind
from chaos.plan.scenario import Scenario
from chaos.pods.agent_pod import AgentPod
from chaos.pods.cluster import KubeCluster, wait_until
from chaos.pods.container import contained
from chaos.pods.injection import Injection
from chaos.pods.node import PodNode, first_process
from chaos.pods.server.prometheus import POLICY, Prometheus
from chaos.process import Mark, Process
from chaos.site import Blow, spell_script

__all__ = ["PodSite"]

ROOT = Path(__file__).parents[2]
INSIDE = Path("/var/lib/elasticd")
"""Where the agents have that volume."""
SENT = (
    *("__init__.py", "plan/__init__.py", "plan/fault.py"),
    *("history/__init__.py", "history/records.py"),
    *(f"jobs/{name}.py" for name in ("__init__", "call", "ledger_job", "recorder", "task")),
)
SCRIPT = "from chaos.jobs.ledger_job import main\n\nif __name__ == '__main__':\n    main()\n"
READY_LIMIT_S = 120.0
SUBMIT_LIMIT_S = 60.0
READ = frozenset({Kind.PROMETHEUS_FEWER, Kind.PROMETHEUS_STOP, Kind.PROMETHEUS_ABSURD})
"""Faults of a Prometheus that gives the job its size."""
GONE_LIMIT_S = 10.0


class PodSite:
    """Three nodes, or as many as the scenario has; `close` takes away what we brought."""

    def __init__(self, folder: Path, scenario: Scenario, kubeconfig: str) -> None:
        """Look at the cluster; nothing changes yet.

        Raises:
            ChaosError: the cluster cannot be asked, or is not one in which this works.
        """
        self.folder, self.scenario = folder, scenario
        self.job = ""
        self.nodes: list[PodNode] = []
        self.urls: list[str] = []
        self._mark = Mark()
        self.name = f"chaos-{secrets.token_hex(4)}"
        self.cluster = KubeCluster(kubeconfig)
        try:
            self._volume = self._find_volume()
        except BaseException:
            self.cluster.close()
            raise
        self.records = self._volume / self.name
        self.records_inside = INSIDE / self.name
        """The same folder, as the agents see it."""
        self.prometheus: Prometheus | None = None
        self._injection = Injection(self)

    def start(self) -> None:
        """Take up the agents that are there, and submit the job.

        Raises:
            ChaosError: too few of them are ready, they do not run here, or the job was refused.
        """
        plan = self.scenario.site
        self.cluster.follow()
        wait_until(
            lambda: len(self._ready()) >= plan.nodes,
            f"{plan.nodes} agents are ready",
            READY_LIMIT_S,
        )
        pods = self._chosen()[: plan.nodes]
        self._check_volume(pods)
        self.nodes = [PodNode(pod.node, self.cluster.agent, self.cluster.logs) for pod in pods]
        for node in self.nodes:
            node.start()
        self.urls = self.cluster.open_etcd()
        for path in (self.records, self.records / "orders"):
            path.mkdir()
            path.chmod(0o777)  # The agents' user is not ours.
        if READ & {entry.kind for entry in self.scenario.faults}:
            self.prometheus = Prometheus(self.cluster, self.name, self.records, self.records_inside)
            self.prometheus.start(load=plan.nodes)
        self._submit()

    def environ(self) -> dict[str, str]:
        """Return our environment, for the undisturbed run and the command line."""
        return {**self._mark.environ(), "PYTHONPATH": str(ROOT)}

    def aim(self, fault: Fault, tail: Tail) -> Blow | None:
        """Find a fault's victim; None: there is none at this moment."""
        return self._injection.aim(fault, tail)

    def end_at(self, step: int) -> None:
        """Tell the job's ranks to end after this step."""
        partial = self.records / "end.partial"
        partial.write_text(str(step))
        partial.chmod(0o644)
        partial.rename(self.records / "end")

    def end(self) -> list[Process]:
        """Delete the job; return workers that are in the agents' pods nevertheless."""
        self.cluster.delete_job(self.name)
        with suppress(ChaosError):
            wait_until(lambda: not self._left(), "no worker is left", GONE_LIMIT_S)
        return self._left()

    def close(self) -> None:
        """Undo what stands, take job and Service away, and fetch what was written.

        Raises: Exception: the last that a step raised; the others are taken all the same.
        """
        with ExitStack() as steps:  # The last that is named here is the first.
            steps.callback(self._fetch)
            steps.callback(self.cluster.close)
            if self.prometheus is not None:
                steps.callback(self.prometheus.close)
            steps.callback(self.cluster.close_etcd)
            steps.callback(self.cluster.delete_job, self.name)
            steps.callback(self._injection.undo_all)

    # --- private

    def _ready(self) -> list[AgentPod]:
        pods = self.cluster.agents.values()
        return sorted(
            (pod for pod in pods if pod.is_ready and not pod.is_deleted),
            key=lambda pod: pod.node,
        )

    def _chosen(self) -> list[AgentPod]:
        """Put etcd's node first: a scenario that cuts another one does not cut etcd off."""
        with_etcd = {each.node for each in self.cluster.etcd_pods()}
        return sorted(self._ready(), key=lambda pod: (pod.node not in with_etcd, pod.node))

    def _find_volume(self) -> Path:
        path = self.cluster.log_volume().get("hostPath", {}).get("path", "")
        if path and Path(path).is_dir() and os.geteuid() == 0:
            return Path(path)
        raise ChaosError(
            "Agents must have a folder of this machine as their volume `runs`, and chaos must be "
            "root to read there: it is for clusters whose nodes are all this machine, such as "
            "that of `make kube-up`. chaos/README.md says how to give them one."
        )

    def _check_volume(self, pods: list[AgentPod]) -> None:
        """See that what is written here is read in each of the pods."""
        name = f"{self.name}.here"
        here = self._volume / name
        here.touch()
        try:
            for pod in pods:
                root = Path(f"/proc/{first_process(pod).pid}/root")
                if not (root / INSIDE.relative_to("/") / name).exists():
                    raise ChaosError(
                        f"The folder {self._volume} of {pod.node} is not that of this machine."
                    )
        finally:
            here.unlink()

    def _submit(self) -> None:
        plan, site = self.scenario.job, self.scenario.site
        spec: dict[str, object] = {
            "script": "ledger.py",
            "files": {
                "ledger.py": SCRIPT,
                **{f"chaos/{name}": (ROOT / "chaos" / name).read_text() for name in SENT},
            },
            "args": [
                *spell_script(self.scenario, self.records_inside)[1:],
                *("--step-sleep", f"{plan.step_sleep_s:g}", "--in-pod"),
            ],
            "nodes": {"min": plan.min_nodes, "max": site.nodes},
            "slotsPerNode": site.workers,
            "limits": {
                "maxRestarts": plan.max_restarts,
                "maxNodeLosses": plan.max_node_losses,
            },
            "timeouts": {"isolationSeconds": plan.isolation_limit_s},
        }
        if plan.progress_timeout_s:
            spec["timeouts"] = {
                "isolationSeconds": plan.isolation_limit_s,
                "progressSeconds": plan.progress_timeout_s,
            }
        if self.prometheus is not None:
            spec["autoscale"] = {"policy": POLICY}
        self.cluster.create_job(self.name, spec)

        def is_taken() -> bool:
            status = self.cluster.job_status(self.name)
            for each in status.get("conditions", ()):
                if each["type"] in ("Invalid", "Failed") and each["status"] == "True":
                    raise ChaosError(f"The job was refused: {each.get('message', '')}")
            self.job = str(status.get("job", ""))
            return bool(self.job)

        wait_until(is_taken, "the operator takes up the job", SUBMIT_LIMIT_S)

    def _left(self) -> list[Process]:
        return [
            Process(
                pid=each.pid,
                name="worker",
                command=pod.name,
                node=pod.node,
                life=1,
                is_worker=True,
            )
            for pod in self.cluster.agents.values()
            for each in contained(pod.container)
            if each.is_worker
        ]

    def _fetch(self) -> None:
        """Take what ranks and agents wrote out of the volume, to where a run has it."""
        with suppress(FileNotFoundError):
            shutil.move(self.records, self.folder / "records")
        (self.folder / "runs").mkdir(exist_ok=True)
        for path in self._volume.glob(f"default.{self.name}*"):
            shutil.move(path, self.folder / "runs" / path.name)
