"""The output of `elasticd run`: state changes and summary on stderr, workers' output unchanged.

Printing must never end a run: neither a full disk behind `> run.log`, nor a closed terminal, nor a
byte that is no text. Text that cannot be printed is lost and the run goes on; the workers' output
is in their files in any case.
"""

import json
import select
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, TextIO

from elasticd.cli.progress.part import LinePart, fitted, whole
from elasticd.cli.progress.speed import Speed
from elasticd.cli.progress.terminal_line import TerminalLine, can_draw, width_of
from elasticd.cli.terminal import words
from elasticd.control.follow import EtcdAway, EtcdBack, JobEnded, Waiting, WorldFormed
from elasticd.control.local_run.last_checkpoint import CheckpointAwaited, CheckpointLost
from elasticd.control.local_run.session import AgentEnded, RunNews, Stopping
from elasticd.control.logs.console import OUT
from elasticd.control.report.report import JobReport
from elasticd.records.account.progress import RankProgress
from elasticd.records.codec import to_plain
from elasticd.records.job import JobSpec, JobStatus
from elasticd.records.reason import Phase
from elasticd.store.api import StoreSettings

__all__ = ["Screen"]

EVENTS = {
    WorldFormed: "world.formed",
    Waiting: "job.waited",
    EtcdAway: "etcd.lost",
    EtcdBack: "etcd.returned",
    Stopping: "stop.requested",
    AgentEnded: "agent.ended",
    CheckpointAwaited: "checkpoint.awaited",
    CheckpointLost: "checkpoint.lost",
    JobEnded: "job.ended",
}

URGENT = (Stopping, CheckpointLost)
"""The news that is printed with --quiet, too."""


class Screen:
    """Prints everything that a run prints; other threads may call `output`."""

    def __init__(self, *, is_json: bool = False, is_quiet: bool = False, term: str = "") -> None:
        """`term` is the variable TERM; if it is empty, no line is redrawn in place."""
        self._is_json, self._is_quiet = is_json, is_quiet
        self.is_live = not (is_json or is_quiet) and can_draw(sys.stderr, term)
        """Whether progress is one line that is drawn again and again."""
        self.has_reader = True
        """False once a worker's output met a pipe whose reader has ended."""
        self._line = TerminalLine(
            lambda data: _write(sys.stderr, data), lambda: width_of(sys.stderr)
        )

    def print_news(self, news: RunNews) -> None:
        """Print one state change; `summary` reports the end."""
        if self._is_json:
            self._json(EVENTS[type(news)], to_plain(news))
        elif not isinstance(news, JobEnded) and (not self._is_quiet or isinstance(news, URGENT)):
            self.line(words.news_line(news))

    def note(self, text: str) -> None:
        if not self._is_quiet and not self._is_json:
            self.line(text)

    def submitted(self, text: str, spec: JobSpec, store: StoreSettings, cluster: str) -> None:
        """Print that a job was submitted which this process does not follow.

        For programs it is an object on stdout: no worker writes there, and nothing else comes.
        """
        if not self._is_json:
            self.note(text)
            return
        plain = {
            "job": spec.name,
            "uid": spec.uid,
            "etcd": list(store.endpoints),
            "cluster": cluster,
            "message": text,
        }
        self._put(sys.stdout, json.dumps(plain).encode() + b"\n")

    def line(self, text: str) -> None:
        # An exception of a script may contain a file name with undecodable bytes.
        self._put(sys.stderr, f"[elasticd] {text}\n".encode(errors="backslashreplace"))

    def output(self, stream: int, data: bytes) -> None:
        """Print the output of a worker."""
        if not self._put(sys.stdout if stream == OUT else sys.stderr, data):
            self.has_reader = False

    def progress(self, parts: list[LinePart], rank: RankProgress | None, speed: Speed) -> None:
        """Show the training's progress: in a terminal as the last line, otherwise as a new line."""
        if self._is_json:
            plain = {"rank": to_plain(rank), "speed": to_plain(speed)}
            self._json("job.progressed", plain)
        elif self.is_live:
            self._line.show(lambda width: fitted(parts, width))
        elif not self._is_quiet:
            self.line(whole(parts))

    def hide_progress(self) -> None:
        """Remove the progress line until the next call of `progress`."""
        self._line.clear()

    def summary(self, report: JobReport, log_folder: str) -> None:
        if self._is_json:
            self._json("run.summarized", summary_plain(report, log_folder))
        elif not self._is_quiet:
            for text in words.summary_lines(report, log_folder):
                self.line(text)

    def failure(self, status: JobStatus) -> None:
        """Print the failure that ended the job; this is printed last."""
        if self._is_json or status.phase is not Phase.FAILED:
            return
        if self._is_quiet:
            self.line(words.ending(status))
        if status.failure is not None:
            for text in words.failure_lines(status.failure):
                self.line(text)

    def bundled(self, lines: Sequence[str], plain: Mapping[str, object]) -> None:
        """Print where the bundle of a failed job is, or why there is none; with --quiet, too."""
        if self._is_json:
            self._json("run.bundled", plain)
            return
        for text in lines:
            self.line(text)

    def _json(self, event: str, plain: object) -> None:
        self._put(sys.stderr, json.dumps({"event": event, "data": plain}).encode() + b"\n")

    def _put(self, stream: TextIO | None, data: bytes) -> bool:
        if not self.is_live:
            return _write(stream, data)
        with self._line.above(data, is_terminal=_is_terminal(stream)):
            return _write(stream, data)


def _is_terminal(stream: TextIO | None) -> bool:
    with suppress(OSError, ValueError):
        return stream is not None and stream.isatty()
    return False


def _write(stream: TextIO | None, data: bytes) -> bool:
    """Write all bytes of `data`, or as many as can be written; return False if the stream is a pipe
    whose reader has ended.

    The function bypasses Python's buffer: bytes left in the buffer fail again when the process
    ends, and would turn the exit code of a job that succeeded into 120.
    """
    if stream is None:  # The stream was closed when this process began.
        return True
    try:
        stream.flush()
        file = getattr(stream.buffer, "raw", stream.buffer)
        rest = memoryview(data)
        while rest:
            written = file.write(rest)
            if written is None:  # It is non-blocking, and its reader slow.
                select.select([], [file], [])
            rest = rest[written or 0 :]
    except BrokenPipeError:
        return False
    except (OSError, ValueError):
        pass
    return True


def summary_plain(report: JobReport, log_folder: str) -> dict[str, Any]:
    status = report.status
    return {
        "job": report.spec.name,
        "phase": status.phase.value,
        "reason": status.reason.value,
        "message": status.message,
        "generations": status.generation,
        "world_sizes": list(report.world_sizes),
        "restarts_by_cause": {cause.value: n for cause, n in report.restarts_by_cause.items()},
        "lost_seconds": dict(report.lost_s),
        "unnoticed_seconds": report.unnoticed_s,
        "failure": to_plain(status.failure),
        "saved": to_plain(report.saved),
        "logs": log_folder,
    }
