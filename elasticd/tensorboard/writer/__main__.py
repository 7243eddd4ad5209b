"""`python -m elasticd.tensorboard.writer NAME`: reads settings as JSON from stdin, then runs until
its end.

NAME is the name of its socket. It makes writers visible among processes
(`control/local_run/launch.py`). The end of stdin means that the agent or the job has ended; what
was sent is still written.
"""

import gc
import json
import os
import socket
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from threading import Event, Thread

from elasticd.checkpoint.storage.bucket import Bucket
from elasticd.checkpoint.storage.location import open_untried
from elasticd.records.codec import from_plain
from elasticd.telemetry.log import configure
from elasticd.tensorboard.writer.buffer import Buffer
from elasticd.tensorboard.writer.connections import Connections
from elasticd.tensorboard.writer.file_writer import LOOK_S, FileWriter
from elasticd.tensorboard.writer.metrics import MetricsFile

NOT_WRITTEN = 3
"""The exit code that says that steps were lost."""
NICENESS = 5
"""The niceness, so that it takes no CPU time from training."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    url: str
    options: Mapping[str, object] = field(default_factory=dict)
    """For the file system; secrets are named, not given."""
    folder: str
    """The folder of the job, below the URL."""
    job: str
    uid: str
    node: str
    listener: int
    """Descriptor of the socket that workers connect to."""
    metrics_path: str = ""
    """A file for Prometheus' textfile collector, `*.prom`; empty: none."""
    linger_s: float = 60.0
    """How long to go on when the agent has gone."""


def main() -> None:
    settings = from_plain(Settings, json.loads(sys.stdin.buffer.readline()))
    configure()
    os.nice(NICENESS)
    buffer = Buffer(time.monotonic)
    connections = Connections(socket.socket(fileno=settings.listener), buffer)

    def opened() -> Bucket:
        return open_untried(settings.url, settings.options, os.environ)

    writer = FileWriter(
        buffer,
        opened,
        folder=settings.folder,
        uid=settings.uid,
        node=settings.node,
        job=settings.job,
        tell=connections.tell,
    )
    MetricsFile(settings.job, settings.metrics_path, buffer, writer).start()
    connections.start()
    ended = Event()

    def wait_for_end() -> None:
        sys.stdin.buffer.read()
        ended.set()

    Thread(target=wait_for_end, name="stdin", daemon=True).start()
    gc.freeze()
    while not ended.is_set():
        if not writer.turn():
            ended.wait(LOOK_S)
    connections.close()
    until_s = time.monotonic() + settings.linger_s
    while buffer.steps and time.monotonic() < until_s:
        if not writer.turn(is_over=True):
            time.sleep(LOOK_S)
    # Threads that hang in a request are not waited for.
    os._exit(NOT_WRITTEN if buffer.steps or buffer.dropped else 0)


if __name__ == "__main__":
    main()
