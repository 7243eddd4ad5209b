"""The fork server of a local run: it imports torch once for all agents, while the agents start."""

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from elasticd.store.private_etcd.private_folder import private_folder
from elasticd.telemetry.log import open_log

__all__ = ["LocalForkServer"]

_END_S = 2.0
_BACKLOG = 64
_SOCKET = "fork-server"


class LocalForkServer:
    """The fork server's process. It ends with the thread that called `start`."""

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._owner: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, env: Mapping[str, str], log_path: Path) -> str:
        """Start the fork server; return the path of its socket, empty if it cannot start.

        An agent without such a path, or that cannot use the server, starts its pools itself.
        """
        self._folder = private_folder()
        if self._folder is None:
            return ""
        path = self._folder / _SOCKET
        try:
            self._owner, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with (
                theirs,
                socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener,
                open_log(log_path) as log,
            ):
                listener.bind(str(path))
                listener.listen(_BACKLOG)
                fds = [theirs.fileno(), listener.fileno()]
                command = [sys.executable, "-u", "-m", "elasticd_agent.pool.fork_server"]
                command += ["--fd", str(fds[0]), "--listen-fd", str(fds[1])]
                self._process = subprocess.Popen(
                    command,
                    env=dict(env),
                    cwd="/",
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=fds,
                    start_new_session=True,
                )
        except OSError:
            self.close()
            return ""
        return os.fspath(path)

    def close(self) -> None:
        """End the fork server, and remove its socket."""
        if self._owner is not None:
            self._owner.close()
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(_END_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                with suppress(subprocess.TimeoutExpired):  # The process hangs in the kernel.
                    self._process.wait(_END_S)
        if self._folder is not None:
            with suppress(OSError):
                shutil.rmtree(self._folder)
        self._owner = self._process = self._folder = None
