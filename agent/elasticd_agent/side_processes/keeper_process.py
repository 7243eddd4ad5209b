"""Starts the process that keeps a job's checkpoints on this node, and starts it again if it ends.

It is a child of the agent, not of the pool, because what workers left in its memory must outlive
them and the pool.
"""

import errno
import json
import secrets
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from threading import Event, Semaphore, Thread
from time import monotonic

from elasticd.records.ids import NodeId
from elasticd.records.job import JobSpec
from elasticd.telemetry.log import get_logger, open_log
from elasticd_agent.pod.orphans import Children
from elasticd_agent.pool.process.effective_user import child_gid, child_uid
from elasticd_agent.worker_setup.worker_env import without_secrets

__all__ = ["KeeperProcess"]

FIRST_PAUSE_S, LAST_PAUSE_S = 0.2, 30.0
WELL_S = 2 * LAST_PAUSE_S
"""A keeper that lived this long could run: the pause before the next start is short again, since
the node is without its memory meanwhile. It is longer than the longest pause, so a keeper that
cannot run never gets there."""
LINGER_S = 60.0
"""How long it may go on saving after the job or the agent has ended."""
AWAITED_LINGER_S = 600.0
"""The same where `elasticd run` waits for it, says so, and lets a person end it."""

log = get_logger()


class KeeperProcess:
    """The keeper of one job; does nothing for a job without checkpoints."""

    def __init__(
        self,
        spec: JobSpec,
        node: NodeId,
        folder: Path,
        children: Children,
        *,
        environ: Mapping[str, str],
        address: str = "",
    ) -> None:
        """Start nothing yet; `open` does.

        `children` are the processes of this agent that it must not take for orphans. `environ` is
        the environment of the agent. `address` is where other nodes reach this one; empty: they
        cannot.
        """
        self._spec, self._node, self._folder = spec, node, folder
        self._address, self._environ = address, environ
        self._children = children
        self._name = f"elasticd-keeper-{spec.uid}-{secrets.token_hex(8)}"
        self._process: subprocess.Popen[bytes] | None = None
        self._begun_s = 0.0
        self._is_closing = Event()

    @property
    def env(self) -> Mapping[str, str]:
        """Return the variables by which workers find it."""
        wanted = self._spec.checkpoint
        if wanted is None:
            return {}
        rate = wanted.mirror_bytes_per_s
        return {
            "ELASTICD_KEEPER": self._name,
            "ELASTICD_CHECKPOINT": wanted.url,
            "ELASTICD_CHECKPOINT_EVERY": str(wanted.every),
            "ELASTICD_CHECKPOINT_UPLOAD_EVERY": str(wanted.upload_every or ""),
            "ELASTICD_MIRROR_BANDWIDTH": f"{rate}B/s" if rate else "",
            "ELASTICD_CHECKPOINT_COPY": wanted.copy,
        }

    @property
    def _log_path(self) -> Path:
        return self._folder / "agents" / f"{self._node}.keeper.log"

    @property
    def metrics_path(self) -> Path | None:
        """Return where it writes its metrics; None if the job saves nothing."""
        return self._log_path.with_suffix(".prom") if self._spec.checkpoint is not None else None

    def open(self) -> None:
        """Start it, unless it has been; waits for the disk on which its log stands.

        Raises:
            OSError: no process or no thread can be made.
        """
        if self._spec.checkpoint is None or self._process is not None or self._is_closing.is_set():
            return
        if self.metrics_path is not None:
            # An earlier job of this name left it: what it says would count as this one's.
            with suppress(OSError):
                self.metrics_path.unlink()
        is_begun = Semaphore(0)
        watching = Thread(target=self._watch, args=(is_begun,), name="keeper-watch", daemon=True)
        try:
            watching.start()
        except RuntimeError as exc:  # First of all: a process that nobody watches is none.
            raise OSError(errno.EAGAIN, str(exc)) from exc
        try:
            self._start()
        finally:
            is_begun.release()

    def close(self) -> None:
        """Let it finish what is under way, without waiting for that or for one that is being
        started.
        """
        self._is_closing.set()
        if self._process is not None:
            _end_input(self._process)

    def _start(self) -> None:
        wanted = self._spec.checkpoint
        assert wanted is not None
        self._begun_s = monotonic()
        path = self._log_path
        with open_log(path) as out:
            process = self._children.start(
                lambda: subprocess.Popen(
                    [sys.executable, "-m", "elasticd.keeper", self._name],
                    env=without_secrets({**self._environ, **self._spec.env}),
                    cwd="/",
                    stdin=subprocess.PIPE,
                    stdout=out,
                    stderr=out,
                    start_new_session=True,
                    user=child_uid(),
                    group=child_gid(),
                )
            )
        settings = {
            "url": wanted.url,
            "options": dict(wanted.options),
            "job": wanted.owner,
            "job_name": self._spec.name,
            "uid": self._spec.uid,
            "socket": self._name,
            "host": self._address,
            "parallel": wanted.parallel,
            "timeout_s": wanted.timeout_s,
            "mirror_bytes_per_s": wanted.mirror_bytes_per_s,
            "linger_s": AWAITED_LINGER_S if self._spec.is_local else LINGER_S,
            "metrics_path": str(self.metrics_path),
            "retention": {"last": wanted.keep_last, "every_steps": wanted.keep_every_steps},
        }
        assert process.stdin is not None
        with suppress(OSError):  # It has ended already, and is started again.
            process.stdin.write(json.dumps(settings).encode() + b"\n")
            process.stdin.flush()
        self._process = process
        if self._is_closing.is_set():
            _end_input(process)  # Whoever closes may have looked just before.

    def _watch(self, is_begun: Semaphore) -> None:
        """Thread: see its end, and start another unless the end was wanted."""
        is_begun.acquire()
        if self._process is None:
            return  # It could not be started; whoever opens it tries again.
        pause_s = FIRST_PAUSE_S
        while True:
            assert self._process is not None
            code = self._process.wait()
            self._children.forget(self._process.pid)
            if monotonic() - self._begun_s >= WELL_S:
                pause_s = FIRST_PAUSE_S
            if self._is_closing.is_set():
                return
            log.warning(
                "keeper.ended",
                job=self._spec.name,
                code=code,
                pause_seconds=pause_s,
                why=self._children.oom_kills.sentence_of(code) or None,
            )
            if self._is_closing.wait(pause_s):
                return
            pause_s = min(LAST_PAUSE_S, pause_s * 2)
            try:
                self._start()
            except OSError as exc:
                log.error("keeper.not_started", why=str(exc))


def _end_input(process: "subprocess.Popen[bytes]") -> None:
    """Close its stdin, which tells it to end."""
    assert process.stdin is not None
    with suppress(OSError):  # It has ended without reading.
        process.stdin.close()
