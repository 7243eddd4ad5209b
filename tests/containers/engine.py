"""Two Docker engines on one machine, each with a network of its own: Debian's dockerd, as root.

Each engine lives in a network namespace, joined to the other by a bridge in a third one. None of
them has a route to anything else, and so asks no registry: images are loaded from files. What an
engine has made goes with it; the cgroups below its own name are removed, and so are the namespaces.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.containers.waiting import until
from tests.fixtures.patience import patience_s
from tests.kube.testbed.cgroup import kill_cgroup, remove_cgroup

__all__ = ["Engine", "running_engines"]

_HUB = "edock"
_RANGE = "10.76"
_START_LIMIT_S = 60.0
_STOP_LIMIT_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """One dockerd with its folder; `name` is its host's name too."""

    name: str
    number: int
    folder: Path

    @property
    def address(self) -> str:
        """Where the other engine reaches this one."""
        return f"{_RANGE}.0.{10 + self.number}"

    @property
    def namespace(self) -> str:
        return f"{_HUB}-{self.name}"

    @property
    def environment(self) -> dict[str, str]:
        """What has docker and docker-compose speak to this engine."""
        return os.environ | {
            "DOCKER_HOST": f"unix://{self.folder}/docker.sock",
            "DOCKER_BUILDKIT": "0",
            "DOCKER_CONFIG": str(self.folder / "config"),
        }

    def docker(self, *words: str | Path, limit_s: float = 120.0) -> str:
        """Call docker, and return what it says."""
        return self.call(["docker", *map(str, words)], limit_s=limit_s)

    def call(
        self, command: Sequence[str], *, limit_s: float = 120.0, cwd: Path | None = None
    ) -> str:
        """Call a program that speaks to this engine, and return what it prints."""
        done = subprocess.run(
            command,
            env=self.environment,
            cwd=cwd,
            capture_output=True,
            text=True,
            check=False,
            timeout=patience_s(limit_s),
        )
        assert done.returncode == 0, f"{' '.join(command)}: {done.stdout}{done.stderr}"
        return done.stdout.strip()

    def command(self) -> list[str]:
        """Return how dockerd is started: on a machine without CAP_SYS_RESOURCE, IPVS or systemd."""
        return [
            *("nsenter", f"--net=/run/netns/{self.namespace}"),
            *("unshare", "--uts", "sh", "-c", f'hostname {self.name}; exec "$@"', "dockerd"),
            *("dockerd", f"--host=unix://{self.folder}/docker.sock"),
            f"--data-root={self.folder}/data",
            f"--exec-root={self.folder}/run",
            f"--pidfile={self.folder}/dockerd.pid",
            "--storage-driver=overlay2",
            "--exec-opt=native.cgroupdriver=cgroupfs",
            f"--cgroup-parent=/{_HUB}/{self.name}",
            "--oom-score-adjust=0",
            "--default-ulimit=nofile=8192:8192",
            "--default-ulimit=nproc=4096:4096",
            f"--bip={_RANGE}.{1 + self.number}.1/24",
            f"--default-address-pool=base={_RANGE}.{64 + 16 * self.number}.0/20,size=24",
        ]


@contextlib.contextmanager
def running_engines(names: Sequence[str]) -> Iterator[list[Engine]]:
    """Run engines, and leave nothing of them.

    Their folder has a short name: the path of a socket in it has at most 107 characters.
    """
    folder = Path(tempfile.mkdtemp(prefix=f"{_HUB}-"))
    engines = [
        Engine(name=name, number=number, folder=folder / name) for number, name in enumerate(names)
    ]
    daemons: list[subprocess.Popen[bytes]] = []
    try:
        _make_networks(engines)
        for engine in engines:
            engine.folder.mkdir(parents=True)
            with (engine.folder / "log").open("wb") as log:
                daemons.append(
                    subprocess.Popen(
                        engine.command(), stdout=log, stderr=log, start_new_session=True
                    )
                )
        for engine, daemon in zip(engines, daemons, strict=True):
            until(partial(_is_up, engine, daemon), _START_LIMIT_S)
        yield engines
    finally:
        _kill(folder, daemons)
        _remove(engines)
        shutil.rmtree(folder, ignore_errors=True)


def _is_up(engine: Engine, daemon: subprocess.Popen[bytes]) -> bool:
    assert daemon.poll() is None, (engine.folder / "log").read_text()[-2000:]
    done = subprocess.run(
        ["docker", "info"], env=engine.environment, capture_output=True, check=False
    )
    return done.returncode == 0


def _kill(folder: Path, daemons: Sequence[subprocess.Popen[bytes]]) -> None:
    """Kill what runs: to stop containers would take their grace, and nothing is to be kept."""
    until(partial(_is_dead, folder), _STOP_LIMIT_S)
    for daemon in daemons:
        daemon.wait()


def _is_dead(folder: Path) -> bool:
    """Kill daemons, the parents of containers, and these; True if there are none."""
    for pid in (found := _processes(f"{folder}/")):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    kill_cgroup(_HUB)
    return not found and remove_cgroup(_HUB)


def _processes(mark: str) -> list[int]:
    """Return those whose command line contains a text."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # It has ended since.
            if mark.encode() in path.read_bytes():
                found.append(int(path.parent.name))
    return found


def _remove(engines: Sequence[Engine]) -> None:
    for line in reversed(Path("/proc/self/mounts").read_text().splitlines()):
        where = line.split()[1]
        if any(where.startswith(f"{engine.folder}/") for engine in engines):
            subprocess.run(["umount", "--lazy", where], check=False)
    for name in (*(engine.namespace for engine in engines), _HUB):
        if Path("/run/netns", name).exists():
            _ip("netns", "delete", name)


def _make_networks(engines: Sequence[Engine]) -> None:
    assert not Path("/run/netns", _HUB).exists(), "somebody else's engines are running here"
    _ip("netns", "add", _HUB)
    _ip("-n", _HUB, "link", "add", "name", "bridge", "type", "bridge")
    _ip("-n", _HUB, "link", "set", "bridge", "up")
    for engine in engines:
        inside, link = engine.namespace, f"to-{engine.name}"
        _ip("netns", "add", inside)
        _ip("-n", inside, "link", "set", "lo", "up")
        peer = ("type", "veth", "peer", "name", "eth0", "netns", inside)
        _ip("-n", _HUB, "link", "add", "name", link, *peer)
        _ip("-n", _HUB, "link", "set", link, "master", "bridge", "up")
        _ip("-n", inside, "address", "add", f"{engine.address}/24", "dev", "eth0")
        _ip("-n", inside, "link", "set", "eth0", "up")


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"ip {' '.join(words)}: {done.stderr}"
