"""Gives checkpoints up, and then deletes their objects.

An entry of the log comes first: from then on nobody begins to read them, and a crash leaves only
objects that no entry names, which `sweep` finds. The entry goes through `CommitLog.append`, so two
deletions at once, or a deletion and a commit, happen one after the other; deleting twice does no
harm.

Nobody knows what an unreadable entry of the log named. So its number stays until a person gives it
up: never delete what you do not understand.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from elasticd.checkpoint.commit.committer import read_manifest
from elasticd.checkpoint.commit.log import CommitLog, LogState
from elasticd.checkpoint.commit.read_lease import leased
from elasticd.checkpoint.format.entry import LogEntry, LogEntryKind
from elasticd.checkpoint.format.json_read import Damaged
from elasticd.checkpoint.format.layout import Snapshot
from elasticd.checkpoint.retention.policy import ALWAYS, Retention, to_keep
from elasticd.checkpoint.storage.bucket import Bucket, ObjectMissing, ReadableBucket
from elasticd.errors import NotFound, Refused

__all__ = [
    "CheckpointList",
    "Removal",
    "apply_retention",
    "delete_folder",
    "list_checkpoints",
    "remove",
]

FOLDER_LIMIT = 2_000_000
"""How many objects one checkpoint may have."""
DELETE_AT_ONCE = 100
"""How many objects one call deletes, so that a retry repeats little."""
THREADS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointList:
    """The checkpoints that count, and the entries that nobody can read, by the log as it is now."""

    entries: tuple[LogEntry, ...]
    """The checkpoints, in the order of their numbers."""
    unreadable: tuple[int, ...]
    """The numbers whose entries are damaged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """The checkpoints that were given up, or with a dry run would be."""

    gone: tuple[LogEntry, ...] = ()
    unreadable: tuple[int, ...] = ()
    """Given up without knowing what they named; `sweep` finds it."""
    busy: tuple[int, ...] = ()
    """Kept only because somebody reads them."""
    left: tuple[int, ...] = ()
    """Given up, but not deleted, because somebody had begun to read; `sweep` finds them."""
    objects: int = 0
    """How many objects were deleted."""

    @property
    def numbers(self) -> tuple[int, ...]:
        return tuple(sorted([*(entry.number for entry in self.gone), *self.unreadable]))


def apply_retention(
    bucket: Bucket,
    log: CommitLog,
    policy: Retention,
    *,
    least: int = ALWAYS,
    is_dry_run: bool = False,
) -> Removal:
    """Give up the checkpoints that the policy does not keep, but never one that is being read.

    The newest `least` stay, and so do the newest `least` whose manifests are whole, however old
    these are.
    """
    if policy.last == 0:
        return Removal()
    held = _Held(bucket)

    def choose(kept: CheckpointList, busy: frozenset[int]) -> tuple[set[int], set[int]]:
        numbers = {entry.number for entry in kept.entries}
        unwanted = numbers - to_keep(policy, kept.entries, least=least)
        if unwanted:
            unwanted -= held.newest_complete(kept.entries, least)
        return unwanted - busy, unwanted & busy

    return _give_up(bucket, log, choose, is_dry_run=is_dry_run)


def remove(
    bucket: Bucket,
    log: CommitLog,
    numbers: Iterable[int],
    *,
    is_forced: bool = False,
    is_dry_run: bool = False,
) -> Removal:
    """Give up all of these checkpoints, or none.

    Raises:
        NotFound: one of them is not there.
        Refused: one is being read; or is one of the newest two, and `is_forced` is not set.
    """
    wanted, held = set(numbers), _Held(bucket)

    def choose(kept: CheckpointList, busy: frozenset[int]) -> tuple[set[int], set[int]]:
        there = {entry.number for entry in kept.entries} | set(kept.unreadable)
        if wanted - there:
            raise NotFound(_not_there(bucket, min(wanted - there), sorted(there)))
        if wanted & busy:
            raise Refused(
                f"Checkpoint {min(wanted & busy)} at {bucket.url} is being read: try again when "
                "its reader has ended; one that died counts for an hour and ten minutes."
            )
        last = set() if is_forced else wanted & held.newest_complete(kept.entries, ALWAYS)
        if last:
            raise Refused(
                f"Checkpoint {min(last)} at {bucket.url} is one of the newest {ALWAYS} whole ones, "
                "which stay in case one of them cannot be read: give --force to remove it."
            )
        return wanted, set()

    return _give_up(bucket, log, choose, is_dry_run=is_dry_run)


