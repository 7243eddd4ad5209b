"""Where the in-process mode runs: one machine with several workers, or nodes with daemons.

Both start and stop, and tell what `elasticd why` knows about each change of world.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from elasticd.control import node_drain
from elasticd.control.job_policy import AUTOSCALER
from elasticd.records.codec import decode, encode
from elasticd.records.ids import JobName, NodeId
from elasticd.records.job import Want
from elasticd.records.keys import Keys
from elasticd.records.member import Member
from elasticd.store.api import Put, StoreSettings, Txn
from elasticd.store.etcd.store import EtcdStore
from elasticd.store.private_etcd.embedded import EmbeddedEtcd
from tests.benchmarks.bench import end, own_environ, program, send, start, tree
from tests.benchmarks.commits import Commits

__all__ = ["LOOP", "InProcessRun", "InProcessSite", "is_alive"]

LOOP = Path(__file__).with_name("loop.py")
CALL_LIMIT_S = 60.0
JOB = "bench"

Change = dict[str, Any]


class InProcessRun:
    """`elasticd run --nproc-per-node N loop.py`: one node with its private etcd."""

    name = "elasticd"

    def __init__(
        self,
        folder: Path,
        feed: Commits,
        job: str,
        *,
        workers: int = 4,
        more: Mapping[str, str] | None = None,
        script: Sequence[str] = (str(LOOP),),
    ) -> None:
        self._folder, self._job, self._workers = folder, job, workers
        self._script = script
        self._env = own_environ({**feed.env(), **(more or {})})
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        argv = [program("elasticd"), "run", "--quiet", "--job", self._job]
        argv += ["--log-dir", str(self._folder / "runs"), "--nproc-per-node", str(self._workers)]
        argv += ["--max-node-losses", "-1", *self._script]
        self._process = start(argv, env=self._env, log=self._folder / "elasticd.log")

    def stop(self) -> None:
        if self._process is not None:
            end(self._process)

    def restart(self, rank: int) -> None:
        """Nothing to do: the agent starts another worker by itself."""

    def changes(self) -> list[Change]:
        """What `elasticd why` says of each change after the first world."""
        return _changes([self._job, "--log-dir", str(self._folder / "runs")], self._env)


class InProcessSite:
    """Daemons on one etcd, each a node with slots, and a job submitted to them."""

    def __init__(
        self,
        folder: Path,
        feed: Commits,
        *,
        nodes: int = 2,
        slots: int = 2,
        lease_ttl_s: float = 2.0,
        more: Mapping[str, str] | None = None,
        flags: Sequence[str] = (),
        script: Path = LOOP,
    ) -> None:
        """`flags` are those of `elasticd run`, besides the usual ones."""
        self._folder, self._flags, self._script = folder, flags, script
        self._env = own_environ({**feed.env(), **(more or {})})
        self._nodes, self._slots, self._lease_ttl_s = nodes, slots, lease_ttl_s
        self._etcd = EmbeddedEtcd(self._folder / f"etcd-{time.monotonic_ns()}", env=os.environ)
        self._store: EtcdStore | None = None
        self._agents: dict[int, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        self._etcd.start()
        self._store = EtcdStore(StoreSettings(endpoints=(self._etcd.url,)))
        for node in range(self._nodes):
            self._start_agent(node)
        argv = [program("elasticd"), "run", "--etcd", self._etcd.url, "--detach", "--job", JOB]
        argv += ["--nnodes", f"1:{self._nodes}", "--nproc-per-node", str(self._slots)]
        argv += ["--max-node-losses", "-1", *self._flags, str(self._script)]
        subprocess.run(
            argv, env=self._env, check=True, timeout=CALL_LIMIT_S, stdout=subprocess.DEVNULL
        )

    def stop(self) -> None:
        for node in self._agents:
            send(self.pids(node), signal.SIGKILL)
        for agent in self._agents.values():
            agent.wait(5.0)
        if self._store is not None:
            self._store.close()
        self._etcd.stop()

    def pids(self, node: int) -> list[int]:
        """The node's agent and all below it, agent first."""
        return tree(self._agents[node].pid)

    def node_of(self, pid: int) -> int:
        """Which node has this process."""
        return next(node for node in self._agents if pid in self.pids(node))

    def is_up(self, node: int) -> bool:
        return self._agents[node].poll() is None

    def revive(self, node: int) -> None:
        """Start the agent of a node anew; what is left of the old one is killed before."""
        send(self.pids(node), signal.SIGKILL)
        self._agents[node].wait(5.0)
        self._start_agent(node)

    def drain(self, node: int) -> None:
        """Do what `elasticd drain` does, without the start of a Python."""
        assert self._store is not None
        node_drain.drain(self._store, Keys(), NodeId(f"n{node}"), why="benchmark")

    def undrain(self, node: int) -> None:
        assert self._store is not None
        node_drain.undrain(self._store, Keys(), NodeId(f"n{node}"))

    def want(self, nodes: int) -> None:
        """Write what an autoscaler writes."""
        assert self._store is not None
        want = Want(writer=AUTOSCALER, nodes=nodes, why="benchmark")
        key = Keys().want(JobName(JOB), AUTOSCALER)
        self._store.commit(Txn(then=(Put(key=key, value=encode(want)),)))

    def ready(self) -> int:
        """Count the nodes that train or could join at once."""
        assert self._store is not None
        items = self._store.list(Keys().members(JobName(JOB))).items
        return sum(bool(decode(Member, item.value).slots) for item in items)

    def changes(self) -> list[Change]:
        """What `elasticd why` says of each change after the first world."""
        return _changes([JOB, "--etcd", self._etcd.url], self._env)

    def _start_agent(self, node: int) -> None:
        argv = [program("elasticd"), "agent", "--etcd", self._etcd.url, "--node-id", f"n{node}"]
        argv += ["--slots", str(self._slots), "--local-addr", "127.0.0.1", "--log-json"]
        argv += ["--lease-ttl", f"{self._lease_ttl_s:g}", "--log-dir", str(self._folder / "runs")]
        log = self._folder / f"agent-{node}.log"
        self._agents[node] = start(argv, env=self._env, log=log)


def _changes(call: Sequence[str], env: Mapping[str, str]) -> list[Change]:
    argv = [program("elasticd"), "why", *call, "--json"]
    answer = subprocess.run(
        argv, env=dict(env), capture_output=True, timeout=CALL_LIMIT_S, check=False
    )
    if answer.returncode != 0:
        print(f"elasticd why: {answer.stderr.decode()[-500:]}", file=sys.stderr)
        return []
    changes: list[Change] = json.loads(answer.stdout)["changes"]
    return [each for each in changes if each["generation"] > 1 and each["told"]]


def is_alive(pid: int) -> bool:
    """True unless the process has ended, reaped or not."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
