"""Reads the files that workers left behind, on the pool's thread, which may wait.

The thread that owns all jobs waits for no disk. If a run folder on a network disk does not answer,
only the details of a failure are lost: after a while the failure is reported without them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from threading import Lock, Thread

from elasticd.channel import pool as ch
from elasticd_agent.liveness.kill_notice import Killed
from elasticd_agent.pod.memory import SIGKILLED, OomKills
from elasticd_agent.workers.exit_report import ExitReport, exit_report_of
from elasticd_agent.workers.worker_process import WorkerProcess

__all__ = ["READ_LIMIT_S", "ExitFiles"]

READ_LIMIT_S = 2.0
"""How long to wait for two small files, of which one is mostly absent: a disk that answers takes
milliseconds."""


@dataclass(slots=True)
class _End:
    reports: dict[str, ExitReport] | None = None
    lock: Lock = field(default_factory=Lock)
    """Held by who reads the files, so that they are read once."""


class ExitFiles:
    """Read the accounts of one job's workers here.

    `of` runs on the thread that listens to the pool, or on one that was told of a kill; `forget`
    on the one that owns all jobs, which never waits for a disk here.
    """

    def __init__(
        self, processes: Mapping[str, WorkerProcess], oom_kills: OomKills | None = None
    ) -> None:
        self._processes, self._oom_kills = processes, oom_kills or OomKills()
        self._raised: dict[str, ch.Raised] = {}
        self._ends: dict[str, _End] = {}
        """What was reported of a worker's end: who tells of it again, the pool or the notice of its
        kill, tells the same. A kill for want of memory is claimed once."""
        self._lock = Lock()

    def of(self, message: ch.FromPool | Killed | None) -> dict[str, ExitReport]:
        """Return the account of each worker that the message reports as failed; None stands for all
        workers.
        """
        match message:
            case ch.Raised(worker=name, code=code):
                self._raised[name] = message
                return self._read((name,), code)
            case Killed(worker=name, code=code):
                return self._end_of(name, code)
            case ch.Exited(worker=name, code=code):
                has_finished = code == 0 and self._is_in_world(name)
                reports = {name: ExitReport()} if has_finished else self._end_of(name, code)
                self._raised.pop(name, None)
                return reports
            case None:
                reports = self._read(tuple(self._processes), SIGKILLED)
                self._raised.clear()
                return reports
            case _:
                return {}

    def forget(self, name: str) -> None:
        """Drop what is known of a worker that is none any more; its name may come again."""
        with self._lock:
            self._ends.pop(name, None)

    def _end_of(self, name: str, code: int) -> dict[str, ExitReport]:
        with self._lock:
            if name not in self._processes:
                return {name: ExitReport()}  # Nobody waits for it.
            end = self._ends.setdefault(name, _End())
        with end.lock:  # One of its own: whoever forgets another worker waits for no disk.
            if end.reports is None:
                end.reports = self._read((name,), code)
            return end.reports

    def _is_in_world(self, name: str) -> bool:
        process = self._processes.get(name)
        return process is not None and process.generation != 0

    def _read(self, names: tuple[str, ...], code: int) -> dict[str, ExitReport]:
        reports = self._read_files(names)
        if why := self._oom_kills.sentence_of(code):
            reports = {name: _killed(each, why) for name, each in reports.items()}
        return reports

    def _read_files(self, names: tuple[str, ...]) -> dict[str, ExitReport]:
        reports: dict[str, ExitReport] = {}

        def read() -> None:
            for name in names:
                process = self._processes.get(name)
                if process is not None:
                    files = process.files
                    reports[name] = exit_report_of(self._raised.get(name), files.error, files.err)

        reader = Thread(target=read, name="accounts", daemon=True)
        try:
            reader.start()
        except RuntimeError:  # No more threads: who listens waits for the disk itself then.
            read()
        else:
            reader.join(READ_LIMIT_S)
        late = ExitReport(exception="", traceback="Its files could not be read in time.")
        return {name: reports.get(name, late) for name in names}


def _killed(report: ExitReport, why: str) -> ExitReport:
    """Return why the worker was killed, after the last lines of its log; an earlier exception is
    not the reason.
    """
    shown = f"{report.traceback.rstrip()}\n{why}".lstrip()
    return replace(report, exception=why, where="", traceback=shown)
