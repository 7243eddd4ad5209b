"""The programs that a cluster is made of, where they run on this machine: found in /proc.

A wrapper such as `nsenter` stops with its program, and is not woken with it.
"""

import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from chaos.error import ChaosError
from chaos.process import send

__all__ = ["NodeImage", "Program", "api_etcd", "api_server", "containerd_of", "kubelet_of"]


class Program:
    """One program that runs, and what waits for it."""

    def __init__(self, pid: int, words: Sequence[str]) -> None:
        self.pid, self.words = pid, words

    def flag(self, name: str) -> str:
        """Return the value of a flag of its command line; empty: it has none."""
        start = f"--{name}="
        return next((w.removeprefix(start) for w in self.words if w.startswith(start)), "")

    def stop(self) -> None:
        """Let it stand still, with its connections open."""
        send([self.pid], signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on; it first, since its wrapper, once awake, would find it stopped again."""
        send([self.pid, *_wrapper(self.pid)], signal.SIGCONT)

    def namespace(self, kind: str) -> int:
        """Return the number of one of its namespaces."""
        return Path(f"/proc/{self.pid}/ns/{kind}").stat().st_ino


class NodeImage:
    """An image as one node has it, under one of its names."""

    def __init__(self, containerd_pid: int, name: str) -> None:
        self._pid, self._name = containerd_pid, name
        self._hidden = f"{name}-hidden"

    def hide(self) -> None:
        """Take its name, so that no pod finds it; what runs goes on."""
        self._ctr("tag", "--force", self._name, self._hidden)
        self._ctr("rm", self._name)

    def give_back(self) -> None:
        self._ctr("tag", "--force", self._hidden, self._name)
        self._ctr("rm", self._hidden)

    def _ctr(self, *words: str) -> None:
        enter = ("nsenter", f"--target={self._pid}", "--mount", "--net", "--pid", "--ipc")
        command = [*enter, "ctr", "-n=k8s.io", "images", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise ChaosError(f"`{' '.join(command)}` failed: {done.stderr.strip()}")


def kubelet_of(node: str, address: str) -> Program | None:
    """Return the kubelet of a node; None: it is not on this machine.

    Several clusters of this machine may have a node of that name: its address tells them apart.
    """
    return _find(
        "kubelet",
        lambda found: (found.flag("hostname-override"), found.flag("node-ip")) == (node, address),
    )


def containerd_of(node: str, address: str) -> Program | None:
    """Return the containerd beside a node's kubelet."""
    kubelet = kubelet_of(node, address)
    if kubelet is None:
        return None
    mine = kubelet.namespace("mnt")
    return _find("containerd", lambda found: found.namespace("mnt") == mine)


def api_server(url: str) -> Program | None:
    """Return the API server that answers at this address."""
    host, _, port = url.rpartition("/")[2].rpartition(":")
    return _find(
        "kube-apiserver",
        lambda found: (found.flag("bind-address"), found.flag("secure-port")) == (host, port),
    )


def api_etcd(url: str) -> Program | None:
    """Return the etcd of the API server that answers at this address."""
    server = api_server(url)
    if server is None:
        return None
    where, mine = server.flag("etcd-servers"), server.namespace("net")
    return _find(
        "etcd",
        lambda found: found.flag("listen-client-urls") == where and found.namespace("net") == mine,
    )


def _find(name: str, is_it: Callable[[Program], bool]) -> Program | None:
    for folder in _folders():
        with suppress(OSError, ValueError, IndexError):  # it ended meanwhile
            words = [os.fsdecode(w) for w in (folder / "cmdline").read_bytes().split(b"\0")]
            found = Program(int(folder.name), words)
            if os.path.basename(words[0]) == name and is_it(found):
                return found
    return None


def _wrapper(pid: int) -> list[int]:
    with suppress(OSError, ValueError, IndexError):
        stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        if Path(f"/proc/{stat[1]}/comm").read_text().strip() == "nsenter":
            return [int(stat[1])]
    return []


def _folders() -> Iterator[Path]:
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            yield Path(entry.path)
