"""Notes what `elasticd why` would say of each change of world, and from when on it would."""

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from chaos.history.records import Told
from chaos.process import boottime_s
from chaos.site import JOB
from elasticd.control.report.change_report import ChangeReport
from elasticd.control.report.report import job_report
from elasticd.errors import ElasticdError
from elasticd.records.ids import Generation, JobName
from elasticd.records.keys import Keys
from elasticd.store.api import Store

__all__ = ["WHY_FILE", "WhyWatch", "keep_why"]

WHY_FILE = "why.json"
POLL_S = 0.25
NEWEST = 3
"""Generations that may still change: nodes tell of the last one when the next one stands."""
CALL_LIMIT_S = 60.0
ELASTICD = (sys.executable, "-P", "-m", "elasticd.cli")


class WhyWatch:
    """Reads as `why` does, in a thread, and only what may have changed: etcd may be away."""

    def __init__(self, store: Store, note: Callable[[Told], None], job: str = JOB) -> None:
        """`store` is this watch's own: `stop` closes it."""
        self._store, self._note, self._job = store, note, JobName(job)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="why", daemon=True)
        self._said: dict[int, Told] = {}

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Look once more, and end."""
        self._is_over.set()
        self._thread.join(10.0)
        self._store.close()

    def _watch(self) -> None:
        is_last = False
        while not is_last:
            is_last = self._is_over.wait(POLL_S)
            with suppress(ElasticdError):
                self.look()

    def look(self) -> None:
        """Note what is told otherwise than before.

        Raises:
            ElasticdError: etcd does not answer.
        """
        keys, job = Keys(), self._job
        prefix = keys.incidents(job)
        names = self._store.keys(prefix)
        known = sorted({int(name.removeprefix(prefix).split("/")[0]) for name in names})
        spec = self._store.get(keys.spec(job))
        if spec is None:
            return
        unread = [each for each in known if each not in self._said]
        for number in sorted({*unread, *known[-NEWEST:]}):
            items = self._store.list(keys.incidents_of(job, Generation(number))).items
            report = job_report([spec, *items], keys, job)
            for change in report.changes if report is not None else ():
                self._tell(change)

    def _tell(self, change: ChangeReport) -> None:
        said, before = said_of(change), self._said.get(change.generation)
        if before is None or _words(said) != _words(before):
            self._said[change.generation] = said
            self._note(said)


def said_of(change: ChangeReport) -> Told:
    """Take out of a change what names its cause and who was first."""
    culprit = change.culprit
    told = Told(
        at_s=boottime_s(),
        generation=change.generation,
        reason=change.reason.value,
        lost=tuple(change.lost),
    )
    if culprit is None:
        return told
    return Told(
        at_s=told.at_s,
        generation=told.generation,
        reason=told.reason,
        lost=told.lost,
        node=culprit.node,
        rank=culprit.rank,
        of_generation=culprit.generation,
        signal=culprit.signal,
        exit_code=culprit.exit_code if culprit.exit_code is not None else -1,
        exception=culprit.exception,
    )


def keep_why(folder: Path, urls: Sequence[str], env: Mapping[str, str], job: str = JOB) -> None:
    """Keep what `elasticd why --json` says in the end, as a user would call it."""
    command = [*ELASTICD, "why", job, "--json", "--etcd", ",".join(urls)]
    with suppress(subprocess.TimeoutExpired, ValueError):
        done = subprocess.run(
            command,
            cwd=folder,
            env=dict(env),
            capture_output=True,
            text=True,
            timeout=CALL_LIMIT_S,
            check=False,
        )
        if done.returncode == 0:
            (folder / WHY_FILE).write_text(json.dumps(json.loads(done.stdout)))


def _words(told: Told) -> tuple[object, ...]:
    return tuple(getattr(told, name) for name in Told.__slots__ if name != "at_s")
