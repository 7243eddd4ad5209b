"""The machines and the job: etcd, agents as separate processes, the call of `elasticd run`."""

import os
import signal
import subprocess
import time
from pathlib import Path

from chaos.error import ChaosError
from chaos.history.tail import Tail
from chaos.plan.fault import Fault
from chaos.plan.scenario import Scenario
from chaos.process import Mark, Process
from chaos.processes.etcd import Etcd
from chaos.processes.injection import Injection
from chaos.processes.network import Network
from chaos.processes.node import ELASTICD, ProcessNode
from chaos.processes.planned_change import PlannedChanges
from chaos.site import JOB, Blow, spell_script
from chaos.verdict.saved import SAVED_FOLDER
from elasticd.store.api import StoreSettings
from elasticd.store.etcd.store import EtcdStore

__all__ = ["ROOT", "ProcessSite"]

ROOT = Path(__file__).parents[2]
CALL_LIMIT_S = 60.0
GOODBYE_S = 15.0
LEFT_LIMIT_S = 10.0
POLL_S = 0.02


class ProcessSite:
    """Everything that a scenario needs; `close` leaves nothing."""

    def __init__(self, folder: Path, scenario: Scenario) -> None:
        self.folder, self.scenario, self.job = folder, scenario, JOB
        self.mark = Mark()
        self.records = folder / "records"
        (self.records / "orders").mkdir(parents=True)
        (folder / "tmp").mkdir()
        names = [f"n{number}" for number in range(scenario.site.nodes)]
        self.network: Network | None = None
        if scenario.site.has_network:
            self.network = Network(names, self.mark.environ())
        try:
            self.etcd = Etcd(
                folder / "etcd",
                members=scenario.site.etcds,
                host=self.network.host_address if self.network is not None else "127.0.0.1",
                env=self.mark.environ(),
            )
        except BaseException:
            self.close_network()
            raise
        self.nodes = [ProcessNode(self, name) for name in names]
        self.planned_changes = PlannedChanges(self._open_store, JOB)
        self._injection = Injection(self)

    def _open_store(self) -> EtcdStore:
        return EtcdStore(StoreSettings(endpoints=tuple(self.etcd.urls)))

    def environ(self, *, node: str = "", life: int = 0) -> dict[str, str]:
        """Environment of what we start: jobs and agents are those of this source tree, whichever is
        installed.
        """
        trees = os.pathsep.join((str(ROOT), str(ROOT / "agent")))
        own = {"PYTHONPATH": trees, "TMPDIR": str(self.folder / "tmp")}
        return {**self.mark.environ(node=node, life=life), **own}

    def address(self, node: str) -> str:
        return self.network.address(node) if self.network is not None else "127.0.0.1"

    @property
    def urls(self) -> list[str]:
        return self.etcd.urls

    def start(self) -> None:
        """Start etcd and agents, and submit the job to them.

        Raises:
            ChaosError: it was refused; says why.
        """
        self.etcd.start()
        for node in self.nodes:
            node.start()
        self._submit()

    def aim(self, fault: Fault, tail: Tail) -> Blow | None:
        """Find a fault's victim; None: there is none at this moment."""
        return self._injection.aim(fault, tail)

    def _submit(self) -> None:
        plan, site = self.scenario.job, self.scenario.site
        argv = [*ELASTICD, "run", "--etcd", ",".join(self.etcd.urls), "--detach", "--job", JOB]
        argv += ["--nnodes", f"{plan.min_nodes}:{site.nodes}"]
        argv += ["--nproc-per-node", str(site.workers)]
        argv += ["--max-restarts", str(plan.max_restarts)]
        argv += ["--max-node-losses", str(plan.max_node_losses)]
        argv += ["--isolation-limit", f"{plan.isolation_limit_s:g}"]
        if plan.progress_timeout_s:
            argv += ["--progress-timeout", f"{plan.progress_timeout_s:g}"]
        if plan.checkpoint_every:
            argv += ["--checkpoint", str(self.folder / SAVED_FOLDER)]
            argv += ["--checkpoint-every", plan.checkpoint_every, "--checkpoint-timeout", "10"]
        argv += [
            *spell_script(self.scenario, self.records),
            "--step-sleep",
            f"{plan.step_sleep_s:g}",
        ]
        if plan.poison_at_step:
            argv += ["--poison-at-step", str(plan.poison_at_step)]
        done = subprocess.run(
            argv,
            cwd=self.folder,
            env=self.environ(),
            capture_output=True,
            text=True,
            timeout=CALL_LIMIT_S,
            check=False,
        )
        if done.returncode != 0:
            raise ChaosError(f"The job was refused: {done.stderr.strip()}")

    def end_at(self, step: int) -> None:
        """Tell the job's ranks to end after this step."""
        partial = self.records / "end.partial"
        partial.write_text(str(step))
        partial.rename(self.records / "end")

    def end(self) -> list[Process]:
        """SIGTERM to all agents, and wait for their ends, and for those of all others."""
        self._say_goodbye()
        deadline_s = time.monotonic() + LEFT_LIMIT_S
        while (left := self._left()) and time.monotonic() < deadline_s:
            time.sleep(POLL_S)
        return left

    def _say_goodbye(self) -> None:
        for node in self.nodes:
            node.is_ending = True
            if node.life and node.exit_code is None:
                node.send(signal.SIGCONT)
                node.send(signal.SIGTERM)
        deadline_s = time.monotonic() + GOODBYE_S
        while time.monotonic() < deadline_s:
            if all(not node.life or node.exit_code is not None for node in self.nodes):
                return
            time.sleep(POLL_S)

    def _left(self) -> list[Process]:
        """List what runs beside our own servers."""
        own = set(self.etcd.pids)
        return [
            process
            for process in self.mark.processes()
            if process.pid not in own and process.life > 0
        ]

    def close(self) -> None:
        """Kill everything that runs and remove the networks."""
        self.planned_changes.close()
        try:
            self.etcd.end()
            self.mark.kill_all()
        finally:
            self.close_network()

    def close_network(self) -> None:
        if self.network is not None:
            self.network.close()
            self.network = None
