"""Starts a job's writer of event files with the first worker that connects to it.

Only the node of rank 0 needs a writer, and rank 0 moves. So the agent listens, as inetd does, and
the first connection starts the process, which takes the socket over. The agent keeps the socket
open too: numbers that workers send while there is no writer wait in the socket, and the next
connection restarts a writer that has ended.
"""

import errno
import json
import os
import secrets
import select
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from threading import Event, Lock, Thread
from time import monotonic

from elasticd.records.ids import NodeId
from elasticd.records.job import JobSpec
from elasticd.telemetry.log import get_logger, open_log
from elasticd_agent.pod.orphans import Children
from elasticd_agent.pool.process.effective_user import child_gid, child_uid
from elasticd_agent.worker_setup.worker_env import without_secrets

__all__ = ["WriterProcess"]

FIRST_PAUSE_S, LAST_PAUSE_S = 0.2, 30.0
WELL_S = 2 * LAST_PAUSE_S
"""A writer that lived this long could run: the pause before the next start is short again."""
LINGER_S = 60.0
"""How long it may go on writing after the job or the agent has ended."""
AWAITED_LINGER_S = 20.0
"""How long it may go on writing if `elasticd run` waits for it."""
BACKLOG = 16

log = get_logger()


class WriterProcess:
    """The writer of one job; does nothing for a job without `--tensorboard`."""

    def __init__(
        self,
        spec: JobSpec,
        node: NodeId,
        folder: Path,
        children: Children,
        *,
        environ: Mapping[str, str],
    ) -> None:
        """Start nothing yet; `open` listens, and the first connection starts it.

        `children` are the processes of this agent that it must not take for orphans, and `environ`
        is the environment of the agent.
        """
        self._spec, self._node, self._folder = spec, node, folder
        self._children, self._environ = children, environ
        self._name = f"elasticd-tensorboard-{spec.uid}-{secrets.token_hex(8)}"
        self._lock = Lock()
        self._listener: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._closing = Event()
        self._wake_out, self._wake_in = -1, -1

    @property
    def env(self) -> Mapping[str, str]:
        """Return the variables by which workers find it."""
        return {"ELASTICD_EVENT_WRITER": self._name} if self._spec.tensorboard is not None else {}

    def open(self) -> None:
        """Listen, unless that has begun; may wait for the disk of the job's folder.

        Raises:
            OSError: there is no descriptor or no thread left.
        """
        with self._lock:
            if (
                self._spec.tensorboard is None
                or self._listener is not None
                or self._closing.is_set()
            ):
                return
            with suppress(OSError):
                # An earlier job of this name left it: what it says would count as this one's.
                self._log_path.with_suffix(".prom").unlink()
            self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                self._listener.bind("\0" + self._name)
                self._listener.listen(BACKLOG)
                self._listener.setblocking(False)
                self._wake_out, self._wake_in = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
                Thread(target=self._watch, name="tensorboard-watch", daemon=True).start()
            except (OSError, RuntimeError) as exc:
                self._hang_up()
                if isinstance(exc, RuntimeError):
                    raise OSError(errno.EAGAIN, str(exc)) from exc
                raise

    def close(self) -> None:
        """Let the writer write the numbers that it was sent; do not wait for it."""
        with self._lock:
            self._closing.set()
            if self._wake_in >= 0:
                with suppress(OSError):
                    os.write(self._wake_in, b"w")
            if self._listener is None:
                return
            if self._process is None and self._is_wanted(0.0):
                # A job so short that its rank 0 has connected and ended just now.
                with suppress(OSError):
                    self._start()
            if self._process is not None:
                _end_input(self._process)

    @property
    def _log_path(self) -> Path:
        return self._folder / "agents" / f"{self._node}.tensorboard.log"

    def _is_wanted(self, timeout_s: float | None) -> bool:
        """Wait for a connection or for the end; return whether a writer is wanted."""
        assert self._listener is not None
        listener, poll = self._listener.fileno(), select.poll()
        poll.register(listener, select.POLLIN)
        poll.register(self._wake_out, select.POLLIN)
        ready = poll.poll(None if timeout_s is None else round(timeout_s * 1000))
        return any(number == listener for number, _ in ready)

    def _hang_up(self) -> None:
        """Close what is open; the caller holds the lock."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        for number in (self._wake_out, self._wake_in):
            if number >= 0:
                os.close(number)
        self._wake_out = self._wake_in = -1

    def _watch(self) -> None:
        """Thread: run writers until the end, and wait for the last one too."""
        try:
            self._supervise()
        finally:
            with self._lock:
                process = self._process
                self._hang_up()
            if process is not None:
                process.wait()
                self._children.forget(process.pid)

    def _supervise(self) -> None:
        """Start a writer for the client that connects, see its end, and start it again for the
        next.
        """
        pause_s = FIRST_PAUSE_S
        while not self._closing.is_set():
            if not self._is_wanted(None):
                continue
            begun_s = monotonic()
            with self._lock:
                if self._closing.is_set():
                    return
                try:
                    self._start()
                except OSError as exc:
                    log.error("event_writer.not_started", why=str(exc))
            process = self._process
            if process is not None:
                code = process.wait()
                with self._lock:
                    self._children.forget(process.pid)
                    self._process = None
                if self._closing.is_set():
                    return
                log.warning("event_writer.ended", job=self._spec.name, code=code)
            pause_s = FIRST_PAUSE_S if monotonic() - begun_s >= WELL_S else pause_s
            if self._closing.wait(pause_s):
                return
            pause_s = min(LAST_PAUSE_S, pause_s * 2)

    def _start(self) -> None:
        """Start the process; the caller holds the lock."""
        wanted, listener = self._spec.tensorboard, self._listener
        assert wanted is not None and listener is not None
        log_path = self._log_path
        with open_log(log_path) as out:
            process = self._children.start(
                lambda: subprocess.Popen(
                    [sys.executable, "-m", "elasticd.tensorboard.writer", self._name],
                    env=without_secrets({**self._environ, **self._spec.env}),
                    cwd="/",
                    stdin=subprocess.PIPE,
                    stdout=out,
                    stderr=out,
                    pass_fds=(listener.fileno(),),
                    start_new_session=True,
                    user=child_uid(),
                    group=child_gid(),
                )
            )
        settings = {
            "url": wanted.url,
            "options": dict(wanted.options),
            "folder": wanted.folder,
            "job": self._spec.name,
            "uid": self._spec.uid,
            "node": self._node,
            "listener": listener.fileno(),
            "metrics_path": str(log_path.with_suffix(".prom")),
            "linger_s": AWAITED_LINGER_S if self._spec.is_local else LINGER_S,
        }
        assert process.stdin is not None
        with suppress(OSError):  # It has ended already, and is started again.
            process.stdin.write(json.dumps(settings).encode() + b"\n")
            process.stdin.flush()
        self._process = process


def _end_input(process: "subprocess.Popen[bytes]") -> None:
    """Close its stdin, which tells it to end."""
    assert process.stdin is not None
    with suppress(OSError):  # It has ended without reading.
        process.stdin.close()
