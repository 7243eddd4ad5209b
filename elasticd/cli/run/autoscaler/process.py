"""The autoscaler of a local run: a separate process that ends with the run.

The process writes a daemon's log to a file. Runs without an autoscaler do not import its modules.
"""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from elasticd.telemetry.log import open_log

__all__ = ["autoscaler"]

END_S = 5.0
"""The time in which the process must end before it is killed: it has nothing left to write."""
AGAIN_S, AGAIN_MOST_S = 1.0, 30.0
"""The pause before the process is started again; it doubles each time, up to the second number."""
PASSED_ON = ("ELASTICD_PROMETHEUS_", "ELASTICD_PERIOD")


@contextmanager
def autoscaler(
    endpoint: str,
    prometheus: str,
    log_path: Path,
    environ: Mapping[str, str],
    note: Callable[[str], None] = lambda _: None,
) -> Iterator[None]:
    """Run an autoscaler on the etcd of a local run; it asks `prometheus`, or else the run's agents.

    If the process ends by itself or is killed, it is started again, and `note` gets one sentence.
    """
    env = {
        name: value
        for name, value in environ.items()
        if not name.startswith("ELASTICD_") or name.startswith(PASSED_ON)
    }
    # Without -P, `python -m` puts the user's folder first in sys.path, which may hide our modules.
    command = [sys.executable, "-P", "-m", "elasticd.cli", "autoscale", "run", "--log-json"]
    command += ["--etcd", endpoint, "--listen", "127.0.0.1:0", "--parent-pid", str(os.getpid())]
    command += ["--prometheus", prometheus] if prometheus else []
    supervisor = _Supervisor(command, log_path, env, note)
    try:
        yield
    finally:
        supervisor.close()


class _Supervisor:
    """Starts the process, and starts it again when it ends by itself."""

    def __init__(
        self,
        command: list[str],
        log_path: Path,
        env: Mapping[str, str],
        note: Callable[[str], None],
    ) -> None:
        self._command, self._log_path, self._env, self._note = command, log_path, env, note
        self._lock = threading.Lock()
        self._is_closing = threading.Event()
        self._process = self._started()
        self._thread = threading.Thread(target=self._keep, name="autoscaler", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the autoscaler, by force if it does not end in time."""
        with self._lock:
            self._is_closing.set()
            process = self._process
        process.terminate()
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._thread.join()

    def _keep(self) -> None:
        pause_s = AGAIN_S
        while True:
            code = self._process.wait()
            if self._is_closing.wait(pause_s):
                return
            if pause_s == AGAIN_S:  # Only once: repeats would fill the screen.
                how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
                self._note(
                    f"the autoscaler ended {how} and is started again, the job trains on: "
                    f"{self._log_path}"
                )
            pause_s = min(AGAIN_MOST_S, 2.0 * pause_s)
            with self._lock:
                if self._is_closing.is_set():
                    return
                self._process = self._started()

    def _started(self) -> "subprocess.Popen[bytes]":
        with open_log(self._log_path) as log:
            return subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=dict(self._env),
                start_new_session=True,
            )
