"""Two nodes on this machine that train the script: under elasticd, under torchrun.

Both offer the same to a benchmark: start, the processes of a node, a node's return, the end.
"""

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Protocol

from elasticd.store.private_etcd.embedded import EmbeddedEtcd, free_port
from tests.benchmarks.bench import STEP, end, own_environ, program, send, start, tree
from tests.benchmarks.feed import Feed

__all__ = ["ElasticdRun", "ElasticdSite", "Site", "TorchrunSite"]

SUBMIT_LIMIT_S = 60.0
NODES = 2


class Site(Protocol):
    """Two nodes with one worker each."""

    name: str

    def start(self) -> None:
        """Start both nodes and the job; returns before the first step."""

    def stop(self) -> None:
        """End everything, also what is stopped."""

    def pids(self, node: int) -> list[int]:
        """The node's launcher and all below it, launcher first."""

    def revive(self, node: int) -> None:
        """Start the launcher of a node whose processes are all dead, or kill them first."""


class ElasticdRun:
    """`elasticd run --local-agents 2`: the way of one machine, its private etcd included."""

    name = "elasticd"

    def __init__(self, folder: Path, feed: Feed, job: str) -> None:
        self._folder, self._job = folder, job
        self._env = own_environ(feed.env())
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        argv = [program("elasticd"), "run", "--quiet", "--job", self._job]
        argv += ["--log-dir", str(self._folder / "runs"), "--local-agents", str(NODES)]
        argv += ["--nnodes", str(NODES), "--max-node-losses", "-1", str(STEP)]
        self._process = start(argv, env=self._env, log=self._folder / "elasticd.log")

    def stop(self) -> None:
        if self._process is not None:
            end(self._process)

    def phases(self) -> list[dict[str, float]]:
        """What `elasticd why` says that each change after the first world took, by phase."""
        argv = [program("elasticd"), "why", self._job, "--json"]
        argv += ["--log-dir", str(self._folder / "runs")]
        answer = subprocess.run(
            argv, env=self._env, capture_output=True, timeout=SUBMIT_LIMIT_S, check=False
        )
        if answer.returncode != 0:
            return []
        changes = json.loads(answer.stdout)["changes"]
        return [change["phases_s"] for change in changes if change["generation"] > 1]


class ElasticdSite:
    """Two `elasticd agent` daemons, an etcd, and a job submitted to them."""

    def __init__(self, folder: Path, feed: Feed, *, lease_ttl_s: float) -> None:
        self.name = f"elasticd, TTL {lease_ttl_s:g} s"
        self._folder = folder / f"site-{lease_ttl_s:g}"
        self._folder.mkdir(exist_ok=True)
        self._env = own_environ(feed.env())
        self._lease_ttl_s = lease_ttl_s
        self._etcd = EmbeddedEtcd(self._folder / f"etcd-{time.monotonic_ns()}", env=os.environ)
        self._agents: dict[int, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        self._etcd.start()
        for node in range(NODES):
            self._start_agent(node)
        argv = [program("elasticd"), "run", "--etcd", self._etcd.url, "--detach", "--job", "bench"]
        argv += ["--nnodes", f"1:{NODES}", "--max-node-losses", "-1", str(STEP)]
        subprocess.run(
            argv, env=self._env, check=True, timeout=SUBMIT_LIMIT_S, stdout=subprocess.DEVNULL
        )

    def stop(self) -> None:
        for node in self._agents:
            send(self.pids(node), signal.SIGKILL)
        for agent in self._agents.values():
            agent.wait(5.0)
        self._etcd.stop()

    def pids(self, node: int) -> list[int]:
        return tree(self._agents[node].pid)

    def revive(self, node: int) -> None:
        send(self.pids(node), signal.SIGKILL)
        self._agents[node].wait(5.0)
        self._start_agent(node)

    def _start_agent(self, node: int) -> None:
        argv = [program("elasticd"), "agent", "--etcd", self._etcd.url, "--node-id", f"n{node}"]
        argv += ["--slots", "1", "--local-addr", "127.0.0.1", "--log-json"]
        argv += ["--lease-ttl", f"{self._lease_ttl_s:g}", "--log-dir", str(self._folder / "runs")]
        log = self._folder / f"agent-{node}.log"
        self._agents[node] = start(argv, env=self._env, log=log)


class TorchrunSite:
    """Two torchrun agents of one job, with the c10d store in the first one."""

    FRESH_STORE = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
    """torchrun keeps the workers' store from one round to the next, unless this is 1. Gloo then may
    find the addresses of workers that are gone, and the job does not come back."""

    def __init__(
        self,
        folder: Path,
        feed: Feed,
        *,
        nnodes: str,
        conf: str,
        name: str,
        has_fresh_stores: bool = True,
    ) -> None:
        self.name = name
        self._folder = folder / "torchrun"
        self._folder.mkdir(exist_ok=True)
        self._env = own_environ(feed.env())
        if has_fresh_stores:
            self._env[self.FRESH_STORE] = "1"
        self._nnodes, self._conf = nnodes, conf
        self._port = free_port()
        self._agents: dict[int, subprocess.Popen[bytes]] = {}

    @staticmethod
    def command(nnodes: str, endpoint: str, conf: str) -> list[str]:
        """Spell the call, without the script."""
        return [
            *("torchrun", "--nnodes", nnodes, "--nproc-per-node", "1", "--rdzv-id", "bench"),
            *("--rdzv-backend", "c10d", "--rdzv-endpoint", endpoint, "--rdzv-conf", conf),
            *("--local-addr", "127.0.0.1", "--max-restarts", "100", "--monitor-interval", "0.1"),
        ]

    def start(self) -> None:
        for node in range(NODES):
            self._start_agent(node)

    def stop(self) -> None:
        for node in self._agents:
            # Its own way to the end waits 30 s for workers that hang: they are of no use any more.
            send(self.pids(node), signal.SIGKILL)
        for agent in self._agents.values():
            agent.wait(5.0)

    def pids(self, node: int) -> list[int]:
        return tree(self._agents[node].pid)

    def revive(self, node: int) -> None:
        send(self.pids(node), signal.SIGKILL)
        self._agents[node].wait(5.0)
        self._start_agent(node)

    def _start_agent(self, node: int) -> None:
        conf = f"is_host={1 if node == 0 else 0},{self._conf}"
        name, *flags = self.command(self._nnodes, f"127.0.0.1:{self._port}", conf.rstrip(","))
        argv = [program(name), *flags, "--log-dir", str(self._folder / f"logs-{os.getpid()}")]
        argv += ["--redirects", "3", str(STEP)]
        self._agents[node] = start(argv, env=self._env, log=self._folder / f"agent-{node}.log")
