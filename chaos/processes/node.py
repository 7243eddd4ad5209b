"""A node of processes: an agent that we start, and all that descends from it."""

import signal
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from chaos.process import Process, send
from elasticd.store.private_etcd.embedded import bound_to_us

if TYPE_CHECKING:
    from chaos.processes.site import ProcessSite

__all__ = ["ELASTICD", "ProcessNode"]

ELASTICD = (sys.executable, "-P", "-m", "elasticd.cli")


class ProcessNode:
    """An agent and all below it; its agent may be started again after its end."""

    def __init__(self, site: "ProcessSite", name: str) -> None:
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

    def workers_of(self, life: int) -> tuple[int, ...]:
        """List the workers that are there of one life of its agent."""
        return tuple(
            process.pid
            for process in self._site.mark.processes()
            if process.is_worker and (process.node, process.life) == (self.name, life)
        )

    def send(self, number: signal.Signals) -> None:
        send([self.pid], number)

    def last_words(self) -> str:
        with suppress(OSError):
            lines = (self._site.folder / f"{self.name}.log").read_text(errors="replace")
            return lines.strip().rpartition("\n")[2][-400:]
        return ""
