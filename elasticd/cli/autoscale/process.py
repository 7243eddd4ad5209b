"""The autoscaler beside a local run: a process of its own, that ends with the run.

Its log is that of a daemon and goes to a file; what it imports is not paid by runs without it.
"""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from elasticd.telemetry.log import open_log

__all__ = ["autoscaler"]

END_S = 5.0
"""Then it is killed: nothing of it is left to be written."""
PASSED_ON = ("ELASTICD_PROMETHEUS_", "ELASTICD_PERIOD")


@contextmanager
def autoscaler(
    endpoint: str, prometheus: str, log_path: Path, environ: Mapping[str, str]
) -> Iterator[None]:
    """Run one on the etcd of a local run; it asks this Prometheus, or the run's agents."""
    env = {
        name: value
        for name, value in environ.items()
        if not name.startswith("ELASTICD_") or name.startswith(PASSED_ON)
    }
    # -P: `python -m` would put the user's folder first in sys.path, and shadow modules of ours.
    command = [sys.executable, "-P", "-m", "elasticd.cli", "autoscale", "run", "--log-json"]
    command += ["--etcd", endpoint, "--listen", "127.0.0.1:0", "--parent-pid", str(os.getpid())]
    command += ["--prometheus", prometheus] if prometheus else []
    with open_log(log_path) as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=env,
            start_new_session=True,
        )
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
