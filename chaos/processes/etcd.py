"""A real etcd of one or three members, and a hand on its processes."""

import http.client
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from chaos.error import ChaosError
from elasticd.store.private_etcd.embedded import bound_to_us, free_port
from elasticd.store.private_etcd.etcd_program import find_etcd

__all__ = ["Etcd"]

START_LIMIT_S = 30.0
POLL_S = 0.02


@dataclass(slots=True, kw_only=True)
class _Member:
    name: str
    folder: Path
    client_port: int
    peer_port: int
    metrics_port: int
    process: "subprocess.Popen[bytes] | None" = None


class Etcd:
    """Its members; numbered by role, the followers first, so that 0 is never the leader of three.

    Bound to the life of the thread that starts them: call `start` and `restart` from the main one.
    """

    def __init__(self, folder: Path, *, members: int, host: str, env: dict[str, str]) -> None:
        self._host, self._env = host, env
        self._program = find_etcd()
        self._members = [
            _Member(
                name=f"m{number}",
                folder=folder / f"m{number}",
                client_port=free_port(),
                peer_port=free_port(),
                metrics_port=free_port(),
            )
            for number in range(members)
        ]

    @property
    def urls(self) -> list[str]:
        return [f"http://{self._host}:{member.client_port}" for member in self._members]

    @property
    def pids(self) -> list[int]:
        return [member.process.pid for member in self._members if member.process is not None]

    def start(self) -> None:
        """Start all and return when all answer."""
        for member in self._members:
            self._launch(member)
        for member in self._members:
            self._wait(member)

    def by_role(self) -> list[str]:
        """Names of the members, the leader last."""
        return [m.name for m in sorted(self._members, key=lambda m: (_is_leader(m), m.name))]

    def kill(self, name: str) -> None:
        member = self._named(name)
        if member.process is not None:
            member.process.kill()
            member.process.wait()
            member.process = None

    def stop(self, name: str) -> None:
        """SIGSTOP."""
        self._signal(name, signal.SIGSTOP)

    def resume(self, name: str) -> None:
        """SIGCONT, or a new start of a member that was killed; does not wait."""
        member = self._named(name)
        if member.process is None:
            self._launch(member)
        else:
            self._signal(name, signal.SIGCONT)

    def end(self) -> None:
        for member in self._members:
            self.kill(member.name)

    def _named(self, name: str) -> _Member:
        return next(member for member in self._members if member.name == name)

    def _signal(self, name: str, number: signal.Signals) -> None:
        process = self._named(name).process
        if process is not None:
            process.send_signal(number)

    def _launch(self, member: _Member) -> None:
        member.folder.mkdir(parents=True, exist_ok=True)
        client = f"http://{self._host}:{member.client_port}"
        everybody = ",".join(
            f"{each.name}=http://127.0.0.1:{each.peer_port}" for each in self._members
        )
        peer = f"http://127.0.0.1:{member.peer_port}"
        command = [
            str(self._program),
            f"--name={member.name}",
            f"--data-dir={member.folder / 'data'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster={everybody}",
            f"--listen-metrics-urls=http://127.0.0.1:{member.metrics_port}",
            "--logger=zap",
            "--log-level=warn",
            # The machine does not crash here, only processes: the page cache is enough.
            "--unsafe-no-fsync",
            "--heartbeat-interval=50",
            "--election-timeout=500",
        ]
        with (member.folder / "etcd.log").open("ab") as log:
            member.process = subprocess.Popen(
                bound_to_us(command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={"GOMAXPROCS": "2", **self._env},
                start_new_session=True,
            )

    def _wait(self, member: _Member) -> None:
        deadline_s = time.monotonic() + START_LIMIT_S
        while "true" not in _ask(member, "/health"):
            if time.monotonic() > deadline_s:
                log = (member.folder / "etcd.log").read_text(errors="replace")
                raise ChaosError(f"etcd does not start: {log[-500:]}")
            time.sleep(POLL_S)


def _is_leader(member: _Member) -> bool:
    return "\netcd_server_is_leader 1" in _ask(member, "/metrics")


def _ask(member: _Member, path: str) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", member.metrics_port, timeout=1.0)
    with suppress(OSError, http.client.HTTPException):
        connection.request("GET", path)
        return connection.getresponse().read().decode()
    connection.close()
    return ""
