"""The machines and the job: etcd, agents as separate processes, the call of `elasticd run`."""

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from chaos.error import ChaosError
from chaos.etcd import Etcd
from chaos.history import Status
from chaos.network import Network
from chaos.operator import Operator
from chaos.process import Mark, Process, boottime_s, send
from chaos.saved import SAVED_FOLDER
from chaos.scenario import Scenario
from elasticd.errors import ElasticdError
from elasticd.records.codec import decode
from elasticd.records.ids import JobName
from elasticd.records.job import JobStatus
from elasticd.records.keys import Keys
from elasticd.store.api import StoreSettings
from elasticd.store.embedded import bound_to_us
from elasticd.store.etcd import EtcdStore

__all__ = ["FINAL", "JOB", "ROOT", "Node", "Site", "StatusWatch"]

ROOT = Path(__file__).parents[1]
JOBS = Path(__file__).with_name("jobs")
JOB = "chaos"
FINAL = ("succeeded", "failed", "stopped")
ELASTICD = (sys.executable, "-P", "-m", "elasticd.cli")
CALL_LIMIT_S = 60.0
GOODBYE_S = 15.0
STATUS_POLL_S = 0.25


class Node:
    """An agent and all below it; its agent may be started again after its end."""

    def __init__(self, site: "Site", name: str) -> None:
        self.name = name
        self.life = 0
        self.is_ending = False
        """Its end is our doing; if it is not, it is a finding."""
        self._site = site
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the agent, as a supervisor does; from the thread that its life is bound to."""
        self.life += 1
        self.is_ending = False
        site = self._site
        command = [*ELASTICD, "agent", "--log-json", "--etcd", ",".join(site.etcd.urls)]
        command += ["--node-id", self.name, "--slots", str(site.scenario.site.workers)]
        command += ["--lease-ttl", f"{site.scenario.site.lease_ttl_s:g}"]
        command += ["--local-addr", site.address(self.name), "--log-dir", str(site.folder / "runs")]
        if site.network is not None:
            command = [*site.network.command(self.name), *command]
        env = site.environ(node=self.name, life=self.life)
        with (site.folder / f"{self.name}.log").open("ab") as log:
            self._process = subprocess.Popen(
                bound_to_us(command),
                cwd=site.folder,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.poll() if self._process is not None else 0

    def processes(self) -> list[Process]:
        """List the agent and all that descends from its present life."""
        return [
            process
            for process in self._site.mark.processes()
            if process.node == self.name and process.life == self.life
        ]

    def workers(self) -> list[Process]:
        return [process for process in self.processes() if process.is_worker]

    def send(self, number: signal.Signals) -> None:
        send([self.pid], number)

    def last_words(self) -> str:
        with suppress(OSError):
            lines = (self._site.folder / f"{self.name}.log").read_text(errors="replace")
            return lines.strip().rpartition("\n")[2][-400:]
        return ""


class Site:
    """Everything that a scenario needs; `close` leaves nothing."""

    def __init__(self, folder: Path, scenario: Scenario) -> None:
        self.folder, self.scenario = folder, scenario
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
        self.nodes = [Node(self, name) for name in names]
        self.operator = Operator(self._open_store, JOB)

    def _open_store(self) -> EtcdStore:
        return EtcdStore(StoreSettings(endpoints=tuple(self.etcd.urls)))

    def environ(self, *, node: str = "", life: int = 0) -> dict[str, str]:
        """Environment of what we start: the jobs import this package from the source tree."""
        own = {"PYTHONPATH": str(ROOT), "TMPDIR": str(self.folder / "tmp")}
        return {**self.mark.environ(node=node, life=life), **own}

    def address(self, node: str) -> str:
        return self.network.address(node) if self.network is not None else "127.0.0.1"

    def start(self) -> None:
        self.etcd.start()
        for node in self.nodes:
            node.start()

    def submit(self) -> None:
        """Submit the job to the daemons.

        Raises:
            ChaosError: it was refused; says why.
        """
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
        argv += [*self.script(self.records), "--step-sleep", f"{plan.step_sleep_s:g}"]
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

    def script(self, folder: Path) -> list[str]:
        """Spell the script with the arguments that the undisturbed run has too."""
        plan = self.scenario.job
        return [
            str(JOBS / plan.script),
            str(folder),
            *("--samples", str(plan.samples), "--batch-size", str(plan.batch_size)),
        ]

    def end_at(self, step: int) -> None:
        """Tell the job's ranks to end after this step."""
        partial = self.records / "end.partial"
        partial.write_text(str(step))
        partial.rename(self.records / "end")

    def say_goodbye(self) -> None:
        """SIGTERM to all agents, and wait for their ends."""
        for node in self.nodes:
            node.is_ending = True
            if node.life and node.exit_code is None:
                node.send(signal.SIGCONT)
                node.send(signal.SIGTERM)
        deadline_s = time.monotonic() + GOODBYE_S
        while time.monotonic() < deadline_s:
            if all(not node.life or node.exit_code is not None for node in self.nodes):
                return
            time.sleep(0.02)

    def left(self) -> list[Process]:
        """List what runs beside our own servers."""
        own = set(self.etcd.pids)
        return [
            process
            for process in self.mark.processes()
            if process.pid not in own and process.life > 0
        ]

    def close(self) -> None:
        """Kill everything that runs and remove the networks."""
        self.operator.close()
        try:
            self.etcd.end()
            self.mark.kill_all()
        finally:
            self.close_network()

    def close_network(self) -> None:
        if self.network is not None:
            self.network.close()
            self.network = None


class StatusWatch:
    """Reads the job's status again and again, in a thread: etcd may be away at any time."""

    def __init__(self, urls: Sequence[str], scenario: Scenario, note: Callable[[Status], None]):
        self._store = EtcdStore(StoreSettings(endpoints=tuple(urls)))
        self._plan, self._note = scenario.job, note
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="status", daemon=True)
        self.newest: Status | None = None

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join(10.0)
        self._store.close()

    def _watch(self) -> None:
        key = Keys().status(JobName(JOB))
        last: JobStatus | None = None
        while not self._is_over.wait(STATUS_POLL_S):
            with suppress(ElasticdError):
                item = self._store.get(key)
                status = decode(JobStatus, item.value) if item is not None else None
                if status is not None and status != last:
                    last = status
                    self.newest = self._record(status)
                    self._note(self.newest)

    def _record(self, status: JobStatus) -> Status:
        return Status(
            at_s=boottime_s(),
            phase=status.phase.value,
            generation=status.generation,
            restarts=status.restarts,
            user_errors=status.budget.user_error,
            node_losses=status.budget.node_loss,
            most_user_errors=self._plan.max_restarts,
            most_node_losses=self._plan.max_node_losses,
            message=status.message,
        )
