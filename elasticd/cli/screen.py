"""What `elasticd run` prints: state changes and the summary on stderr, output as it was written."""

import json
import sys
from typing import Any

from elasticd.cli import words
from elasticd.control.console import OUT
from elasticd.control.follow import Ended, EtcdAway, EtcdBack, Formed, Waiting
from elasticd.control.report import JobReport
from elasticd.control.session import AgentEnded, Stopping, Told
from elasticd.records.codec import to_plain
from elasticd.records.job import JobStatus
from elasticd.records.reason import Phase

__all__ = ["Screen"]

EVENTS = {
    Formed: "world.formed",
    Waiting: "job.waited",
    EtcdAway: "etcd.lost",
    EtcdBack: "etcd.returned",
    Stopping: "stop.requested",
    AgentEnded: "agent.ended",
    Ended: "job.ended",
}


class Screen:
    def __init__(self, *, is_json: bool = False, is_quiet: bool = False) -> None:
        self._is_json, self._is_quiet = is_json, is_quiet
        self._is_gone = False

    def tell(self, news: Told) -> None:
        """Print one state change; the end is told by `summary`."""
        if self._is_json:
            self._json(EVENTS[type(news)], to_plain(news))
        elif not isinstance(news, Ended) and (not self._is_quiet or isinstance(news, Stopping)):
            self.line(words.news_line(news))

    def note(self, text: str) -> None:
        if not self._is_quiet and not self._is_json:
            self.line(text)

    def line(self, text: str) -> None:
        self._write_error(f"[elasticd] {text}\n".encode())

    def output(self, stream: int, data: bytes) -> None:
        """Pass on what a worker wrote; a reader that has gone does not end the job."""
        if stream != OUT:
            self._write_error(data)
        elif not self._is_gone:
            try:
                sys.stdout.buffer.write(data)
                sys.stdout.buffer.flush()
            except BrokenPipeError:
                self._is_gone = True

    def summary(self, report: JobReport, log_folder: str) -> None:
        if self._is_json:
            self._json("run.summarized", summary_plain(report, log_folder))
        elif not self._is_quiet:
            for text in words.summary_lines(report, log_folder):
                self.line(text)

    def failure(self, status: JobStatus) -> None:
        """Tell what broke the job, as the last thing printed."""
        if self._is_json or status.phase is not Phase.FAILED:
            return
        if self._is_quiet:
            self.line(words.ending(status))
        if status.failure is not None:
            for text in words.failure_lines(status.failure):
                self.line(text)

    def _json(self, event: str, plain: object) -> None:
        self._write_error(json.dumps({"event": event, "data": plain}).encode() + b"\n")

    def _write_error(self, data: bytes) -> None:
        try:
            sys.stderr.buffer.write(data)
            sys.stderr.buffer.flush()
        except BrokenPipeError:
            pass


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
        "failure": to_plain(status.failure),
        "saved": to_plain(report.saved),
        "logs": log_folder,
    }