def list_checkpoints(log: CommitLog, kept: Iterable[int]) -> CheckpointList:
    """Read the entries of these numbers."""
    entries: list[LogEntry] = []
    unreadable: list[int] = []
    for number in kept:
        try:
            entry = log.entry(number)
        except (Damaged, ObjectMissing):
            unreadable.append(number)
            continue
        if entry.kind is LogEntryKind.COMMITTED:
            entries.append(entry)
    return CheckpointList(entries=tuple(entries), unreadable=tuple(unreadable))


def delete_folder(bucket: Bucket, snapshot: Snapshot) -> int:
    """Delete all objects of a snapshot, the manifest first; return how many there were.

    It lists the folder: besides the parts that the manifest names, the folder may hold parts of
    holders whose upload was not needed, and parts that a crash left. Objects that a listing misses
    are left to `sweep`.
    """
    listed = bucket.list(snapshot.folder, FOLDER_LIMIT, lambda name: True)
    names = {each.name for each in listed}
    bucket.delete([snapshot.manifest])
    rest = sorted(names - {snapshot.manifest}, key=lambda name: (not name.endswith(".json"), name))
    chunks = [rest[at : at + DELETE_AT_ONCE] for at in range(0, len(rest), DELETE_AT_ONCE)]
    with ThreadPoolExecutor(THREADS) as pool:
        for _ in pool.map(bucket.delete, chunks):
            pass
    return len(names)


_Choose = Callable[[CheckpointList, frozenset[int]], tuple[set[int], set[int]]]
"""Gets what is kept and what is being read; returns what to give up, and what only its reader
holds."""


@dataclass(slots=True)
class _Held:
    """Remember which manifests are whole; each is read once."""

    bucket: Bucket
    _is_complete: dict[int, bool] = field(default_factory=dict)

    def newest_complete(self, entries: Sequence[LogEntry], count: int) -> set[int]:
        found: set[int] = set()
        for entry in reversed(entries):
            if len(found) >= count:
                break
            if entry.number not in self._is_complete:
                self._is_complete[entry.number] = self._look(entry)
            if self._is_complete[entry.number]:
                found.add(entry.number)
        return found

    def _look(self, entry: LogEntry) -> bool:
        try:
            read_manifest(self.bucket, entry)
        except Damaged:
            return False
        return True


def _give_up(bucket: Bucket, log: CommitLog, choose: _Choose, *, is_dry_run: bool) -> Removal:
    chosen = Removal()
    kept_after: tuple[int, ...] = ()

    def make(number: int, log_state: LogState, kept: Sequence[int]) -> LogEntry | None:
        nonlocal chosen, kept_after
        found = list_checkpoints(log, kept)
        unwanted, busy = choose(found, leased(bucket))
        chosen = Removal(
            gone=tuple(entry for entry in found.entries if entry.number in unwanted),
            unreadable=tuple(each for each in found.unreadable if each in unwanted),
            busy=tuple(sorted(busy)),
        )
        kept_after = tuple(each for each in kept if each not in unwanted)
        return _entry(number, log_state, kept_after) if unwanted and not is_dry_run else None

    if log.append(make) is None:
        return chosen
    return _deleted(bucket, log, chosen, kept_after)


def _entry(number: int, log_state: LogState, kept: Sequence[int]) -> LogEntry:
    step = log_state.start_step if log_state.last is None else log_state.last.step
    return LogEntry(
        number=number,
        kind=LogEntryKind.REMOVED,
        # Nothing looks at it; for people, what ruled when this was written.
        snapshot=Snapshot(run=log_state.run, generation=log_state.generation, step=step),
        uid=log_state.uid,
        job=log_state.job,
        kept=kept,
        at_unix_s=time.time(),
    )


def _deleted(bucket: Bucket, log: CommitLog, chosen: Removal, kept: tuple[int, ...]) -> Removal:
    # The same snapshot may have been committed twice, when a run went back behind it.
    needed = {entry.snapshot for entry in list_checkpoints(log, kept).entries}
    busy = leased(bucket)  # Read once more: `read_lease` says why.
    left, objects = [], 0
    for entry in chosen.gone:
        if entry.number in busy:
            left.append(entry.number)
        elif entry.snapshot not in needed:
            objects += delete_folder(bucket, entry.snapshot)
    return Removal(
        gone=chosen.gone,
        unreadable=chosen.unreadable,
        busy=chosen.busy,
        left=tuple(left),
        objects=objects,
    )


def _not_there(bucket: ReadableBucket, number: int, there: Sequence[int]) -> str:
    if not there:
        return f"There is no checkpoint at {bucket.url}."
    shown = ", ".join(map(str, there[-10:]))
    return f"There is no checkpoint {number} at {bucket.url}: the newest are {shown}."
