"""The writer's entry point: `python -m elasticd.tensorboard.writer NAME`.

It reads settings as JSON from stdin, and runs until stdin ends. NAME is the name of its socket,
which makes writers visible among processes (`control/local_run/launch.py`). The end of stdin means
that the agent or the job has ended; the received steps are still written.
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
from elasticd.checkpoint.storage.location import open_unprobed
from elasticd.records.codec import from_plain
from elasticd.telemetry.log import configure
from elasticd.tensorboard.writer.buffer import Buffer
from elasticd.tensorboard.writer.connections import Connections
from elasticd.tensorboard.writer.file_writer import LOOK_S, FileWriter
from elasticd.tensorboard.writer.metrics import MetricsFile

NOT_WRITTEN = 3
"""The exit code if steps were lost."""
NICENESS = 5
"""The niceness of the process, so that it takes no CPU time from training."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    url: str
    options: Mapping[str, object] = field(default_factory=dict)
    """The options for the file system; they contain the names of secrets, not the secrets."""
    folder: str
    """The folder of the job, below the URL."""
    job: str
    uid: str
    node: str
    listener: int
    """The descriptor of the socket to which workers connect."""
    metrics_path: str = ""
    """A file for Prometheus' textfile collector, `*.prom`; empty if there is none."""
    linger_s: float = 60.0
    """The time in seconds for which the writer continues after the agent has ended."""


def main() -> None:
    settings = from_plain(Settings, json.loads(sys.stdin.buffer.readline()))
    configure()
    os.nice(NICENESS)
    buffer = Buffer(time.monotonic)
    connections = Connections(socket.socket(fileno=settings.listener), buffer)

    def opened() -> Bucket:
        return open_unprobed(settings.url, settings.options, os.environ)

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
    # The process does not wait for threads that hang in a request.
    os._exit(NOT_WRITTEN if buffer.steps or buffer.dropped else 0)


if __name__ == "__main__":
    main()
