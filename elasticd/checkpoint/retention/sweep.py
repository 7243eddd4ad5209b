"""Finds and deletes what crashes left behind.

Crashes leave uploads that were never committed, and checkpoints that were given up by a process
that died before it deleted them. Only the log and the age of the objects tell garbage from an
upload that is under way. So three things must agree: no kept entry names the folder, its snapshot
has come too late for a commit, and nothing in it was written for a day. All other folders wait for
the next sweep.
"""

import re
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

from elasticd.checkpoint.commit.log import CommitLog, LogState, may_commit
from elasticd.checkpoint.commit.read_lease import is_over, leased, leases
from elasticd.checkpoint.format.json_read import Damaged
from elasticd.checkpoint.format.layout import COMMITS, LEASES, STEPS, TRIALS, Snapshot
from elasticd.checkpoint.retention.deletion import delete_folder, list_checkpoints
from elasticd.checkpoint.storage.bucket import Bucket, ObjectMissing, ReadableBucket

__all__ = ["LEAST_AGE_S", "OLDER_THAN_S", "SweepFolder", "Swept", "is_garbage", "sweep"]

OLDER_THAN_S = 24 * 3600.0
LEAST_AGE_S = 3600.0
"""The least age of garbage; below that, the storage's clock and ours may differ by more."""
LIST_LIMIT = 1_000_000
FOLDER_LIMIT = 2_000_000

_STRAY = re.compile(rf"(?:{COMMITS}|{LEASES})/\.[^/]+\.tmp|{TRIALS}/[^/]+")
"""What a write to a mounted file system leaves behind when it dies, and a trial anywhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepFolder:
    """The objects of one snapshot, in its folder under steps/."""

    snapshot: Snapshot
    objects: int
    nbytes: int
    newest_unix_s: float
    """When the last object was written, as the storage says; 0 if it does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    folders: tuple[SweepFolder, ...]
    strays: tuple[str, ...]
    """The names of leases that are over, of temporary files, and of trials."""
    is_cut_off: bool
    """True if there is more than one sweep handles: call it again."""


def is_garbage(
    found: SweepFolder,
    *,
    needed: Collection[Snapshot],
    log_state: LogState,
    now_unix_s: float,
    older_than_s: float,
) -> bool:
    """Return whether nobody needs this folder, now or later. Pure.

    `needed` are the snapshots of kept checkpoints, and of those that are being read.
    """
    made = found.snapshot
    if made in needed or not found.newest_unix_s:
        return False
    if now_unix_s - found.newest_unix_s <= older_than_s:
        return False
    # A generation that has not opened yet may go back behind the newest checkpoint.
    has_opened = (made.run, made.generation) <= (log_state.run, log_state.generation)
    return has_opened and not may_commit(log_state, made)


def sweep(
    bucket: Bucket,
    log: CommitLog,
    *,
    older_than_s: float = OLDER_THAN_S,
    is_dry_run: bool = False,
    now: Callable[[], float] = time.time,
) -> Swept:
    """Delete garbage; with a dry run only find it.

    Raises:
        Damaged: an entry that says what is kept cannot be read, so nothing is known to be garbage.
    """
    now_unix_s = now()
    candidates, is_cut_off = _snapshots(bucket)
    gone: list[SweepFolder] = []
    for snapshot in sorted(candidates):
        # The log and the folder once more for each: deleting the one before may have taken long.
        needed, log_state = _needed(bucket, log, now)
        found = None if snapshot in needed else _found(bucket, snapshot)
        if found is None or not is_garbage(
            found,
            needed=needed,
            log_state=log_state,
            now_unix_s=now_unix_s,
            older_than_s=older_than_s,
        ):
            continue
        gone.append(found)
        if not is_dry_run:
            delete_folder(bucket, snapshot)
    strays = _strays(bucket, now_unix_s, older_than_s)
    if not is_dry_run:
        bucket.delete(strays)
    return Swept(folders=tuple(gone), strays=strays, is_cut_off=is_cut_off)


def _snapshots(bucket: ReadableBucket) -> tuple[set[Snapshot], bool]:
    """Return every snapshot that has a folder, and whether there may be more."""
    listed = bucket.list(STEPS, LIST_LIMIT, lambda name: True)
    found = {Snapshot.of_folder(each.name.split("/")[1]) for each in listed}
    return {each for each in found if each is not None}, len(listed) >= LIST_LIMIT


def _found(bucket: ReadableBucket, snapshot: Snapshot) -> SweepFolder | None:
    listed = bucket.list(snapshot.folder, FOLDER_LIMIT, lambda name: True)
    if not listed:
        return None
    # One object of unknown age makes the age of all unknown.
    times = [each.modified_unix_s for each in listed]
    return SweepFolder(
        snapshot=snapshot,
        objects=len(listed),
        nbytes=sum(each.size for each in listed),
        newest_unix_s=max(times) if all(times) else 0.0,
    )


def _needed(
    bucket: ReadableBucket, log: CommitLog, now: Callable[[], float]
) -> tuple[frozenset[Snapshot], LogState]:
    number = log.newest_number()
    if number:
        _check_readable(log, number)
    kept = list_checkpoints(log, log.kept(number))
    for each in kept.unreadable:
        _check_readable(log, each)
    read = list_checkpoints(log, sorted(leased(bucket, now) - {0}))
    snapshots = {entry.snapshot for entry in (*kept.entries, *read.entries)}
    return frozenset(snapshots), log.state(number)


def _check_readable(log: CommitLog, number: int) -> None:
    try:
        log.entry(number)
    except (Damaged, ObjectMissing) as exc:
        raise Damaged(
            f"Nothing was swept, because the entry {number} of the log cannot be read, and so it "
            f"is not known what it keeps ({exc}). If it stays so: `elasticd checkpoint rm URL "
            f"{number}` gives it up; if it is the newest entry, the next commit does."
        ) from exc


def _strays(bucket: ReadableBucket, now_unix_s: float, older_than_s: float) -> tuple[str, ...]:
    over = [each.name for each in leases(bucket) if is_over(each, now_unix_s)]
    for folder in (COMMITS, LEASES, TRIALS):
        listed = bucket.list(folder, LIST_LIMIT, lambda name: bool(_STRAY.fullmatch(name)))
        over += [
            each.name
            for each in listed
            if each.modified_unix_s and now_unix_s - each.modified_unix_s > older_than_s
        ]
    return tuple(over)
