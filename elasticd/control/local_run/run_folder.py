"""A job's folder: its lock, and the places of the files in it.

<run folder>/<job>/gen-<n>/rank-<r>.{out,err}   the output of the workers; never deleted
                   prepared/                    the output of workers before they had a rank
                   incidents/                   the stacks of the ranks that hung
                   spec-files/                  the files of the spec; the workers start there
                   agents/<node>.log            the logs of the agents
                   records.json                 the records of etcd, once the run is over
                   endpoint, etcd/              they exist only while the job runs
                   lock                         it is held while the job runs
                   earlier-<k>/                 the logs and records of earlier runs of the name
"""

import fcntl
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from elasticd.errors import CallError, Refused
from elasticd.records.ids import JobName
from elasticd.store.private_etcd.private_folder import PREFIX

__all__ = ["OF_WORKERS", "SPEC_FILES", "JobFolder", "local_jobs", "make_private", "move_aside"]

SPEC_FILES = "spec-files"
OF_WORKERS = ("gen-*", "prepared", "incidents", "incidents.jsonl*", SPEC_FILES)
"""The files that a new run of the same name moves aside; the script's own files (checkpoints) stay.
"""
OURS = (*OF_WORKERS, "agents", "records.json")
RECORDS = ("records.json", "endpoint", ".endpoint", "etcd")
LOGS = (*OF_WORKERS, "agents", "uid", "earlier-*")
MARKS = ("endpoint", "records.json", "lock")


class JobFolder:
    def __init__(self, run_folder: Path, job: JobName) -> None:
        self.run_folder = run_folder
        self.job = job
        self.path = run_folder / job
        self._lock: int | None = None

    @property
    def agents(self) -> Path:
        return self.path / "agents"

    @property
    def etcd(self) -> Path:
        return self.path / "etcd"

    @property
    def records(self) -> Path:
        return self.path / "records.json"

    @property
    def endpoint(self) -> str | None:
        """Return the URL of the private etcd of a run in progress; None if there is none."""
        try:
            return (self.path / "endpoint").read_text().strip()
        except FileNotFoundError:
            return None

    @property
    def has_logs(self) -> bool:
        """Return whether workers or agents wrote anything here."""
        return any(path for pattern in LOGS for path in self.path.glob(pattern))

    def is_live(self) -> bool:
        """Return whether a run holds the folder now; a killed run may have left an endpoint."""
        try:
            with (self.path / "lock").open() as lock:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def take(self) -> None:
        """Own the folder until this process ends; move an earlier run's files aside.

        Raises:
            Refused: a run of this name is in progress.
            CallError: the folder cannot be written.
        """
        try:
            make_private(self.path)
            is_locked = self._take_lock()
        except OSError as exc:
            raise self._not_written(exc) from exc
        if not is_locked:
            raise Refused(
                f"The job name {self.job!r} is in use by a run in progress in {self.run_folder}: "
                f"choose another --job, or end that one with `elasticd stop {self.job}`."
            )
        # A killed run leaves these files; their owner is gone, since the lock was free.
        try:
            self._remove_sockets()
            self.remove_endpoint()
            shutil.rmtree(self.etcd, ignore_errors=True)
            move_aside(self.path, OURS)
            make_private(self.agents)
        except OSError as exc:
            self.release()
            raise self._not_written(exc) from exc

    def write_endpoint(self, url: str) -> None:
        """Write the URL at which the private etcd of this run listens.

        Raises:
            CallError: the folder cannot be written.
        """
        partial = self.path / ".endpoint"
        try:
            partial.write_text(url + "\n")
            partial.rename(self.path / "endpoint")
        except OSError as exc:
            raise self._not_written(exc) from exc

    def remove_endpoint(self) -> None:
        (self.path / "endpoint").unlink(missing_ok=True)

    def remove(self, *, has_logs: bool, is_dry_run: bool = False) -> None:
        """Remove the run's records, and with `has_logs` all files of elasticd in the folder.

        A script's own files stay, and with them the folder.

        Raises:
            Refused: the run is in progress.
            CallError: a file cannot be removed.
        """
        try:
            if not self._take_lock():
                raise Refused(
                    f"The run {self.job!r} is in progress: end it with `elasticd stop {self.job}` "
                    "first."
                )
            if is_dry_run:
                return
            self._remove_sockets()
            for pattern in (*RECORDS, *(LOGS if has_logs else ())):
                for path in self.path.glob(pattern):
                    if path.is_dir():
                        shutil.rmtree(path)
                    else:
                        path.unlink()
            # The lock is still held: a process that has just opened the file sees its removal.
            (self.path / "lock").unlink(missing_ok=True)
            with suppress(OSError):
                self.path.rmdir()
        except OSError as exc:
            raise CallError(
                f"{exc.filename or self.path} cannot be removed ({exc.strerror}): see who owns it."
            ) from exc
        finally:
            self.release()

    def _take_lock(self) -> bool:
        """Lock the present lock file; return False if another process has locked it.

        Raises: OSError: the file cannot be opened, created or locked.
        """
        path = self.path / "lock"
        while True:
            # A lock is better than a file with a number: the kernel frees a lock in any case.
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(fd)
                return False
            except OSError:  # A file system without locks: nobody else holds this one.
                os.close(fd)
                raise
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(fd), path.stat()):
                    self._lock = fd
                    return True
            os.close(fd)  # `remove` deleted the file in between.

    def _remove_sockets(self) -> None:
        """Remove the folder of sockets that a killed run left among the temporary files."""
        path = Path((self.endpoint or "").removeprefix("unix://"))
        if path.is_absolute() and path.parent.name.startswith(PREFIX):
            shutil.rmtree(path.parent, ignore_errors=True)

    def release(self) -> None:
        if self._lock is not None:
            # The file stays: only `remove` unlinks it, and only while it is locked.
            os.close(self._lock)
            self._lock = None

    def _not_written(self, exc: OSError) -> CallError:
        return CallError(
            f"The run folder {self.path} cannot be written ({exc.strerror}): choose another "
            "--log-dir."
        )


def make_private(folder: Path) -> None:
    """Create a folder that only its owner can read; a folder that exists stays as it is.

    Raises: OSError: the folder cannot be created.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)


def move_aside(folder: Path, patterns: Iterable[str]) -> None:
    """Move the files of an earlier job of the same name to `earlier-<k>`, with a new highest k.

    Raises: OSError: a file cannot be moved.
    """
    found = [path for pattern in patterns for path in folder.glob(pattern)]
    if not found:
        return
    # k is not the number of folders: somebody may have deleted the first ones to free space.
    numbers = (path.name.removeprefix("earlier-") for path in folder.glob("earlier-*"))
    last = max((int(number) for number in numbers if number.isdecimal()), default=0)
    aside = folder / f"earlier-{last + 1}"
    make_private(aside)
    for path in found:
        path.rename(aside / path.name)


def local_jobs(run_folder: Path) -> Iterator[JobFolder]:
    """Yield the local jobs in a run folder, newest first."""
    # Only the lock is left if a run was killed, or if the disk was full for its records.
    marks = [mark for name in MARKS for mark in run_folder.glob(f"*/{name}")]
    newest: dict[str, float] = {}
    for mark in marks:
        try:
            changed_s = mark.stat().st_mtime
        except FileNotFoundError:
            continue
        newest[mark.parent.name] = max(changed_s, newest.get(mark.parent.name, 0.0))
    for name in sorted(newest, key=lambda job: -newest[job]):
        yield JobFolder(run_folder, JobName(name))
