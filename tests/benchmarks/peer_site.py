"""The peers with four workers on this machine: torchft's replica groups, torchrun's one node."""

import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from elasticd.store.private_etcd.embedded import free_port
from tests.benchmarks.bench import STEP, end, own_environ, program, send, start, tree
from tests.benchmarks.commits import Commits
from tests.benchmarks.site import TorchrunSite

__all__ = ["TORCHFT_TUNED", "TorchftRun", "TorchrunRun", "has_torchft"]

WORKERS = 4
TORCHFT_TUNED = ("--heartbeat_timeout_ms", "1000", "--join_timeout_ms", "100")
_SCRIPT = Path(__file__).with_name("loop_torchft.py")


def has_torchft() -> bool:
    """True if the peer is installed (`pip install 'elasticd[bench]'`)."""
    return importlib.util.find_spec("torchft") is not None


class TorchftRun:
    """A lighthouse and four replica groups of one worker; the benchmark restarts the dead ones."""

    def __init__(self, folder: Path, feed: Commits, flags: Sequence[str], name: str) -> None:
        self.name = name
        self._folder, self._flags = folder, flags
        self._port = free_port()
        self._env = own_environ(
            feed.env()
            | {
                "TORCHFT_LIGHTHOUSE": f"http://127.0.0.1:{self._port}",
                "OMP_NUM_THREADS": "1",
                "GLOO_SOCKET_IFNAME": "lo",
            }
        )
        self._lighthouse: subprocess.Popen[bytes] | None = None
        self._replicas: dict[int, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        argv = [program("torchft_lighthouse"), "--bind", f"127.0.0.1:{self._port}"]
        argv += ["--min_replicas", "1", *self._flags]
        self._lighthouse = start(argv, env=self._env, log=self._folder / "lighthouse.log")
        for rank in range(WORKERS):
            self.restart(rank)

    def restart(self, rank: int) -> None:
        """Start a replica group; what is left of the one before is killed."""
        if rank in self._replicas:
            send([self._replicas[rank].pid], signal.SIGKILL)
            self._replicas[rank].wait(5.0)
        self._replicas[rank] = start(
            [sys.executable, str(_SCRIPT)],
            env={**self._env, "REPLICA": str(rank)},
            log=self._folder / f"torchft-{rank}.log",
        )

    def stop(self) -> None:
        for each in self._replicas.values():
            send([each.pid], signal.SIGKILL)
            each.wait(5.0)
        self._replicas.clear()
        if self._lighthouse is not None:
            end(self._lighthouse)


class TorchrunRun:
    """One torchrun with four workers; a death restarts all of them."""

    CONF = "last_call_timeout=1"

    def __init__(self, folder: Path, feed: Commits, name: str) -> None:
        self.name = name
        self._folder = folder
        self._env = own_environ(feed.env() | {TorchrunSite.FRESH_STORE: "1"})
        self._process: subprocess.Popen[bytes] | None = None

    @classmethod
    def command(cls) -> list[str]:
        """Spell the call, without the log folder and the script."""
        return [
            *("torchrun", "--nnodes", "1", "--nproc-per-node", str(WORKERS)),
            *("--rdzv-id", "bench", "--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0"),
            *("--rdzv-conf", cls.CONF, "--local-addr", "127.0.0.1"),
            *("--max-restarts", "100", "--monitor-interval", "0.1"),
        ]

    def start(self) -> None:
        name, *flags = self.command()
        argv = [program(name), *flags, "--log-dir", str(self._folder / f"logs-{os.getpid()}")]
        argv += ["--redirects", "3", str(STEP)]
        self._process = start(argv, env=self._env, log=self._folder / "torchrun.log")

    def restart(self, rank: int) -> None:
        """Nothing to do: torchrun does it."""

    def stop(self) -> None:
        if self._process is not None:
            # Its own way to the end waits 30 s for workers that hang.
            send(tree(self._process.pid), signal.SIGKILL)
            self._process.wait(5.0)
