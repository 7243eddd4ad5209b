"""Opens the records that a command needs: a cluster's etcd, a local run's etcd, or its archive."""

import difflib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from elasticd.cli.etcd_flags import Values, keys_of, log_dir_of, open_store, settings_from
from elasticd.cli.killed_run import is_killed_run, killed_run_sentence
from elasticd.cli.main import complain
from elasticd.control.local_run.archive import load
from elasticd.control.local_run.run_folder import JobFolder, local_jobs
from elasticd.errors import CallError, NotFound, NotSupported, Refused, Unavailable
from elasticd.records.ids import JobName, checked_name
from elasticd.records.keys import Keys
from elasticd.store.api import Store, StoreSettings, never
from elasticd.store.memory import MemoryStore

__all__ = [
    "RecordSource",
    "check_live",
    "complain_once",
    "job_source",
    "killed_runs",
    "known_runs",
    "open_run",
    "sources",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordSource:
    store: Store
    keys: Keys
    run_folder: Path
    settings: StoreSettings | None = None
    """The settings of the cluster's etcd; None for a local run."""
    is_archive: bool = False
    """True if the run is over, so that nothing can be changed."""
    has_ended: Callable[[], bool] = never
    """Returns whether the local run, and its private etcd, ended after the records were opened."""


@contextmanager
def job_source(values: Values, job: str | None) -> Iterator[tuple[RecordSource, JobName]]:
    """Open the records of a job, or of the newest local run if `job` is None.

    Raises:
        NotFound: there is no such local run; the message lists the runs.
    """
    name = JobName(checked_name("job", job)) if job is not None else None
    settings = settings_from(values, os.environ)
    run_folder = _run_folder(values)
    if settings is not None:
        if name is None:
            raise NotFound("Name the job: `elasticd status` lists those of the cluster.")
        keys = keys_of(values, os.environ)
        store = open_store(settings, keys)
        try:
            yield (
                RecordSource(store=store, keys=keys, run_folder=run_folder, settings=settings),
                name,
            )
        finally:
            store.close()
        return
    folders = list(local_jobs(run_folder))
    found = next((folder for folder in folders if name in (None, folder.job)), None)
    if found is None:
        _check_readable(run_folder)
        known = known_runs([folder.job for folder in folders], name or "")
        raise NotFound(
            (f"There is no local run {name!r} in {run_folder}" if name else _nothing(run_folder))
            + f" ({known}); for a cluster's jobs give --etcd, for others --log-dir."
        )
    with open_run(found) as source:
        yield source, found.job


@contextmanager
def sources(values: Values) -> Iterator[list[RecordSource]]:
    """Open all records that `status` and `nodes` list: those of the cluster, or of all local runs.

    A run whose records are damaged, or are of a newer version, is named on stderr and left out.

    Raises: NotFound: there is no local run, and no cluster is given.
    """
    settings = settings_from(values, os.environ)
    run_folder = _run_folder(values)
    if settings is not None:
        keys = keys_of(values, os.environ)
        store = open_store(settings, keys)
        try:
            yield [RecordSource(store=store, keys=keys, run_folder=run_folder, settings=settings)]
        finally:
            store.close()
        return
    opened: list[RecordSource] = []
    folders = list(local_jobs(run_folder))
    if not folders:
        _check_readable(run_folder)
        raise NotFound(f"{_nothing(run_folder)}; for a cluster give --etcd.")
    try:
        for folder in folders:
            try:
                with suppress(NotFound, Unavailable):  # A killed run left no records.
                    opened.append(_connect(folder))
            except NotSupported as exc:
                complain_once(str(exc))
        yield opened
    finally:
        for source in opened:
            source.store.close()


def killed_runs(values: Values) -> list[str]:
    """Return a sentence for each local run that is over and kept no records; newest first."""
    if settings_from(values, os.environ) is not None:
        return []
    return [
        killed_run_sentence(folder, time.time())
        for folder in local_jobs(_run_folder(values))
        if is_killed_run(folder)
    ]


def check_live(source: RecordSource, job: str) -> None:
    """Check that a job can still be changed.

    Raises: Refused: the job was a local run, and is over.
    """
    if source.is_archive:
        raise Refused(f"Job {job!r} is over: `elasticd why {job}` tells what happened.")


@contextmanager
def open_run(folder: JobFolder) -> Iterator[RecordSource]:
    """Open the records of a local run that runs or is over.

    Raises:
        NotFound: the run kept no records.
        Unavailable: the run's etcd does not answer, or the run just begins.
    """
    source = _connect(folder)
    try:
        yield source
    finally:
        source.store.close()


def _connect(folder: JobFolder) -> RecordSource:
    endpoint = folder.endpoint
    if endpoint is not None and folder.is_live():

        def has_ended() -> bool:
            # The run removes the address before it ends its etcd.
            return folder.endpoint != endpoint

        store = _open_private(folder, endpoint, has_ended)
        if store is not None:
            return RecordSource(
                store=store, keys=Keys(), run_folder=folder.run_folder, has_ended=has_ended
            )
    if not folder.records.exists():
        if folder.is_live():
            raise Unavailable(
                f"The run {folder.job!r} begins or ends at this moment, and has no records yet: "
                "call this again."
            )
        raise NotFound(killed_run_sentence(folder, time.time()))
    archived = MemoryStore()
    load(folder.records, archived)
    return RecordSource(store=archived, keys=Keys(), run_folder=folder.run_folder, is_archive=True)


def _open_private(folder: JobFolder, endpoint: str, has_ended: Callable[[], bool]) -> Store | None:
    """Connect to the private etcd of a run; return None if the run ends at this moment."""
    try:
        return open_store(StoreSettings(endpoints=(endpoint,), has_ended=has_ended), Keys())
    except Unavailable as exc:
        if has_ended():
            return None
        raise Unavailable(
            f"The run {folder.job!r} goes on, but its private etcd does not answer: is the "
            f"disk of {folder.path} full? Its logs are there."
        ) from exc


@cache
def complain_once(sentence: str) -> None:
    """Print a sentence, if any, on stderr; a view that reads again does not repeat it."""
    if sentence:
        complain(sentence)


def _run_folder(values: Values) -> Path:
    return Path(log_dir_of(values, os.environ) or "elasticd-runs").absolute()


def known_runs(jobs: Sequence[str], wanted: str) -> str:
    """Return a hint with the names that are similar to the wanted one, or else the first five."""
    near = difflib.get_close_matches(wanted, jobs)
    if near:
        return f"did you mean {' or '.join(near)}?"
    rest = f" and {len(jobs) - 5} more" if len(jobs) > 5 else ""
    return f"there are: {', '.join(jobs[:5]) or 'none'}{rest}"


def _check_readable(run_folder: Path) -> None:
    """Check that this user can list the run folder: otherwise it would look empty.

    Raises: CallError: this user cannot read the folder.
    """
    if run_folder.is_dir() and not os.access(run_folder, os.R_OK | os.X_OK):
        raise CallError(
            f"The run folder {run_folder} cannot be read by this user: name another with "
            "--log-dir, or a cluster with --etcd."
        )


def _nothing(run_folder: Path) -> str:
    return f"There is no local run in {run_folder}"
